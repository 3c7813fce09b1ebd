//! What is remembered of our own last apply of each child: with it, a child that is as we left it is not applied again.
//!
//! A store may lag behind our writes. ResourceVersions can be compared since Kubernetes 1.35 (KEP-5504), and every older
//! release numbers them in order too: what is older than our write is not a change by somebody else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::key::{ChildKey, Kind, ServerKey};
use crate::watch::view::Meta;

/// Our last apply of one child. There are several for each server, and their texts never grow: each is as long as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Digest of what was sent.
    pub digest: u64,
    /// UID of the object that it became.
    pub uid: Box<str>,
    /// `metadata.generation` afterwards.
    pub generation: Option<i64>,
    /// `metadata.resourceVersion` afterwards.
    pub resource_version: Box<str>,
}

/// Whether the resourceVersion `seen` is older than `written`.
pub fn is_older(seen: &str, written: &str) -> bool {
    matches!((seen.parse::<u64>(), written.parse::<u64>()), (Ok(seen), Ok(written)) if seen < written)
}

impl Remembered {
    /// Whether the child `seen` is as our apply left it, or a view from before that apply.
    pub fn holds(&self, kind: Kind, seen: &Meta) -> bool {
        if is_older(&seen.resource_version, &self.resource_version) {
            return true;
        }
        *self.uid == *seen.uid
            && if kind.has_generation() {
                self.generation == seen.generation
            } else {
                *self.resource_version == *seen.resource_version
            }
    }
}

/// The memory of all children of all servers.
#[derive(Debug, Default)]
pub struct Memory {
    servers: Mutex<HashMap<ServerKey, OfServer>>,
}

/// What is remembered of one server's children. They are a handful, for which a list takes half the room of a map.
#[derive(Debug, Default)]
struct OfServer {
    /// UID of the McpServer that they were applied for.
    uid: Box<str>,
    children: Vec<OfChild>,
}

/// A child lies in its server's namespace, so that is not kept again.
#[derive(Debug)]
struct OfChild {
    kind: Kind,
    name: Box<str>,
    last: Remembered,
}

impl OfChild {
    fn is(&self, child: &ChildKey) -> bool {
        self.kind == child.kind && *self.name == *child.name
    }
}

impl OfServer {
    fn get(&self, child: &ChildKey) -> Option<&Remembered> {
        self.children.iter().find(|known| known.is(child)).map(|known| &known.last)
    }
}

impl Memory {
    /// What is remembered of a child that was applied for the McpServer with this UID.
    pub fn get(&self, server: &ServerKey, server_uid: Option<&str>, child: &ChildKey) -> Option<Remembered> {
        let servers = self.lock();
        let server = servers.get(server).filter(|server| Some(&*server.uid) == server_uid)?;
        server.get(child).cloned()
    }

    /// Whether a child is as we left it.
    pub fn holds(&self, server: &ServerKey, child: &ChildKey, seen: &Meta) -> bool {
        self.lock().get(server).and_then(|server| server.get(child)).is_some_and(|last| last.holds(child.kind, seen))
    }

    /// A child was applied for the McpServer with this UID. What was applied for an earlier one of the name is of no
    /// interest any more.
    pub fn remember(&self, server: &ServerKey, server_uid: &str, child: &ChildKey, last: Remembered) {
        let mut servers = self.lock();
        let server = servers.entry(server.clone()).or_default();
        if *server.uid != *server_uid {
            *server = OfServer { uid: server_uid.into(), children: Vec::new() };
        }
        match server.children.iter_mut().find(|known| known.is(child)) {
            Some(known) => known.last = last,
            None => server.children.push(OfChild { kind: child.kind, name: child.name.as_str().into(), last }),
        }
    }

    /// A child is gone, or of no interest any more.
    pub fn forget(&self, server: &ServerKey, child: &ChildKey) {
        if let Some(server) = self.lock().get_mut(server) {
            server.children.retain(|known| !known.is(child));
        }
    }

    /// A server is gone.
    pub fn forget_server(&self, server: &ServerKey) {
        self.lock().remove(server);
    }

    /// Forgets the children of which `is_gone` says so, by kind, namespace and name, and tells whose they were.
    pub fn forget_where(&self, is_gone: impl Fn(Kind, &str, &str) -> bool) -> Vec<ServerKey> {
        let mut bereft = Vec::new();
        for (key, server) in self.lock().iter_mut() {
            let before = server.children.len();
            server.children.retain(|child| !is_gone(child.kind, &key.namespace, &child.name));
            if server.children.len() < before {
                bereft.push(key.clone());
            }
        }
        bereft
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ServerKey, OfServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(kind: Kind) -> ChildKey {
        ChildKey { kind, namespace: "demo".into(), name: "weather".into() }
    }

    fn remembered() -> Remembered {
        Remembered { digest: 1, uid: "u".into(), generation: Some(2), resource_version: "100".into() }
    }

    fn seen(uid: &str, generation: i64, resource_version: &str) -> Meta {
        Meta {
            uid: uid.into(),
            generation: Some(generation),
            resource_version: resource_version.into(),
            ..Meta::default()
        }
    }

    #[test]
    fn a_status_change_leaves_a_deployment_as_it_was_and_moves_a_service() {
        let later = seen("u", 2, "105");
        assert!(remembered().holds(Kind::Deployment, &later));
        assert!(!remembered().holds(Kind::Service, &later));
        assert!(remembered().holds(Kind::Service, &seen("u", 2, "100")));
    }

    #[test]
    fn another_generation_or_another_object_is_a_change() {
        assert!(!remembered().holds(Kind::Deployment, &seen("u", 3, "105")));
        assert!(!remembered().holds(Kind::Deployment, &seen("v", 2, "105")));
    }

    #[test]
    fn what_a_lagging_watch_shows_is_no_change() {
        assert!(remembered().holds(Kind::Deployment, &seen("u", 1, "99")));
        assert!(remembered().holds(Kind::Secret, &seen("earlier", 1, "98")));
        assert!(!remembered().holds(Kind::Secret, &seen("u", 1, "opaque")));
    }

    #[test]
    fn whoever_lost_a_child_is_told() {
        let memory = Memory::default();
        let server = ServerKey::new("demo", "weather");
        memory.remember(&server, "s", &child(Kind::Service), remembered());
        assert_eq!(memory.forget_where(|kind, _, _| kind == Kind::Secret), []);
        assert_eq!(memory.forget_where(|_, namespace, _| namespace == "another"), []);
        let gone =
            memory.forget_where(|kind, namespace, name| (kind, namespace, name) == (Kind::Service, "demo", "weather"));
        assert_eq!(gone, std::slice::from_ref(&server));
        assert_eq!(memory.get(&server, Some("s"), &child(Kind::Service)), None);
    }

    #[test]
    fn what_was_done_for_an_earlier_server_of_the_name_counts_no_more() {
        let memory = Memory::default();
        let server = ServerKey::new("demo", "weather");
        memory.remember(&server, "s", &child(Kind::Service), remembered());
        memory.remember(&server, "s", &child(Kind::Deployment), remembered());
        assert_eq!(memory.get(&server, Some("s"), &child(Kind::Service)), Some(remembered()));
        assert_eq!(memory.get(&server, Some("t"), &child(Kind::Service)), None);
        assert_eq!(memory.get(&server, None, &child(Kind::Service)), None);
        let anew = Remembered { digest: 2, ..remembered() };
        memory.remember(&server, "t", &child(Kind::Deployment), remembered());
        memory.remember(&server, "t", &child(Kind::Deployment), anew.clone());
        assert_eq!(memory.get(&server, Some("t"), &child(Kind::Deployment)), Some(anew));
        assert_eq!(memory.get(&server, Some("t"), &child(Kind::Service)), None);
    }
}
