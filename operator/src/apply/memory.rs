//! What is remembered of our own last apply of each child: with it, a child that is as we left it is not applied again.
//!
//! A store may lag behind our writes. ResourceVersions can be compared since Kubernetes 1.35 (KEP-5504), and every older
//! release numbers them in order too: what is older than our write is not a change by somebody else.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::key::{ChildKey, ServerKey};
use crate::watch::view::Meta;

/// Our last apply of one child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Digest of what was sent.
    pub digest: u64,
    /// UID of the object that it became.
    pub uid: String,
    /// `metadata.generation` afterwards.
    pub generation: Option<i64>,
    /// `metadata.resourceVersion` afterwards.
    pub resource_version: String,
    /// The McpServer that it was done for.
    pub server_uid: String,
}

/// Whether the resourceVersion `seen` is older than `written`.
pub fn is_older(seen: &str, written: &str) -> bool {
    matches!((seen.parse::<u64>(), written.parse::<u64>()), (Ok(seen), Ok(written)) if seen < written)
}

impl Remembered {
    /// Whether the child `seen` is as our apply left it, or a view from before that apply.
    pub fn holds(&self, key: &ChildKey, seen: &Meta) -> bool {
        if is_older(&seen.resource_version, &self.resource_version) {
            return true;
        }
        self.uid == seen.uid
            && if key.kind.has_generation() {
                self.generation == seen.generation
            } else {
                self.resource_version == seen.resource_version
            }
    }
}

/// The memory of all children of all servers.
#[derive(Debug, Default)]
pub struct Memory {
    children: Mutex<HashMap<ServerKey, HashMap<ChildKey, Remembered>>>,
}

impl Memory {
    /// What is remembered of a child.
    pub fn get(&self, server: &ServerKey, child: &ChildKey) -> Option<Remembered> {
        self.lock().get(server)?.get(child).cloned()
    }

    /// Whether a child is as we left it.
    pub fn holds(&self, server: &ServerKey, child: &ChildKey, seen: &Meta) -> bool {
        self.lock().get(server).and_then(|children| children.get(child)).is_some_and(|last| last.holds(child, seen))
    }

    /// A child was applied.
    pub fn remember(&self, server: &ServerKey, child: ChildKey, last: Remembered) {
        self.lock().entry(server.clone()).or_default().insert(child, last);
    }

    /// A child is gone, or of no interest any more.
    pub fn forget(&self, server: &ServerKey, child: &ChildKey) {
        if let Some(children) = self.lock().get_mut(server) {
            children.remove(child);
        }
    }

    /// A server is gone.
    pub fn forget_server(&self, server: &ServerKey) {
        self.lock().remove(server);
    }

    /// Forgets the children that `is_gone` names, and tells whose they were.
    pub fn forget_where(&self, is_gone: impl Fn(&ChildKey) -> bool) -> Vec<ServerKey> {
        let mut bereft = Vec::new();
        for (server, children) in self.lock().iter_mut() {
            let before = children.len();
            children.retain(|child, _| !is_gone(child));
            if children.len() < before {
                bereft.push(server.clone());
            }
        }
        bereft
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ServerKey, HashMap<ChildKey, Remembered>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Kind;

    fn child(kind: Kind) -> ChildKey {
        ChildKey { kind, namespace: "demo".into(), name: "weather".into() }
    }

    fn remembered() -> Remembered {
        Remembered {
            digest: 1,
            uid: "u".into(),
            generation: Some(2),
            resource_version: "100".into(),
            server_uid: "s".into(),
        }
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
        assert!(remembered().holds(&child(Kind::Deployment), &later));
        assert!(!remembered().holds(&child(Kind::Service), &later));
        assert!(remembered().holds(&child(Kind::Service), &seen("u", 2, "100")));
    }

    #[test]
    fn another_generation_or_another_object_is_a_change() {
        assert!(!remembered().holds(&child(Kind::Deployment), &seen("u", 3, "105")));
        assert!(!remembered().holds(&child(Kind::Deployment), &seen("v", 2, "105")));
    }

    #[test]
    fn what_a_lagging_watch_shows_is_no_change() {
        assert!(remembered().holds(&child(Kind::Deployment), &seen("u", 1, "99")));
        assert!(remembered().holds(&child(Kind::Secret), &seen("earlier", 1, "98")));
        assert!(!remembered().holds(&child(Kind::Secret), &seen("u", 1, "opaque")));
    }

    #[test]
    fn whoever_lost_a_child_is_told() {
        let memory = Memory::default();
        let server = ServerKey::new("demo", "weather");
        memory.remember(&server, child(Kind::Service), remembered());
        assert_eq!(memory.forget_where(|key| key.kind == Kind::Secret), []);
        assert_eq!(memory.forget_where(|key| key.kind == Kind::Service), std::slice::from_ref(&server));
        assert_eq!(memory.get(&server, &child(Kind::Service)), None);
    }
}
