//! What is known of the cluster without asking: what the watches showed, and what we ourselves wrote. It answers
//! questions and tells who is concerned by a change; it decides nothing and talks to nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::apps::v1::DeploymentStatus;
use mooring_api::{McpServer, McpServerStatus};
use mooring_plan::observed::{Claim, IngressClass, Reference};
use mooring_plan::{Settings, claims, names, references};

use crate::apply::memory::{Memory, is_older};
use crate::key::{ChildKey, Kind, ServerKey};
use crate::observe::door::DoorBook;
use crate::observe::secrets::SecretBook;
use crate::watch::view::{DeploymentView, Meta, PodView, ReadServer};

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
    pub deployment: Option<DeploymentDetail>,
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

/// A pod as its watch showed it.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Metadata.
    pub meta: Meta,
    /// Containers and status.
    pub view: PodView,
}

/// What is known of an object that a spec refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// Nothing yet: it has to be asked for.
    #[default]
    Unknown,
    /// It does not exist.
    Absent,
    /// It exists.
    Present,
}

#[derive(Debug, Default)]
struct Tracked {
    known: Known,
    resource_version: String,
    by: BTreeSet<ServerKey>,
}

/// The status that we wrote last.
#[derive(Clone, Debug)]
struct Published {
    uid: String,
    status: McpServerStatus,
    /// Absent while the write is under way.
    resource_version: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    servers: BTreeMap<ServerKey, Arc<ReadServer>>,
    claims: HashMap<ServerKey, Vec<Claim>>,
    claimants: HashMap<String, BTreeSet<ServerKey>>,
    children: BTreeMap<ChildKey, Arc<Child>>,
    pods: BTreeMap<ServerKey, BTreeMap<String, Arc<Pod>>>,
    tracked: BTreeMap<(String, Reference), Tracked>,
    classes: BTreeMap<String, IngressClass>,
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
    pub fn put_server(&self, key: &ServerKey, server: ReadServer) -> Vec<Wake> {
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
        } else if state.status_was_overwritten(key, &server.server) {
            wakes.push((key.clone(), Cause::Other));
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

    // Status

    /// The status that a new one is compared with: what we wrote last, unless somebody wrote another one since.
    pub fn current_status(&self, key: &ServerKey, server: &McpServer) -> McpServerStatus {
        let state = self.read();
        match state.published.get(key) {
            Some(published) if !published.was_overwritten(server) => published.status.clone(),
            _ => server.status.clone().unwrap_or_default(),
        }
    }

    /// A status is about to be written.
    pub fn publishing(&self, key: &ServerKey, server: &McpServer, status: &McpServerStatus) {
        let uid = server.metadata.uid.clone().unwrap_or_default();
        let published = Published { uid, status: status.clone(), resource_version: None };
        self.write().published.insert(key.clone(), published);
    }

    /// A status was written; `None` where it was not.
    pub fn published(&self, key: &ServerKey, resource_version: Option<String>) {
        let mut state = self.write();
        match resource_version {
            Some(resource_version) => {
                if let Some(published) = state.published.get_mut(key) {
                    published.resource_version = Some(resource_version);
                }
            }
            None => {
                state.published.remove(key);
            }
        }
    }

    // Children

    /// A child as its watch showed it.
    pub fn child(&self, key: &ChildKey) -> Option<Arc<Child>> {
        self.read().children.get(key).cloned()
    }

    /// The Secrets of a namespace whose names begin with `prefix`.
    pub fn secrets_with_prefix(&self, namespace: &str, prefix: &str) -> Vec<Meta> {
        let from = ChildKey { kind: Kind::Secret, namespace: namespace.to_owned(), name: prefix.to_owned() };
        let belongs =
            |key: &ChildKey| key.kind == Kind::Secret && key.namespace == namespace && key.name.starts_with(prefix);
        let state = self.read();
        state.children.range(from..).take_while(|(key, _)| belongs(key)).map(|(_, child)| child.meta.clone()).collect()
    }

    /// A child was seen.
    pub fn put_child(&self, key: ChildKey, child: Child) -> Vec<Wake> {
        let Some(server) = server_of(&child.meta) else { return self.remove_child(&key, None) };
        let mut state = self.write();
        let before = state.children.get(&key);
        let same_detail = before.is_some_and(|before| {
            before.deployment == child.deployment
                && before.addresses == child.addresses
                && before.meta.labels == child.meta.labels
                && before.meta.annotations == child.meta.annotations
        });
        let detailed = child.deployment.is_some() || !child.addresses.is_empty();
        let known = self.memory.holds(&server, &key, &child.meta)
            || (key.kind == Kind::Secret
                && self.secrets.holds(&key.namespace, &key.name, &child.meta.resource_version));
        let unchanged = known && (same_detail || (before.is_none() && !detailed));
        let cause = if key.kind == Kind::Secret { Cause::Keys } else { Cause::Other };
        state.children.insert(key, Arc::new(child));
        if unchanged { Vec::new() } else { vec![(server, cause)] }
    }

    /// A child is gone; `uid` tells which, where it is known.
    pub fn remove_child(&self, key: &ChildKey, uid: Option<&str>) -> Vec<Wake> {
        let mut state = self.write();
        let Some(child) = state.children.get(key) else { return Vec::new() };
        if uid.is_some_and(|uid| uid != child.meta.uid) {
            return Vec::new();
        }
        let server = server_of(&child.meta);
        state.children.remove(key);
        let Some(server) = server else { return Vec::new() };
        self.memory.forget(&server, key);
        if key.kind == Kind::Secret {
            self.secrets.forget(&key.namespace, &key.name);
            return vec![(server, Cause::Keys)];
        }
        vec![(server, Cause::Other)]
    }

    /// A complete list of one kind was seen, in one namespace or in all: what is not in it is gone.
    pub fn retain_children(&self, kind: Kind, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        let is_gone = |key: &ChildKey| {
            key.kind == kind
                && namespace.is_none_or(|namespace| namespace == key.namespace)
                && !seen.contains(&(key.namespace.clone(), key.name.clone()))
        };
        let gone: Vec<ChildKey> = self.read().children.keys().filter(|key| is_gone(key)).cloned().collect();
        let mut wakes: Vec<Wake> = gone.iter().flat_map(|key| self.remove_child(key, None)).collect();
        // What was made and deleted between two lists was never in the store.
        wakes.extend(self.memory.forget_where(is_gone).into_iter().map(|server| (server, Cause::Other)));
        if kind == Kind::Secret {
            self.secrets.retain(|in_namespace, name| {
                namespace.is_some_and(|namespace| namespace != in_namespace)
                    || seen.contains(&(in_namespace.to_owned(), name.to_owned()))
            });
        }
        wakes
    }

    /// Every Deployment of a server, with the server.
    pub fn deployments(&self) -> Vec<(ServerKey, Arc<Child>)> {
        let state = self.read();
        let deployments = state.children.iter().filter(|(key, _)| key.kind == Kind::Deployment);
        deployments.filter_map(|(_, child)| Some((server_of(&child.meta)?, Arc::clone(child)))).collect()
    }

    // Pods

    /// The pods of a server, by name.
    pub fn pods(&self, key: &ServerKey) -> BTreeMap<String, Arc<Pod>> {
        self.read().pods.get(key).cloned().unwrap_or_default()
    }

    /// Whether a server has this very pod.
    pub fn has_pod(&self, key: &ServerKey, uid: &str) -> bool {
        self.read().pods.get(key).is_some_and(|pods| pods.values().any(|pod| pod.meta.uid == uid))
    }

    /// A pod was seen.
    pub fn put_pod(&self, pod: Pod) -> Vec<Wake> {
        let Some(server) = instance_of(&pod.meta) else { return Vec::new() };
        let mut state = self.write();
        let pods = state.pods.entry(server.clone()).or_default();
        let unchanged = pods.get(&pod.meta.name).is_some_and(|before| {
            before.meta.uid == pod.meta.uid
                && before.meta.deleting == pod.meta.deleting
                && before.view.spec == pod.view.spec
                && before.view.status == pod.view.status
        });
        pods.insert(pod.meta.name.clone(), Arc::new(pod));
        if unchanged { Vec::new() } else { vec![(server, Cause::Other)] }
    }

    /// A pod is gone.
    pub fn remove_pod(&self, meta: &Meta) -> Vec<Wake> {
        let Some(server) = instance_of(meta) else { return Vec::new() };
        let mut state = self.write();
        let Some(pods) = state.pods.get_mut(&server) else { return Vec::new() };
        if pods.get(&meta.name).is_some_and(|pod| pod.meta.uid == meta.uid) {
            pods.remove(&meta.name);
        }
        self.doors.forget(&meta.uid);
        if pods.is_empty() {
            state.pods.remove(&server);
        }
        vec![(server, Cause::Other)]
    }

    /// A complete list of pods was seen.
    pub fn retain_pods(&self, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        let in_scope = |key: &ServerKey| namespace.is_none_or(|namespace| namespace == key.namespace);
        let mut wakes = Vec::new();
        self.write().pods.retain(|server, pods| {
            if in_scope(server) {
                let before = pods.len();
                pods.retain(|name, pod| {
                    let is_seen = seen.contains(&(server.namespace.clone(), name.clone()));
                    if !is_seen {
                        self.doors.forget(&pod.meta.uid);
                    }
                    is_seen
                });
                if pods.len() < before {
                    wakes.push((server.clone(), Cause::Other));
                }
            }
            !pods.is_empty()
        });
        wakes
    }

    // References

    /// What is known of the objects that a server refers to.
    pub fn references(&self, key: &ServerKey, of: &BTreeSet<Reference>) -> BTreeMap<Reference, Known> {
        let state = self.read();
        let known = |reference: &Reference| {
            state
                .tracked
                .get(&(key.namespace.clone(), reference.clone()))
                .map_or(Known::Unknown, |tracked| tracked.known)
        };
        of.iter().map(|reference| (reference.clone(), known(reference))).collect()
    }

    /// Whether a spec refers to the object.
    pub fn is_tracked(&self, namespace: &str, reference: &Reference) -> bool {
        self.read().tracked.contains_key(&(namespace.to_owned(), reference.clone()))
    }

    /// The resourceVersion of a tracked object, for telling whether a copy of it is still good.
    pub fn reference_version(&self, namespace: &str, reference: &Reference) -> Option<String> {
        let state = self.read();
        let tracked = state.tracked.get(&(namespace.to_owned(), reference.clone()))?;
        (tracked.known == Known::Present).then(|| tracked.resource_version.clone())
    }

    /// An object was asked for directly. What a watch said meanwhile stands.
    pub fn learn(&self, namespace: &str, reference: &Reference, resource_version: Option<String>) {
        if let Some(tracked) = self.write().tracked.get_mut(&(namespace.to_owned(), reference.clone()))
            && tracked.known == Known::Unknown
        {
            tracked.known = if resource_version.is_some() { Known::Present } else { Known::Absent };
            tracked.resource_version = resource_version.unwrap_or_default();
        }
    }

    /// An object that some spec may refer to was seen, or is gone (`None`).
    pub fn put_reference(&self, namespace: &str, reference: Reference, resource_version: Option<&str>) -> Vec<Wake> {
        let is_secret = matches!(reference, Reference::Secret(_));
        let mut state = self.write();
        let Some(tracked) = state.tracked.get_mut(&(namespace.to_owned(), reference)) else { return Vec::new() };
        let known = if resource_version.is_some() { Known::Present } else { Known::Absent };
        let resource_version = resource_version.unwrap_or_default();
        let appeared = tracked.known != known;
        // Only Secrets are read; of everything else, existence is all that matters.
        let changed = appeared || (is_secret && tracked.resource_version != resource_version);
        tracked.known = known;
        resource_version.clone_into(&mut tracked.resource_version);
        if !changed {
            return Vec::new();
        }
        let cause = if is_secret { Cause::Keys } else { Cause::Other };
        tracked.by.iter().map(|server| (server.clone(), cause)).collect()
    }

    /// A complete list of one kind was seen: what is not in it has to be asked for again, because an object that was
    /// tracked only while the list was under way may have been passed over.
    pub fn retain_references(
        &self,
        of_kind: impl Fn(&Reference) -> Option<&str>,
        namespace: Option<&str>,
        seen: &HashSet<(String, String)>,
    ) -> Vec<Wake> {
        let mut wakes = Vec::new();
        for ((in_namespace, reference), tracked) in &mut self.write().tracked {
            let Some(name) = of_kind(reference) else { continue };
            let in_scope = namespace.is_none_or(|namespace| namespace == in_namespace);
            if in_scope && tracked.known == Known::Present && !seen.contains(&(in_namespace.clone(), name.to_owned())) {
                tracked.known = Known::Unknown;
                wakes.extend(tracked.by.iter().map(|server| (server.clone(), Cause::Other)));
            }
        }
        wakes
    }

    // IngressClasses

    /// The IngressClasses, by name.
    pub fn ingress_classes(&self) -> BTreeMap<String, IngressClass> {
        self.read().classes.clone()
    }

    /// An IngressClass was seen, or is gone (`None`).
    pub fn put_ingress_class(&self, name: &str, class: Option<IngressClass>) -> Vec<Wake> {
        let mut state = self.write();
        if state.classes.get(name) == class.as_ref() {
            return Vec::new();
        }
        match class {
            Some(class) => state.classes.insert(name.to_owned(), class),
            None => state.classes.remove(name),
        };
        let asks = |read: &Arc<ReadServer>| read.server.spec.ingress.is_some();
        state.servers.iter().filter(|(_, read)| asks(read)).map(|(key, _)| (key.clone(), Cause::Other)).collect()
    }

    /// A complete list of IngressClasses was seen.
    pub fn retain_ingress_classes(&self, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        let gone: Vec<String> = self
            .read()
            .classes
            .keys()
            .filter(|name| !seen.contains(&(String::new(), (*name).clone())))
            .cloned()
            .collect();
        gone.iter().flat_map(|name| self.put_ingress_class(name, None)).collect()
    }
}

impl Published {
    /// Whether the stored status is newer than ours, and another one.
    fn was_overwritten(&self, stored: &McpServer) -> bool {
        let meta = &stored.metadata;
        if meta.uid.as_deref() != Some(self.uid.as_str()) {
            return true;
        }
        let Some(written) = &self.resource_version else { return false };
        stored.status.as_ref() != Some(&self.status)
            && !is_older(meta.resource_version.as_deref().unwrap_or_default(), written)
    }
}

impl State {
    fn status_was_overwritten(&self, key: &ServerKey, stored: &McpServer) -> bool {
        self.published.get(key).is_some_and(|published| published.was_overwritten(stored))
    }

    /// A server refers to these objects, and to no others any more.
    fn track(&mut self, key: &ServerKey, references: &BTreeSet<Reference>) {
        for reference in references {
            self.tracked.entry((key.namespace.clone(), reference.clone())).or_default().by.insert(key.clone());
        }
        self.tracked.retain(|(namespace, reference), tracked| {
            if *namespace == key.namespace && !references.contains(reference) {
                tracked.by.remove(key);
            }
            !tracked.by.is_empty()
        });
    }

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
