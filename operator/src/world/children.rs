//! The children of servers and their pods, as their watches showed them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use mooring_plan::names;

use super::{Cause, Child, Pod, State, Wake, World, instance_of, server_of};
use crate::key::{ChildKey, Kind, ServerKey};
use crate::watch::view::{Meta, PodView};

impl World {
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
    pub fn put_child(&self, key: ChildKey, mut child: Child) -> Vec<Wake> {
        let Some(server) = server_of(&child.meta) else { return self.remove_child(&key, None) };
        let mut state = self.write();
        if let Some(sibling) = state.sibling(&server) {
            child.meta.share_with(&sibling.meta);
        }
        let before = state.children.get(&key);
        let same_detail = before.is_some_and(|before| {
            before.deployment == child.deployment
                && before.inactive_autoscaler == child.inactive_autoscaler
                && before.addresses == child.addresses
                && before.meta.labels == child.meta.labels
                && before.meta.annotations == child.meta.annotations
        });
        let detailed = child.deployment.is_some() || child.inactive_autoscaler.is_some() || !child.addresses.is_empty();
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
        let is_gone = |of_kind: Kind, in_namespace: &str, name: &str| {
            of_kind == kind
                && namespace.is_none_or(|namespace| namespace == in_namespace)
                && !seen.contains(&(in_namespace.to_owned(), name.to_owned()))
        };
        let is_gone_key = |key: &&ChildKey| is_gone(key.kind, &key.namespace, &key.name);
        let gone: Vec<ChildKey> = self.read().children.keys().filter(is_gone_key).cloned().collect();
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
        self.read().pods.get(key).is_some_and(|pods| pods.values().any(|pod| pod.uid == uid))
    }

    /// A pod was seen.
    pub fn put_pod(&self, meta: Meta, view: PodView) -> Vec<Wake> {
        let Some(server) = instance_of(&meta) else { return Vec::new() };
        let mut state = self.write();
        let pods = state.pods.entry(server.clone()).or_default();
        let (name, pod) = (meta.name.clone(), Pod::of(meta, view));
        let unchanged = pods.get(&name).is_some_and(|before| {
            before.uid == pod.uid
                && before.deleting == pod.deleting
                && before.spec == pod.spec
                && before.status == pod.status
        });
        pods.insert(name, Arc::new(pod));
        if unchanged { Vec::new() } else { vec![(server, Cause::Other)] }
    }

    /// A pod is gone.
    pub fn remove_pod(&self, meta: &Meta) -> Vec<Wake> {
        let Some(server) = instance_of(meta) else { return Vec::new() };
        let mut state = self.write();
        let Some(pods) = state.pods.get_mut(&server) else { return Vec::new() };
        if pods.get(&meta.name).is_some_and(|pod| pod.uid == meta.uid) {
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
                        self.doors.forget(&pod.uid);
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
}

impl State {
    /// A child of the server that is known already: what it says of the server, all of them say.
    fn sibling(&self, server: &ServerKey) -> Option<&Child> {
        let ServerKey { namespace, name } = server;
        let names = [
            (Kind::Secret, names::session(name)), // made first
            (Kind::ConfigMap, names::config(name)),
            (Kind::Service, name.clone()),
        ];
        let child = |(kind, name)| self.children.get(&ChildKey { kind, namespace: namespace.clone(), name });
        names.into_iter().find_map(child).map(AsRef::as_ref)
    }
}
