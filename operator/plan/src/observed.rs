//! What the world is like around one McpServer: plain data that `observe` gathers and `plan` and `status` read.
//! Absent and not yet seen are the same here; what must not be guessed is read directly before it gets here.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DeploymentStatus;
use k8s_openapi::api::core::v1::{ContainerState, PodSpec, PodStatus};
use mooring_contract::session_key::Slot;
use mooring_contract::{DoorStatus, Key, SessionKey};

use crate::names::FRONT_DOOR;

/// Everything around one McpServer.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// `<name>.keys`, with its bytes.
    pub keys: Option<KeysSecret>,
    /// `<name>.session`.
    pub session: Option<SessionSecret>,
    /// The `<name>.key.<key>` Secrets that exist, by key name, declared or not.
    pub declared_keys: BTreeMap<String, DeclaredKeySecret>,
    /// The Secrets of `auth.keySecrets` that exist, by name, with their bytes.
    pub key_secrets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// Which of the objects that the spec refers to exist.
    pub existing_references: BTreeSet<Reference>,
    /// The Deployment.
    pub deployment: Option<ObservedDeployment>,
    /// Why our HorizontalPodAutoscaler does not act; absent where it does, where it said nothing yet and where there is none.
    pub inactive_autoscaler: Option<InactiveAutoscaler>,
    /// Optional children of ours that exist and may have to go.
    pub existing_children: BTreeSet<ChildKind>,
    /// The pods, by name.
    pub pods: BTreeMap<String, ObservedPod>,
    /// The IngressClasses of the cluster, by name; absent where the operator has no right to read them.
    pub ingress_classes: Option<BTreeMap<String, IngressClass>>,
    /// Addresses that the ingress controller reported.
    pub ingress_addresses: Vec<String>,
    /// Hosts and paths of every older McpServer in any namespace.
    pub older_claims: Vec<Claim>,
    /// Whether this server may move to a new front-door image now, without a change of its spec.
    pub upgrade_turn: bool,
}

/// `<name>.keys` as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysSecret {
    /// UID.
    pub uid: String,
    /// Entries: a key's public id to its record, as bytes.
    pub data: BTreeMap<String, Vec<u8>>,
    /// What the annotation `mooring.dev/declared` says: declared key name to the public id that was applied.
    pub declared: BTreeMap<String, String>,
    /// What the annotation `mooring.dev/subjects` says: declared key name to its principal, for rotations.
    pub subjects: BTreeMap<String, String>,
}

/// `<name>.session` as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret {
    /// UID.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// Bearer token for `/status`.
    pub status_token: String,
    /// The keys that seal sessions, by their slot.
    pub keys: BTreeMap<Slot, SessionKey>,
    /// What the annotation `mooring.dev/rotated-session-keys` says.
    pub rotated: Option<String>,
    /// What the annotation `mooring.dev/settled-session-keys` says; absent where that is no time.
    pub settled: Option<Timestamp>,
}

impl std::fmt::Debug for SessionSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("SessionSecret");
        shown.field("uid", &self.uid).field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// `<name>.key.<key>` as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredKeySecret {
    /// UID.
    pub uid: String,
    /// The key; absent where somebody overwrote it with what is none.
    pub key: Option<Key>,
    /// The principal that sessions are bound to.
    pub subject: String,
    /// When the Secret was made.
    pub created: Timestamp,
}

/// An object in the same namespace, or a cluster-wide one, that a spec refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A Secret.
    Secret(String),
    /// A ConfigMap.
    ConfigMap(String),
    /// A ServiceAccount.
    ServiceAccount(String),
    /// A PersistentVolumeClaim.
    PersistentVolumeClaim(String),
}

/// Kinds of children that not every server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChildKind {
    /// NetworkPolicy.
    NetworkPolicy,
    /// Ingress.
    Ingress,
    /// HorizontalPodAutoscaler.
    HorizontalPodAutoscaler,
    /// PodDisruptionBudget.
    PodDisruptionBudget,
    /// ServiceAccount; absent where the spec names one.
    ServiceAccount,
}

/// The Deployment, as far as a decision depends on it.
#[derive(Clone, Debug, Default)]
pub struct ObservedDeployment {
    /// UID.
    pub uid: String,
    /// Image of the front-door container.
    pub front_door_image: Option<String>,
    /// The generation of the McpServer that it was last applied for, from the annotation `mooring.dev/generation`.
    pub applied_generation: Option<i64>,
    /// `metadata.generation`.
    pub generation: i64,
    /// `spec.replicas`.
    pub replicas: Option<i32>,
    /// Status, with the conditions in which quota and policy refusals stand.
    pub status: DeploymentStatus,
}

/// What a HorizontalPodAutoscaler that does not act says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InactiveAutoscaler {
    /// The condition's reason.
    pub reason: String,
    /// The condition's message, as far as it stays the same.
    pub message: String,
    /// Since when it does not act.
    pub since: Timestamp,
}

/// One pod, as far as a decision depends on it.
#[derive(Clone, Debug, Default)]
pub struct ObservedPod {
    /// UID.
    pub uid: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Value of the annotation `mooring.dev/refresh`.
    pub refresh: Option<String>,
    /// The few fields of the spec that are read (container names and images).
    pub spec: PodSpec,
    /// Status, with the states of init and main containers.
    pub status: PodStatus,
    /// What its front door says of itself.
    pub door: Door,
}

impl ObservedPod {
    /// The state of the front door's container.
    pub fn front_door(&self) -> Option<&ContainerState> {
        let mut statuses = self.status.container_statuses.iter().flatten();
        statuses.find(|status| status.name == FRONT_DOOR).and_then(|status| status.state.as_ref())
    }
}

/// What is known of a pod's front door.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Door {
    /// Not asked yet.
    #[default]
    Unasked,
    /// It could not be reached, and why.
    Unreachable(String),
    /// It is there, and does not admit the token of `<name>.session`: what it has in force is not what is stored.
    Unauthorized,
    /// Its answer.
    Answered(Box<DoorStatus>),
}

/// An IngressClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngressClass {
    /// `spec.controller`.
    pub controller: String,
    /// Whether it is the cluster's default.
    pub default: bool,
}

/// A host and path that an McpServer serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// The host.
    pub host: String,
    /// The path prefix.
    pub path: String,
    /// `namespace/name` of the server that claims it.
    pub by: String,
}
