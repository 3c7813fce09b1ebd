//! The status that we wrote last, and whether somebody wrote another one since.

use mooring_api::{McpServer, McpServerStatus};

use super::World;
use crate::apply::memory::is_older;
use crate::key::ServerKey;
use crate::watch::view::ReadServer;

/// The status that we wrote last.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    uid: String,
    status: McpServerStatus,
    resource_version: String,
    /// What is being written.
    under_way: Option<Box<McpServerStatus>>,
}

impl World {
    /// The status that a new one is compared with: what we wrote last, unless somebody wrote another one since.
    pub fn current_status(&self, key: &ServerKey, read: &ReadServer) -> McpServerStatus {
        match self.read().published.get(key) {
            Some(published) if !published.was_overwritten(read) => published.status.clone(),
            _ => read.server.status.clone().unwrap_or_default(),
        }
    }

    /// A status is about to be written.
    pub fn publishing(&self, key: &ServerKey, server: &McpServer, status: McpServerStatus) {
        let mut state = self.write();
        let published = state.published.entry(key.clone()).or_default();
        let uid = server.metadata.uid.as_deref().unwrap_or_default();
        if published.uid != uid {
            *published = Published { uid: uid.to_owned(), ..Published::default() };
        }
        published.under_way = Some(Box::new(status));
    }

    /// A status was written, and this is the server's new resourceVersion; `None` where it was not.
    pub fn published(&self, key: &ServerKey, resource_version: Option<String>) {
        let mut state = self.write();
        let Some(published) = state.published.get_mut(key) else { return };
        let written = published.under_way.take().zip(resource_version);
        match written {
            Some((status, resource_version)) => {
                published.status = *status;
                published.resource_version = resource_version;
            }
            // Whether or not it arrived, what the watch shows from now on is what counts.
            None if published.resource_version.is_empty() => {
                state.published.remove(key);
            }
            None => {}
        }
    }
}

impl Published {
    /// Whether the stored status is newer than ours, and another one.
    pub(super) fn was_overwritten(&self, read: &ReadServer) -> bool {
        let meta = &read.server.metadata;
        if meta.uid.as_deref() != Some(self.uid.as_str()) {
            return true;
        }
        self.under_way.is_none()
            && !self.is_of(read)
            && !is_older(meta.resource_version.as_deref().unwrap_or_default(), &self.resource_version)
    }

    /// Whether the stored status is the one that we wrote.
    pub(super) fn is_of(&self, read: &ReadServer) -> bool {
        read.status_is_ours || (self.under_way.is_none() && read.server.status.as_ref() == Some(&self.status))
    }
}

#[cfg(test)]
mod tests {
    use mooring_plan::Settings;
    use serde_json::json;

    use super::*;
    use crate::watch::view::ServerView;
    use crate::world::Cause;

    fn read(resource_version: &str, replicas: Option<i32>) -> ReadServer {
        let view: ServerView = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": resource_version},
            "spec": {},
            "status": replicas.map(|replicas| json!({"replicas": replicas})),
        }))
        .unwrap();
        view.into()
    }

    fn status(replicas: i32) -> McpServerStatus {
        McpServerStatus { replicas: Some(replicas), ..McpServerStatus::default() }
    }

    fn world() -> (World, ServerKey) {
        let (world, key) = (World::new(Settings::default()), ServerKey::new("n", "a"));
        world.put_server(&key, read("1", None));
        (world, key)
    }

    fn current(world: &World, key: &ServerKey) -> Option<i32> {
        world.current_status(key, &world.server(key).unwrap()).replicas
    }

    #[test]
    fn ones_own_write_is_no_news_whether_it_is_seen_before_or_after_the_answer() {
        let (world, key) = world();
        world.publishing(&key, &read("1", None).server, status(1));
        assert_eq!(world.put_server(&key, read("5", Some(1))), []);
        world.published(&key, Some("5".into()));
        assert_eq!(current(&world, &key), Some(1));
        world.publishing(&key, &read("5", None).server, status(2));
        world.published(&key, Some("7".into()));
        assert_eq!(world.put_server(&key, read("5", Some(1))), [], "a view from before the write");
        assert_eq!(current(&world, &key), Some(2));
        assert_eq!(world.put_server(&key, read("7", Some(2))), []);
        assert_eq!(world.server(&key).unwrap().server.status, None, "it is kept once");
        assert_eq!(current(&world, &key), Some(2));
    }

    #[test]
    fn another_status_or_none_is_news_and_what_is_compared_with() {
        let (world, key) = world();
        world.publishing(&key, &read("1", None).server, status(1));
        world.published(&key, Some("5".into()));
        assert_eq!(world.put_server(&key, read("6", Some(9))), [(key.clone(), Cause::Other)]);
        assert_eq!(current(&world, &key), Some(9));
        assert_eq!(world.put_server(&key, read("8", None)), [(key.clone(), Cause::Other)]);
        assert_eq!(current(&world, &key), None);
    }

    #[test]
    fn a_write_that_failed_leaves_what_was_written_before() {
        let (world, key) = world();
        world.publishing(&key, &read("1", None).server, status(1));
        world.published(&key, Some("5".into()));
        world.put_server(&key, read("5", Some(1)));
        world.publishing(&key, &read("5", None).server, status(2));
        world.published(&key, None);
        assert_eq!(current(&world, &key), Some(1));
    }
}
