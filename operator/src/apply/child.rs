//! One child: whether it has to be written, whose the object of its name is, and the write itself.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hasher as _};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::core::params::GetParams;
use mooring_api::Reason;
use mooring_plan::FIELD_MANAGER;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::memory::{Remembered, is_older};
use super::{ApplyError, Done, Owner, Writer, finding, name_conflict};
use crate::key::{ChildKey, Kind};
use crate::limit::{self, CallError};
use crate::watch::view::{Meta, MetaView};

/// A kind of object that a server owns.
pub trait Child:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Sync
    + 'static
{
}
impl<K> Child for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Sync
        + 'static
{
}

/// Whose the object of a child's name is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// Nobody's: there is none.
    None,
    /// This server's; the UID goes along, so that no later object of the name is hit.
    Own(String),
    /// An earlier server's of the same name, or one on its way out: the garbage collector has to be waited for.
    Earlier,
    /// Somebody else's.
    Foreign,
}

impl Writer {
    /// Writes a child unless it is as it should be.
    pub(super) async fn child<K: Child>(&self, owner: Owner<'_>, kind: Kind, object: &K) -> Result<Done, ApplyError> {
        let name = object.meta().name.clone().unwrap_or_default();
        let key = ChildKey { kind, namespace: owner.key.namespace.clone(), name };
        let body = serde_json::to_vec(object)?;
        let digest = digest(&body);
        if self.is_as_it_should_be(owner, &key, digest, object.meta()) {
            return Ok(Done::Applied);
        }
        let mut holder = match self.holder_by_store(owner, &key) {
            Holder::None => self.holder_by_asking::<K>(owner, &key).await?,
            known => known,
        };
        for attempt in 0..2 {
            let uid = match holder {
                Holder::None => None,
                Holder::Own(uid) => Some(uid),
                Holder::Earlier => return Ok(Done::Waiting),
                Holder::Foreign => return Ok(name_conflict(&key)),
            };
            match self.send(&key, object, &body, uid).await? {
                Ok(meta) => {
                    self.metrics.wrote(kind.as_str());
                    let server_uid = owner.server.metadata.uid.as_deref().unwrap_or_default();
                    let Meta { uid, generation, resource_version, .. } = meta;
                    let last =
                        Remembered { digest, uid: uid.into(), generation, resource_version: resource_version.into() };
                    self.world.memory.remember(owner.key, server_uid, &key, last);
                    return Ok(Done::Applied);
                }
                // The object that was meant is gone, or one has come into being: look again, once.
                Err(error) if error.code() == Some(409) && attempt == 0 => {
                    self.world.memory.forget(owner.key, &key);
                    holder = self.holder_by_asking::<K>(owner, &key).await?;
                }
                Err(error) if error.is_refusal() => return Ok(finding(&key, Reason::ChildRefused, error.to_string())),
                Err(source) => return Err(ApplyError::Write { child: key, source }),
            }
        }
        Ok(Done::Waiting) // not reached: the second attempt returns
    }

    /// Whether our last apply still holds and our labels and annotations are still there.
    fn is_as_it_should_be(&self, owner: Owner<'_>, key: &ChildKey, digest: u64, desired: &ObjectMeta) -> bool {
        let Some(last) = self.remembered(owner, key).filter(|last| last.digest == digest) else { return false };
        // What the watch does not show yet is as we left it; when it goes, the memory of it goes too.
        self.world.child(key).is_none_or(|child| {
            let seen = &child.meta;
            let lags = is_older(&seen.resource_version, &last.resource_version);
            last.holds(key.kind, seen)
                && (lags
                    || (has_all(&seen.labels, desired.labels.as_ref())
                        && has_all(&seen.annotations, desired.annotations.as_ref())))
        })
    }

    fn holder_by_store(&self, owner: Owner<'_>, key: &ChildKey) -> Holder {
        if let Some(child) = self.world.child(key) {
            return holder(&child.meta, owner);
        }
        self.remembered(owner, key).map_or(Holder::None, |last| Holder::Own(last.uid.into()))
    }

    fn remembered(&self, owner: Owner<'_>, key: &ChildKey) -> Option<Remembered> {
        self.world.memory.get(owner.key, owner.server.metadata.uid.as_deref(), key)
    }

    async fn holder_by_asking<K: Child>(&self, owner: Owner<'_>, key: &ChildKey) -> Result<Holder, ApplyError> {
        let write_error = |source| ApplyError::Write { child: key.clone(), source };
        let request = Request::new(K::url_path(&(), Some(&key.namespace)));
        let request = request.get_metadata(&key.name, &GetParams::default()).map_err(kube::Error::BuildRequest);
        let request = request.map_err(|error| write_error(error.into()))?;
        match limit::call(self.client.request::<MetaView<K>>(request)).await {
            Ok(view) => Ok(holder(&view.into_meta(), owner)),
            Err(error) if error.code() == Some(404) => Ok(Holder::None),
            Err(source) => Err(write_error(source)),
        }
    }

    /// Sends the apply. The outer error is ours, the inner one is the API server's.
    async fn send<K: Child>(
        &self,
        key: &ChildKey,
        object: &K,
        body: &[u8],
        uid: Option<String>,
    ) -> Result<Result<Meta, CallError>, ApplyError> {
        let (body, force) = match uid {
            Some(uid) => {
                let mut object = object.clone();
                object.meta_mut().uid = Some(uid);
                (serde_json::to_string(&object)?, true)
            }
            None => (String::from_utf8_lossy(body).into_owned(), false),
        };
        // An apply refuses unknown fields by itself; to look for them besides, the API server would read the body twice.
        let params = PatchParams { force, ..PatchParams::apply(FIELD_MANAGER).validation_ignore() };
        let patch = Patch::Apply(RawValue::from_string(body)?);
        let request = Request::new(K::url_path(&(), Some(&key.namespace)));
        if key.kind == Kind::Secret {
            // Its content is read next, so the answer is kept as it comes.
            let request = request.patch(&key.name, &params, &patch).map_err(kube::Error::BuildRequest);
            return Ok(match request {
                Ok(request) => limit::call(self.client.request::<Secret>(request)).await.map(|secret| {
                    let meta = secret.metadata.clone().into();
                    self.world.secrets.put(&key.namespace, &key.name, secret);
                    meta
                }),
                Err(error) => Err(error.into()),
            });
        }
        let request = request.patch_metadata(&key.name, &params, &patch).map_err(kube::Error::BuildRequest);
        Ok(match request {
            Ok(request) => limit::call(self.client.request::<MetaView<K>>(request)).await.map(MetaView::into_meta),
            Err(error) => Err(error.into()),
        })
    }
}

fn holder(meta: &Meta, owner: Owner<'_>) -> Holder {
    let Some(controller) = &meta.controller else { return Holder::Foreign };
    if Some(&controller.uid) == owner.server.metadata.uid.as_ref() {
        if meta.deleting { Holder::Earlier } else { Holder::Own(meta.uid.clone()) }
    } else if controller.kind == "McpServer" && controller.name == owner.key.name {
        Holder::Earlier
    } else {
        Holder::Foreign
    }
}

fn has_all(seen: &BTreeMap<String, String>, desired: Option<&BTreeMap<String, String>>) -> bool {
    desired.into_iter().flatten().all(|(name, value)| seen.get(name) == Some(value))
}

/// A digest that is compared within this process only.
fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
