//! The only writer of children: it does what a plan says, by server-side apply, and decides nothing but whether a child
//! has to be written at all. What is applied is never also made by POST, and the other way round.

mod child;
mod hand_over;
pub mod memory;
mod secrets;

pub use secrets::new_subject;

use std::sync::Arc;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use mooring_api::{McpServer, Reason};
use mooring_plan::observed::ChildKind;
use mooring_plan::outcome::Finding;
use mooring_plan::{Applied, Desired, Plan, names};

use crate::key::{ChildKey, Kind, ServerKey};
use crate::limit::{self, CallError};
use crate::metrics::Metrics;
use crate::observe::is_own;
use crate::random::RandomError;
use crate::world::World;

/// A step that could not be done. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A child could not be written.
    #[error("{child} could not be written: {source}")]
    Write {
        /// Which.
        child: ChildKey,
        /// Why.
        source: CallError,
    },
    /// A child is no JSON document, which no type of ours is.
    #[error("a child cannot be serialised: {0}")]
    Serialize(#[from] serde_json::Error),
    /// No key can be made.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// A Secret that was there could not be read back.
    #[error(transparent)]
    ReadBack(#[from] crate::observe::ObserveError),
}

impl ApplyError {
    /// How long the API server asks to wait.
    pub fn retry_after(&self) -> Option<std::time::Duration> {
        match self {
            Self::Write { source, .. } => source.retry_after(),
            Self::ReadBack(error) => error.source.retry_after(),
            Self::Serialize(_) | Self::Random(_) => None,
        }
    }
}

/// What came of one child.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Done {
    /// It is as desired.
    Applied,
    /// It will not be, until something changes.
    Refused(Finding),
    /// One of an earlier server has to go first.
    Waiting,
}

/// The server whose children are written.
#[derive(Clone, Copy, Debug)]
struct Owner<'a> {
    key: &'a ServerKey,
    server: &'a McpServer,
}

/// Writes children.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    world: Arc<World>,
    metrics: Arc<Metrics>,
    observer: crate::observe::Observer,
}

impl Writer {
    /// A writer; `observer` reads back what was there already.
    pub fn new(client: Client, world: Arc<World>, metrics: Arc<Metrics>, observer: crate::observe::Observer) -> Self {
        Self { client, world, metrics, observer }
    }

    /// Deletes, applies and prunes, in this order, what a plan says beside what is to be minted.
    pub async fn apply(&self, key: &ServerKey, server: &McpServer, plan: &Plan) -> Result<Applied, ApplyError> {
        let owner = Owner { key, server };
        for revoke in &plan.revoke {
            let name = names::declared_key(&key.name, &revoke.key);
            self.delete::<Secret>(Kind::Secret, &key.namespace, &name, &revoke.uid).await?;
            self.world.secrets.forget(&key.namespace, &name);
        }
        let applied = self.apply_desired(owner, &plan.desired).await?;
        for kind in &plan.prune {
            match kind {
                ChildKind::NetworkPolicy => self.prune::<NetworkPolicy>(owner, Kind::NetworkPolicy).await?,
                ChildKind::Ingress => self.prune::<Ingress>(owner, Kind::Ingress).await?,
                ChildKind::HorizontalPodAutoscaler => {
                    self.prune::<HorizontalPodAutoscaler>(owner, Kind::HorizontalPodAutoscaler).await?;
                }
                ChildKind::PodDisruptionBudget => {
                    self.prune::<PodDisruptionBudget>(owner, Kind::PodDisruptionBudget).await?;
                }
                ChildKind::ServiceAccount => self.prune::<ServiceAccount>(owner, Kind::ServiceAccount).await?,
            }
        }
        Ok(applied)
    }

    /// What the pods need is written first, all at once; then the Deployment, and what concerns its pods.
    async fn apply_desired(&self, owner: Owner<'_>, desired: &Desired) -> Result<Applied, ApplyError> {
        let Desired {
            service_account,
            config_map,
            keys,
            network_policy,
            service,
            deployment,
            autoscaler,
            disruption_budget,
            ingress,
        } = desired;
        // Boxed, because so many futures side by side are large.
        let first = futures::join!(
            Box::pin(self.child_if(owner, Kind::ServiceAccount, service_account.as_ref())),
            Box::pin(self.child(owner, Kind::ConfigMap, config_map)),
            Box::pin(self.child(owner, Kind::Secret, keys)),
            Box::pin(self.child_if(owner, Kind::NetworkPolicy, network_policy.as_ref())),
            Box::pin(self.child(owner, Kind::Service, service)),
        );
        // Where one could not be done the others were, and are not done again; the Deployment waits for all.
        let mut done: Vec<Done> = vec![first.0?, first.1?, first.2?, first.3?, first.4?];
        self.hand_over_replicas(owner, deployment).await?;
        let second = futures::join!(
            Box::pin(self.child(owner, Kind::Deployment, deployment)),
            Box::pin(self.child_if(owner, Kind::HorizontalPodAutoscaler, autoscaler.as_ref())),
            Box::pin(self.child_if(owner, Kind::PodDisruptionBudget, disruption_budget.as_ref())),
            Box::pin(self.child_if(owner, Kind::Ingress, ingress.as_ref())),
        );
        done.extend([second.0?, second.1?, second.2?, second.3?]);
        let mut applied = Applied::default();
        for one in done {
            match one {
                Done::Applied => {}
                Done::Refused(finding) => applied.refused.push(finding),
                Done::Waiting => applied.waiting = true,
            }
        }
        Ok(applied)
    }

    async fn child_if<K: child::Child>(
        &self,
        owner: Owner<'_>,
        kind: Kind,
        object: Option<&K>,
    ) -> Result<Done, ApplyError> {
        match object {
            Some(object) => self.child(owner, kind, object).await,
            None => Ok(Done::Applied),
        }
    }

    /// Deletes an optional child that is no longer wanted, if it is ours.
    async fn prune<K: child::Child>(&self, owner: Owner<'_>, kind: Kind) -> Result<(), ApplyError> {
        let key = ChildKey { kind, namespace: owner.key.namespace.clone(), name: owner.key.name.clone() };
        let Some(child) = self.world.child(&key).filter(|child| is_own(&child.meta, owner.server)) else {
            return Ok(());
        };
        if child.meta.deleting {
            return Ok(());
        }
        self.delete::<K>(kind, &key.namespace, &key.name, &child.meta.uid).await?;
        self.world.memory.forget(owner.key, &key);
        Ok(())
    }

    /// Deletes the object with this UID; one that is gone, or another one of the same name, is left alone.
    async fn delete<K: child::Child>(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ApplyError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let api: kube::Api<K> = kube::Api::namespaced(self.client.clone(), namespace);
        match limit::call(api.delete(name, &params)).await {
            Ok(_) => {
                self.metrics.wrote(kind.as_str());
                Ok(())
            }
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
            Err(source) => {
                let child = ChildKey { kind, namespace: namespace.to_owned(), name: name.to_owned() };
                Err(ApplyError::Write { child, source })
            }
        }
    }
}

/// The finding that a child was not written. It begins with the child's kind, by which `status` knows what it spoils.
fn finding(child: &ChildKey, reason: Reason, message: String) -> Done {
    Done::Refused(Finding { reason, field: format!("{} {}", child.kind, child.name), message })
}

/// The finding that somebody else's object has the name of a child.
fn name_conflict(child: &ChildKey) -> Done {
    let ChildKey { kind, name, .. } = child;
    let message = format!(
        "a {kind} named {name} exists and does not belong to this McpServer; it is left untouched. Delete or rename it, or rename the McpServer."
    );
    finding(child, Reason::NameConflict, message)
}

#[cfg(test)]
mod tests;
