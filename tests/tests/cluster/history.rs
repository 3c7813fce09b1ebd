//! What an object was from one moment on, by a watch: nothing between two looks is missed.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, pin_mut};
use kube::Api;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use mooring_tests::installed;
use mooring_tests::wait::until;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::room::Room;

/// What is looked at of an object, each time that it changed, without repetitions.
pub(crate) struct History<T> {
    values: Arc<Mutex<Vec<T>>>,
    watch: JoinHandle<Result<()>>,
}

impl<T: Clone + Debug + PartialEq + Send + 'static> History<T> {
    /// Begins with what the object is.
    pub(crate) async fn begin<K>(api: Api<K>, name: &str, look: impl Fn(&K) -> T + Send + 'static) -> Result<Self>
    where
        K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let now = api.get(name).await?;
        let version = now.meta().resource_version.clone().context("an object has a version")?;
        let values = Arc::new(Mutex::new(vec![look(&now)]));
        let (seen, only) = (Arc::clone(&values), WatchParams::default().fields(&format!("metadata.name={name}")));
        let watch = tokio::spawn(async move {
            let events = api.watch(&only, &version).await?;
            pin_mut!(events);
            while let Some(event) = events.next().await {
                let object = match event? {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Deleted(_) => bail!("the object was deleted"),
                    WatchEvent::Error(error) => bail!("{error:?}"),
                };
                let value = look(&object);
                let mut values = seen.lock().unwrap_or_else(PoisonError::into_inner);
                if values.last() != Some(&value) {
                    values.push(value);
                }
            }
            bail!("the watch ended")
        });
        Ok(Self { values, watch })
    }

    /// All so far.
    pub(crate) fn values(&self) -> Vec<T> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the object is so.
    pub(crate) async fn reaches(&self, wanted: &T, limit: Duration) -> Result<()> {
        until(&format!("the object to be {wanted:?}"), limit, || async {
            let values = self.values();
            ensure!(values.last() == Some(wanted), "it was {values:?}");
            Ok(())
        })
        .await
    }

    /// Ends it: all that the object was. An error where something may have been missed.
    pub(crate) async fn end(self) -> Result<Vec<T>> {
        let values = self.values();
        if self.watch.is_finished() {
            self.watch.await??;
        } else {
            self.watch.abort();
        }
        Ok(values)
    }
}

/// Whether the server said of itself that it is available and ready, each time that this changed.
pub(crate) async fn told(room: &Room, server: &str) -> Result<History<[bool; 2]>> {
    let servers = installed::servers(&room.world.cluster, &room.name).await?;
    let look = |server: &DynamicObject| {
        let conditions = server.data.pointer("/status/conditions").and_then(Value::as_array);
        ["Available", "Ready"]
            .map(|kind| conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True"))
    };
    History::begin(servers, server, look).await
}
