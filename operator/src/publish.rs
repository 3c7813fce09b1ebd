//! Writes the status when it differs, and then the events that follow from the difference. The only writer of either.

use std::sync::Arc;

use kube::Client;
use kube::Resource as _;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use mooring_api::{ConditionType, McpServer, McpServerStatus};
use mooring_plan::STATUS_FIELD_MANAGER;
use mooring_plan::events::{self, EventKind};
use serde_json::Value;

use crate::key::ServerKey;
use crate::limit::{self, CallError};
use crate::metrics::Metrics;
use crate::watch::view::MetaView;
use crate::world::World;

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The status could not be written. It is tried again.
#[derive(Debug, thiserror::Error)]
#[error("the status could not be written: {0}")]
pub struct PublishError(pub CallError);

/// Writes statuses and events.
#[derive(Clone)]
pub struct Publisher {
    client: Client,
    world: Arc<World>,
    metrics: Arc<Metrics>,
    recorder: Recorder,
}

impl Publisher {
    /// A publisher whose events name `instance` as their source.
    pub fn new(client: Client, world: Arc<World>, metrics: Arc<Metrics>, instance: String) -> Self {
        let reporter = Reporter { controller: "mooring.dev/operator".to_owned(), instance: Some(instance) };
        let recorder = Recorder::new(client.clone(), reporter);
        Self { client, world, metrics, recorder }
    }

    /// Writes `new` unless it is what is there already.
    pub async fn publish(
        &self,
        key: &ServerKey,
        server: &McpServer,
        old: &McpServerStatus,
        new: &McpServerStatus,
    ) -> Result<(), PublishError> {
        if old == new {
            return Ok(());
        }
        // As it will be read back: the API keeps whole seconds.
        let document =
            serde_json::to_value(new).map_err(|error| PublishError(kube::Error::SerdeError(error).into()))?;
        let stored = serde_json::from_value(document.clone()).unwrap_or_else(|_| new.clone());
        self.world.publishing(key, server, stored);
        let written = self.write(key, server, document).await;
        self.world.published(key, written.as_ref().ok().cloned());
        match written {
            Ok(_) => {
                let ready =
                    new.condition(ConditionType::Ready).map(|ready| (ready.status.as_str(), ready.reason.as_str()));
                let (ready, reason) = ready.unwrap_or_default();
                tracing::info!(server = %key, ready, reason, "status");
                self.metrics.wrote("McpServer");
            }
            Err(error) if error.code() == Some(404) => return Ok(()), // the server is gone: nobody reads its status
            Err(error) => return Err(PublishError(error)),
        }
        self.tell(server, old, new).await;
        Ok(())
    }

    /// Applies the status; returns the server's new resourceVersion.
    async fn write(&self, key: &ServerKey, server: &McpServer, status: Value) -> Result<String, CallError> {
        let body = serde_json::json!({
            "apiVersion": McpServer::api_version(&()),
            "kind": McpServer::kind(&()),
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": server.metadata.uid},
            "status": status,
        });
        let params = PatchParams::apply(STATUS_FIELD_MANAGER).force().validation_ignore();
        let request = Request::new(McpServer::url_path(&(), Some(&key.namespace)));
        let mut request = request
            .patch_subresource("status", &key.name, &params, &Patch::Apply(body))
            .map_err(kube::Error::BuildRequest)?;
        request.headers_mut().insert(http::header::ACCEPT, http::HeaderValue::from_static(METADATA_ONLY));
        let view = limit::call(self.client.request::<MetaView<McpServer>>(request)).await?;
        Ok(view.into_meta().resource_version)
    }

    /// Events are for people who look right now: one that cannot be written is not worth another try.
    async fn tell(&self, server: &McpServer, old: &McpServerStatus, new: &McpServerStatus) {
        let regarding = server.object_ref(&());
        for event in events::events(server, old, new) {
            let event = Event {
                type_: match event.kind {
                    EventKind::Normal => EventType::Normal,
                    EventKind::Warning => EventType::Warning,
                },
                reason: event.reason,
                note: Some(event.note),
                action: event.action,
                secondary: None,
            };
            match tokio::time::timeout(limit::CALL, self.recorder.publish(&event, &regarding)).await {
                Ok(Ok(())) => self.metrics.wrote("Event"),
                Ok(Err(error)) => tracing::debug!(%error, "an event could not be written"),
                Err(_) => tracing::debug!("an event could not be written in time"),
            }
        }
    }
}
