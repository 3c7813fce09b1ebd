//! What is known of the cluster without asking: what the watches showed, and what we ourselves wrote. It answers
//! questions and tells who is concerned by a change; it decides nothing and talks to nobody.

mod children;
mod referred;
mod status;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DeploymentStatus;
use k8s_openapi::api::core::v1::PodStatus;
use mooring_api::McpServer;
use mooring_plan::observed::{Claim, InactiveAutoscaler, IngressClass, Reference};
use mooring_plan::{Settings, claims, names, references};

use crate::apply::memory::Memory;
use crate::key::{ChildKey, ServerKey};
use crate::observe::door::DoorBook;
use crate::observe::secrets::SecretBook;
use crate::watch::view::{DeploymentView, Meta, PodSpecView, PodView, ReadServer};

pub use referred::Known;
use referred::Tracked;
use status::Published;

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const INSTANCE: &str = "app.kubernetes.io/instance";

/// Why a server is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Its spec changed, or it is new.
    Spec,
    /// It is gone.
    Gone,
    /// A Secret that it reads changed.
    Keys,
    /// Anything else.
    Other,
}

/// A server that is concerned by a change, and why.
pub type Wake = (ServerKey, Cause);

/// A child as its watch showed it.
#[derive(Clone, Debug, Default)]
pub struct Child {
    /// Metadata.
    pub meta: Meta,
    /// What is read of a Deployment.
    pub deployment: Option<Box<DeploymentDetail>>,
    /// Why a HorizontalPodAutoscaler does not act.
    pub inactive_autoscaler: Option<Box<InactiveAutoscaler>>,
    /// What the ingress controller reported.
    pub addresses: Vec<String>,
}

/// A Deployment as far as it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeploymentDetail {
    /// Image of the front-door container.
    pub front_door_image: Option<String>,
    /// `spec.replicas`.
    pub replicas: Option<i32>,
    /// `status`.
    pub status: DeploymentStatus,
}

impl DeploymentDetail {
    /// What is read of a view.
    pub fn of(view: DeploymentView) -> Self {
        Self {
            front_door_image: view.image(names::FRONT_DOOR).map(str::to_owned),
            replicas: view.replicas(),
            status: view.status,
        }
    }
}

/// A pod as its watch showed it, as far as it is read.
#[derive(Clone, Debug)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The annotation by which it was touched last.
    pub refresh: Option<String>,
    /// Its containers.
    pub spec: PodSpecView,
    /// `status`.
    pub status: PodStatus,
}

impl Pod {
    /// What is read of a view.
    pub fn of(mut meta: Meta, view: PodView) -> Self {
        Self {
            uid: meta.uid,
            created: meta.created,
            deleting: meta.deleting,
            refresh: meta.annotations.remove(names::ANNOTATION_REFRESH),
            spec: view.spec,
            status: view.status,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    servers: BTreeMap<ServerKey, Arc<ReadServer>>,
    claims: HashMap<ServerKey, Vec<Claim>>,
    claimants: HashMap<String, BTreeSet<ServerKey>>,
    children: BTreeMap<ChildKey, Arc<Child>>,
    pods: BTreeMap<ServerKey, BTreeMap<String, Arc<Pod>>>,
    tracked: BTreeMap<(String, Reference), Tracked>,
    classes: Option<BTreeMap<String, IngressClass>>,
    published: HashMap<ServerKey, Published>,
}

/// Everything that is known.
#[derive(Debug, Default)]
pub struct World {
    /// What we applied ourselves.
    pub memory: Memory,
    /// Copies of the Secrets that are read.
    pub secrets: SecretBook,
    /// What front doors said.
    pub doors: DoorBook,
    settings: Settings,
    state: RwLock<State>,
}

impl World {
    /// A world of which nothing is known yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// The settings that the world is read with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    // Servers

    /// A server as it is stored.
    pub fn server(&self, key: &ServerKey) -> Option<Arc<ReadServer>> {
        self.read().servers.get(key).cloned()
    }

    /// Every server.
    pub fn servers(&self) -> Vec<ServerKey> {
        self.read().servers.keys().cloned().collect()
    }

    /// How many servers there are.
    pub fn server_count(&self) -> usize {
        self.read().servers.len()
    }

    /// A server was seen.
    pub fn put_server(&self, key: &ServerKey, mut server: ReadServer) -> Vec<Wake> {
        let mut state = self.write();
        let mut wakes = Vec::new();
        let before = state.servers.get(key).cloned();
        let meta = |read: &ReadServer| {
            let meta = &read.server.metadata;
            (meta.uid.clone(), meta.generation, meta.deletion_timestamp.is_some(), meta.annotations.clone())
        };
        let spec_changed = before.as_deref().is_none_or(|before| meta(before) != meta(&server));
        if spec_changed {
            state.track(key, &references::references(&server.server));
            wakes.extend(state.claim(key, claims::claims(&server.server, &self.settings)));
            wakes.push((key.clone(), Cause::Spec));
        } else if state.published.get(key).is_some_and(|published| published.was_overwritten(&server)) {
            wakes.push((key.clone(), Cause::Other));
        }
        if state.published.get(key).is_some_and(|published| published.is_of(&server)) {
            server.status_is_ours = true;
            server.server.status = None; // it is kept once
        }
        state.servers.insert(key.clone(), Arc::new(server));
        wakes
    }

    /// A server is gone.
    pub fn remove_server(&self, key: &ServerKey) -> Vec<Wake> {
        self.memory.forget_server(key);
        let mut state = self.write();
        state.servers.remove(key);
        state.published.remove(key);
        state.track(key, &BTreeSet::new());
        let mut wakes = state.claim(key, Vec::new());
        wakes.push((key.clone(), Cause::Gone));
        wakes
    }

    /// What older servers claim of the hosts that `server` claims.
    pub fn older_claims(&self, key: &ServerKey, server: &McpServer) -> Vec<Claim> {
        let state = self.read();
        let mut others = BTreeSet::new();
        for claim in state.claims.get(key).into_iter().flatten() {
            others.extend(state.claimants.get(&claim.host).into_iter().flatten().filter(|other| *other != key));
        }
        let is_older =
            |other: &&ServerKey| state.servers.get(*other).is_some_and(|other| claims::is_older(&other.server, server));
        others
            .into_iter()
            .filter(is_older)
            .flat_map(|other| state.claims.get(other).into_iter().flatten().cloned())
            .collect()
    }
}

impl State {
    /// A server claims these hosts; tells who else is concerned by the change.
    fn claim(&mut self, key: &ServerKey, claims: Vec<Claim>) -> Vec<Wake> {
        let before = self.claims.remove(key).unwrap_or_default();
        if before == claims {
            if !claims.is_empty() {
                self.claims.insert(key.clone(), claims);
            }
            return Vec::new();
        }
        let mut concerned = BTreeSet::new();
        for claim in &before {
            if let Some(claimants) = self.claimants.get_mut(&claim.host) {
                claimants.remove(key);
                concerned.extend(claimants.iter().cloned());
                if claimants.is_empty() {
                    self.claimants.remove(&claim.host);
                }
            }
        }
        for claim in &claims {
            let claimants = self.claimants.entry(claim.host.clone()).or_default();
            concerned.extend(claimants.iter().filter(|other| *other != key).cloned());
            claimants.insert(key.clone());
        }
        if !claims.is_empty() {
            self.claims.insert(key.clone(), claims);
        }
        concerned.into_iter().map(|other| (other, Cause::Other)).collect()
    }
}

/// The server that an object belongs to, by the owner that controls it, or, where somebody took the owner away, by label.
pub fn server_of(meta: &Meta) -> Option<ServerKey> {
    if meta.labels.get(MANAGED_BY).map(String::as_str) != Some("mooring") {
        return None;
    }
    match &meta.controller {
        Some(controller) if controller.kind == "McpServer" => Some(ServerKey::new(&meta.namespace, &controller.name)),
        _ => instance_of(meta),
    }
}

fn instance_of(meta: &Meta) -> Option<ServerKey> {
    meta.labels.get(INSTANCE).map(|name| ServerKey::new(&meta.namespace, name))
}
