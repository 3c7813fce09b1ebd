//! Gathers what the world is like around one server: from what the watches showed, and by asking directly where a
//! watch brings metadata alone. It decides nothing and writes nothing.

pub mod cluster;
pub mod door;
pub mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, ServiceAccount};
use kube::{Api, Client};
use mooring_api::McpServer;
use mooring_plan::observed::{
    ChildKind, DeclaredKeySecret, KeysSecret, ObservedDeployment, ObservedPod, Reference, SessionSecret,
};
use mooring_plan::{Observed, names, references, stored};

use crate::key::{ChildKey, Kind, ServerKey};
use crate::limit::{self, CallError};
use crate::turns::Turns;
use crate::watch::view::{Meta, MetaView};
use crate::world::{Known, World};

/// Something could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{what} in namespace {namespace} could not be read: {source}")]
pub struct ObserveError {
    what: String,
    namespace: String,
    /// Why.
    pub source: CallError,
}

/// Gathers what is known.
#[derive(Clone)]
pub struct Observer {
    client: Client,
    world: Arc<World>,
    turns: Arc<Turns>,
}

impl Observer {
    /// An observer that reads with `client` what `world` does not know.
    pub fn new(client: Client, world: Arc<World>, turns: Arc<Turns>) -> Self {
        Self { client, world, turns }
    }

    /// Everything around `server`.
    pub async fn observe(&self, key: &ServerKey, server: &McpServer) -> Result<Observed, ObserveError> {
        let name = key.name.as_str();
        let (keys, session, declared_keys, (existing_references, key_secrets)) = futures::try_join!(
            self.own_secret(key, server, names::keys(name)),
            self.own_secret(key, server, names::session(name)),
            self.declared_keys(key, server),
            self.references(key, server),
        )?;
        let child = |kind, child_name: &str| self.own_child(key, server, kind, child_name);
        let deployment = child(Kind::Deployment, name);
        let ingress = child(Kind::Ingress, name);
        let autoscaler = child(Kind::HorizontalPodAutoscaler, name);
        let optional = [
            (ChildKind::NetworkPolicy, child(Kind::NetworkPolicy, name).is_some()),
            (ChildKind::Ingress, ingress.is_some()),
            (ChildKind::HorizontalPodAutoscaler, autoscaler.is_some()),
            (ChildKind::PodDisruptionBudget, child(Kind::PodDisruptionBudget, name).is_some()),
            (ChildKind::ServiceAccount, child(Kind::ServiceAccount, name).is_some()),
        ];
        Ok(Observed {
            keys: keys.map(|secret| KeysSecret::from_secret(&secret)),
            session: session.map(|secret| SessionSecret::from_secret(&secret)),
            declared_keys,
            key_secrets,
            existing_references,
            upgrade_turn: deployment.as_ref().is_some_and(|deployment| self.turns.ask(key, deployment, &self.world)),
            deployment: deployment.as_deref().map(observed_deployment),
            inactive_autoscaler: autoscaler.and_then(|child| child.inactive_autoscaler.as_deref().cloned()),
            existing_children: optional.into_iter().filter_map(|(kind, exists)| exists.then_some(kind)).collect(),
            pods: pods(&self.world, key),
            ingress_classes: server.spec.ingress.as_ref().and_then(|_| self.world.ingress_classes()),
            ingress_addresses: ingress.map(|ingress| ingress.addresses.clone()).unwrap_or_default(),
            older_claims: self.world.older_claims(key, server),
        })
    }

    fn own_child(
        &self,
        key: &ServerKey,
        server: &McpServer,
        kind: Kind,
        name: &str,
    ) -> Option<Arc<crate::world::Child>> {
        let child = ChildKey { kind, namespace: key.namespace.clone(), name: name.to_owned() };
        self.world.child(&child).filter(|child| is_own(&child.meta, server))
    }

    /// A Secret of ours, with its bytes: the copy at hand if it is new enough, else what the API server answers.
    async fn own_secret(
        &self,
        key: &ServerKey,
        server: &McpServer,
        name: String,
    ) -> Result<Option<Secret>, ObserveError> {
        let child = ChildKey { kind: Kind::Secret, namespace: key.namespace.clone(), name };
        let shown = self.world.child(&child);
        let version = shown.as_ref().map(|child| child.meta.resource_version.as_str());
        let copy = self.world.secrets.get(&child.namespace, &child.name, version);
        let secret = match (copy, shown.is_some()) {
            (Some(copy), _) => Some(copy),
            (None, true) => self.get_secret(&child.namespace, &child.name).await?,
            (None, false) => None,
        };
        Ok(secret.filter(|secret| is_owned_by(secret, server)))
    }

    async fn declared_keys(
        &self,
        key: &ServerKey,
        server: &McpServer,
    ) -> Result<BTreeMap<String, DeclaredKeySecret>, ObserveError> {
        let prefix = names::declared_key(&key.name, "");
        let shown = self.world.secrets_with_prefix(&key.namespace, &prefix);
        let mut secret_names: BTreeSet<String> = shown.into_iter().map(|meta| meta.name).collect();
        // Those that were just made may not be shown yet.
        let declared = server.spec.auth.iter().flat_map(|auth| &auth.keys);
        secret_names.extend(declared.map(|declared| names::declared_key(&key.name, &declared.name)));
        let read = secret_names.into_iter().map(|secret_name| async move {
            let secret = self.own_secret(key, server, secret_name.clone()).await?;
            let key_name = names::declared_key_of(&key.name, &secret_name).map(str::to_owned);
            Ok(key_name.zip(secret.map(|secret| DeclaredKeySecret::from_secret(&secret))))
        });
        Ok(futures::future::try_join_all(read).await?.into_iter().flatten().collect())
    }

    /// Which of the objects that the spec refers to exist, and the bytes of the Secrets of `auth.keySecrets`.
    async fn references(
        &self,
        key: &ServerKey,
        server: &McpServer,
    ) -> Result<(BTreeSet<Reference>, BTreeMap<String, BTreeMap<String, Vec<u8>>>), ObserveError> {
        let wanted = references::references(server);
        let unknown = self.world.references(key, &wanted).into_iter().filter(|(_, known)| *known == Known::Unknown);
        let looked_up = unknown.map(|(reference, _)| async move {
            let version = self.look_up(&key.namespace, &reference).await?;
            self.world.learn(&key.namespace, &reference, version);
            Ok(())
        });
        futures::future::try_join_all(looked_up).await?;
        let known = self.world.references(key, &wanted);
        let existing: BTreeSet<_> =
            known.into_iter().filter(|(_, known)| *known == Known::Present).map(|(reference, _)| reference).collect();

        let read = references::key_secrets(server).into_iter().map(|name| async move {
            let shown = self.world.reference_version(&key.namespace, &Reference::Secret(name.clone()));
            let Some(shown) = shown else { return Ok(None) };
            let secret = match self.world.secrets.get(&key.namespace, &name, Some(&shown)) {
                Some(copy) => Some(copy),
                None => self.get_secret(&key.namespace, &name).await?,
            };
            Ok(secret.map(|secret| (name, stored::entries(&secret))))
        });
        let key_secrets = futures::future::try_join_all(read).await?.into_iter().flatten().collect();
        Ok((existing, key_secrets))
    }

    async fn look_up(&self, namespace: &str, reference: &Reference) -> Result<Option<String>, ObserveError> {
        match reference {
            Reference::Secret(name) => self.version_of::<Secret>(namespace, name).await,
            Reference::ConfigMap(name) => self.version_of::<ConfigMap>(namespace, name).await,
            Reference::ServiceAccount(name) => self.version_of::<ServiceAccount>(namespace, name).await,
            Reference::PersistentVolumeClaim(name) => self.version_of::<PersistentVolumeClaim>(namespace, name).await,
        }
    }

    async fn version_of<K>(&self, namespace: &str, name: &str) -> Result<Option<String>, ObserveError>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope> + 'static,
    {
        let api: Api<MetaView<K>> = Api::namespaced(self.client.clone(), namespace);
        let found = limit::call(api.get_opt(name)).await;
        let found = found.map_err(|source| error(K::kind(&()).as_ref(), namespace, name, source))?;
        Ok(found.map(|object| object.into_meta().resource_version))
    }

    /// The revision of `<name>.keys` as it is stored, which is what front doors report once they have read it.
    pub async fn keys_revision(&self, key: &ServerKey, server: &McpServer) -> Result<Option<String>, ObserveError> {
        let secret = self.own_secret(key, server, names::keys(&key.name)).await?;
        let of_entries = |secret: Secret| {
            let entries = secret.data.iter().flatten();
            mooring_contract::revision::revision(entries.map(|(name, bytes)| (name.as_str(), bytes.0.as_slice())))
        };
        Ok(secret.map(of_entries))
    }

    /// A Secret as the API server has it now; the answer is kept.
    pub async fn get_secret(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ObserveError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = limit::call(api.get_opt(name)).await.map_err(|source| error("Secret", namespace, name, source))?;
        if found.is_none() {
            self.world.secrets.forget(namespace, name);
        }
        Ok(found.map(|secret| self.world.secrets.put(namespace, name, secret)))
    }
}

fn error(kind: &str, namespace: &str, name: &str, source: CallError) -> ObserveError {
    ObserveError { what: format!("{kind} {name}"), namespace: namespace.to_owned(), source }
}

/// The pods of a server, with what their front doors said.
pub fn pods(world: &World, key: &ServerKey) -> BTreeMap<String, ObservedPod> {
    let observed = |pod: &crate::world::Pod| ObservedPod {
        uid: pod.uid.clone(),
        created: pod.created,
        terminating: pod.deleting,
        refresh: pod.refresh.clone(),
        spec: (&pod.spec).into(),
        status: pod.status.clone(),
        door: world.doors.get(&pod.uid),
    };
    world.pods(key).into_iter().map(|(name, pod)| (name, observed(&pod))).collect()
}

fn observed_deployment(child: &crate::world::Child) -> ObservedDeployment {
    let meta = &child.meta;
    let detail = child.deployment.as_deref().cloned().unwrap_or_default();
    ObservedDeployment {
        uid: meta.uid.clone(),
        front_door_image: detail.front_door_image,
        applied_generation: meta.annotations.get(names::ANNOTATION_GENERATION).and_then(|value| value.parse().ok()),
        generation: meta.generation.unwrap_or_default(),
        replicas: detail.replicas,
        status: detail.status,
    }
}

/// Whether the object is controlled by this very server, not by an earlier one of the same name.
pub fn is_own(meta: &Meta, server: &McpServer) -> bool {
    meta.controller.as_ref().is_some_and(|controller| Some(controller.uid.as_str()) == server.metadata.uid.as_deref())
}

/// Whether a Secret is controlled by this very server.
pub fn is_owned_by(secret: &Secret, server: &McpServer) -> bool {
    let owners = secret.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.controller == Some(true) && Some(&owner.uid) == server.metadata.uid.as_ref())
}
