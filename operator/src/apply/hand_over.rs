//! Hands the number of replicas over from the spec to whoever scales the Deployment. A field that nobody applies any more
//! falls back to its default, so a Deployment of ten pods would become one of one pod when an autoscaler is to take over.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams};
use mooring_plan::names::ANNOTATION_GENERATION;
use serde_json::json;

use super::{ApplyError, Owner, Writer};
use crate::key::{ChildKey, Kind};
use crate::limit;
use crate::observe::is_own;

/// Field manager of replicas that the spec no longer names. It lets go as soon as somebody scales.
const REPLICAS_MANAGER: &str = "mooring-replicas";

impl Writer {
    /// Before an apply for a new spec that names no replicas: takes a share in those that there are. Without force, so
    /// that a number that somebody changed meanwhile is looked at again.
    pub(super) async fn hand_over_replicas(&self, owner: Owner<'_>, desired: &Deployment) -> Result<(), ApplyError> {
        let Owner { key, server } = owner;
        let child = ChildKey { kind: Kind::Deployment, namespace: key.namespace.clone(), name: key.name.clone() };
        let Some(seen) = self.world.child(&child).filter(|child| is_own(&child.meta, server)) else { return Ok(()) };
        let replicas = seen.deployment.as_ref().and_then(|deployment| deployment.replicas);
        let generation = desired.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION_GENERATION));
        let is_named = desired.spec.as_ref().is_some_and(|spec| spec.replicas.is_some());
        let is_same_spec = seen.meta.annotations.get(ANNOTATION_GENERATION) == generation;
        // An autoscaler leaves a Deployment of no pods alone; left to its default, it has one to begin with.
        let is_asleep = replicas == Some(0) && server.spec.autoscaling.is_some();
        if is_named || is_same_spec || is_asleep || replicas.is_none_or(|replicas| replicas == 1) {
            return Ok(());
        }
        let share = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": child.name, "uid": seen.meta.uid},
            "spec": {"replicas": replicas},
        });
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &child.namespace);
        match limit::call(api.patch_metadata(&child.name, &PatchParams::apply(REPLICAS_MANAGER), &Patch::Apply(share)))
            .await
        {
            Ok(_) => {
                self.metrics.wrote(Kind::Deployment.as_str());
                Ok(())
            }
            Err(source) => Err(ApplyError::Write { child, source }),
        }
    }
}
