//! What decisions look like: a plan, a rejection, and what came of a plan when it was applied.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use mooring_api::Reason;
use mooring_contract::SessionKey;
use mooring_contract::door_status::SessionKeyIds;

use crate::observed::ChildKind;

/// What is to be done for one McpServer.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Secrets to make first: what was made is read back, and planned again. Only a step of the session keys is not waited
    /// for where it is refused.
    pub mint: Vec<Mint>,
    /// Secrets of declared keys to delete: no longer declared, or to be rotated.
    pub revoke: Vec<Revoke>,
    /// The children, to be applied in the order of the fields.
    pub desired: Desired,
    /// Optional children that are no longer wanted.
    pub prune: Vec<ChildKind>,
    /// What every front door has in force once it has read everything.
    pub revisions: Revisions,
    /// Where clients find the server.
    pub url: String,
    /// What the spec asks for and cannot be had, without keeping the rest from being applied.
    pub findings: Vec<Finding>,
}

/// The children of one McpServer: one field for each kind. `apply` takes it apart field by field, so that a kind that
/// nobody applies does not compile.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The pods' identity, without any right; absent where the spec names one.
    pub service_account: Option<ServiceAccount>,
    /// `<name>.config`.
    pub config_map: ConfigMap,
    /// `<name>.keys`: the declared entries.
    pub keys: Secret,
    /// The NetworkPolicy, before the pods that it protects.
    pub network_policy: Option<NetworkPolicy>,
    /// The Service.
    pub service: Service,
    /// The Deployment.
    pub deployment: Deployment,
    /// The HorizontalPodAutoscaler.
    pub autoscaler: Option<HorizontalPodAutoscaler>,
    /// The PodDisruptionBudget.
    pub disruption_budget: Option<PodDisruptionBudget>,
    /// The Ingress.
    pub ingress: Option<Ingress>,
}

/// Random content of a Secret. `apply` brings the randomness and POSTs the Secret; on 409 it reads back what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mint {
    /// `<name>.session`.
    Session,
    /// A step in the life of the session keys of a `<name>.session` that is there. It is a patch.
    SessionKeys {
        /// UID of the Secret, so that a newer one of the same name is not hit.
        uid: String,
        /// Its resourceVersion, so that what somebody wrote meanwhile is looked at first.
        resource_version: String,
        /// The step.
        step: KeyStep,
    },
    /// `<name>.key.<key>`.
    DeclaredKey {
        /// Name in `auth.keys`.
        key: String,
        /// The principal to copy, when this is a rotation.
        subject: Option<String>,
    },
}

/// A step in the life of session keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyStep {
    /// None seals: one is made that does.
    First,
    /// One is made that opens, to be distributed.
    Prepare,
    /// Every front door has it: it seals from now on.
    Advance {
        /// The key that seals from now on.
        next: SessionKey,
        /// The key that did.
        current: SessionKey,
    },
    /// Every front door seals with it: the sessions of before grow old from now on.
    Settle,
    /// Nothing is alive any more that the one before sealed: it goes.
    Retire,
}

/// A Secret `<name>.key.<key>` to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoke {
    /// Name in `auth.keys`.
    pub key: String,
    /// UID, so that a newer Secret of the same name is not hit.
    pub uid: String,
}

/// Revisions that a front door reports once it has read everything (see `mooring_contract::revision`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// Of the config directory; empty while not known.
    pub config: String,
    /// Of the keys directory; absent while the keys Secret is not known as it is stored.
    pub keys: Option<String>,
    /// Of each directory of `auth.keySecrets`.
    pub key_secrets: BTreeMap<String, String>,
    /// Ids of the session keys; empty while not known.
    pub session_keys: SessionKeyIds,
}

/// Something that the spec asks for and that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Why.
    pub reason: Reason,
    /// Which field asks for it.
    pub field: String,
    /// In words, with what to do.
    pub message: String,
}

/// A spec that cannot be served. It is not tried again until the spec or something that it refers to changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// Which field.
    pub field: String,
    /// In words, with what to do.
    pub message: String,
}

/// What came of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// Children that were not applied, and why: each is one finding of [`Reason::NameConflict`] or
    /// [`Reason::ChildRefused`], or of [`Reason::SessionKeysWaiting`] for a step of the session keys.
    pub refused: Vec<Finding>,
    /// Whether a child waits for the garbage collector to remove that of an earlier server with the same name.
    pub waiting: bool,
}
