//! Whose turn it is to move to a new front-door image: a few servers at a time, each until its Deployment is fully
//! rolled or has given up. Servers whose spec changed need no turn.
//!
//! Who moves is read from the Deployments themselves, so a restart of the operator does not start the count anew.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use mooring_plan::settings::Upgrade;

use crate::key::ServerKey;
use crate::world::{Child, World};

/// Gives turns.
#[derive(Debug)]
pub struct Turns {
    at_a_time: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    given: BTreeSet<ServerKey>,
    waiting: BTreeSet<ServerKey>,
}

impl Turns {
    /// Turns for `at_a_time` servers.
    pub fn new(at_a_time: usize) -> Self {
        Self { at_a_time, state: Mutex::default() }
    }

    /// Whether the server may move now. One that may not is remembered for a later turn.
    pub fn ask(&self, key: &ServerKey, deployment: &Child, world: &World) -> bool {
        let image = &world.settings().front_door_image;
        if world.settings().upgrade == Upgrade::Manual || image_of(deployment) == Some(image.as_str()) {
            let mut state = self.lock();
            state.waiting.remove(key);
            return false;
        }
        let mut state = self.lock();
        if state.given.contains(key) {
            return true;
        }
        // Given turns that do not show yet, and Deployments that show that they move.
        let mut moving = state.given.clone();
        let all = world.deployments();
        moving.extend(all.iter().filter(|(_, child)| is_moving(child, image)).map(|(server, _)| server.clone()));
        if moving.len() < self.at_a_time {
            state.waiting.remove(key);
            state.given.insert(key.clone());
            return true;
        }
        state.waiting.insert(key.clone());
        false
    }

    /// A Deployment changed, or its server is gone (`None`): returns the servers whose turn may have come.
    pub fn settle(&self, key: &ServerKey, deployment: Option<&Child>, image: &str) -> Vec<ServerKey> {
        let mut state = self.lock();
        if let Some(child) = deployment {
            if image_of(child) != Some(image) || is_moving(child, image) {
                return Vec::new();
            }
        } else {
            state.waiting.remove(key);
        }
        state.given.remove(key);
        state.waiting.iter().take(self.at_a_time).cloned().collect()
    }

    /// A pass over the server ended with its children not as planned: its spec is rejected, the API server refused them, or
    /// it is on its way out. It does not move now, so it neither keeps a turn nor stands in line; the pass that heals it
    /// asks again. Returns the servers whose turn may have come.
    pub fn pass_over(&self, key: &ServerKey) -> Vec<ServerKey> {
        let mut state = self.lock();
        let held = state.given.remove(key);
        if !(state.waiting.remove(key) || held) {
            return Vec::new();
        }
        state.waiting.iter().take(self.at_a_time).cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn image_of(child: &Child) -> Option<&str> {
    child.deployment.as_ref()?.front_door_image.as_deref()
}

/// Whether a Deployment has the new image and is on its way to it. One that its controller has given up on moves no more.
fn is_moving(child: &Child, image: &str) -> bool {
    let Some(detail) = child.deployment.as_ref().filter(|_| image_of(child) == Some(image)) else { return false };
    let status = &detail.status;
    let wanted = detail.replicas.unwrap_or(1);
    let gave_up = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Progressing" && condition.status == "False");
    let rolled = status.observed_generation >= child.meta.generation
        && status.updated_replicas.unwrap_or_default() >= wanted
        && status.available_replicas.unwrap_or_default() >= wanted
        && status.replicas.unwrap_or_default() <= wanted;
    !gave_up && !rolled
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus};
    use mooring_plan::Settings;

    use super::*;
    use crate::key::{ChildKey, Kind};
    use crate::watch::view::{Controller, Meta};
    use crate::world::DeploymentDetail;

    fn deployment(name: &str, image: &str, available: i32) -> Child {
        let meta = Meta {
            namespace: "demo".into(),
            name: name.into(),
            generation: Some(1),
            labels: std::sync::Arc::new(mooring_plan::names::labels(name)),
            controller: Some(std::sync::Arc::new(Controller {
                kind: "McpServer".into(),
                name: name.into(),
                uid: "u".into(),
            })),
            ..Meta::default()
        };
        let status = DeploymentStatus {
            observed_generation: Some(1),
            replicas: Some(1),
            updated_replicas: Some(1),
            available_replicas: Some(available),
            ..DeploymentStatus::default()
        };
        let detail = DeploymentDetail { front_door_image: Some(image.into()), replicas: Some(1), status };
        Child { meta, deployment: Some(Box::new(detail)), ..Child::default() }
    }

    fn world(upgrade: Upgrade) -> World {
        let world = World::new(Settings { front_door_image: "new".into(), upgrade, ..Settings::default() });
        for name in ["a", "b", "c"] {
            show(&world, name, deployment(name, "old", 1));
        }
        world
    }

    fn show(world: &World, name: &str, child: Child) {
        let key = ChildKey { kind: Kind::Deployment, namespace: "demo".into(), name: name.into() };
        world.put_child(key, child);
    }

    fn ask(turns: &Turns, world: &World, name: &str) -> bool {
        let key = ChildKey { kind: Kind::Deployment, namespace: "demo".into(), name: name.into() };
        turns.ask(&ServerKey::new("demo", name), &world.child(&key).unwrap(), world)
    }

    #[test]
    fn one_moves_and_the_next_follows_when_it_is_rolled() {
        let (turns, world) = (Turns::new(1), world(Upgrade::Auto));
        assert!(ask(&turns, &world, "a"));
        assert!(ask(&turns, &world, "a"), "a turn is kept");
        assert!(!ask(&turns, &world, "b"));
        let a = ServerKey::new("demo", "a");
        show(&world, "a", deployment("a", "new", 0));
        assert_eq!(turns.settle(&a, Some(&deployment("a", "new", 0)), "new"), []);
        show(&world, "a", deployment("a", "new", 1));
        assert_eq!(turns.settle(&a, Some(&deployment("a", "new", 1)), "new"), [ServerKey::new("demo", "b")]);
        assert!(ask(&turns, &world, "b"));
        assert!(!ask(&turns, &world, "a"), "who has the image needs no turn");
    }

    #[test]
    fn a_move_that_was_begun_before_a_restart_counts() {
        let world = world(Upgrade::Auto);
        show(&world, "a", deployment("a", "new", 0));
        assert!(!ask(&Turns::new(1), &world, "b"));
        assert!(ask(&Turns::new(2), &world, "b"));
    }

    #[test]
    fn a_move_that_was_given_up_holds_nobody_up() {
        let world = world(Upgrade::Auto);
        let mut stuck = deployment("a", "new", 0);
        stuck.deployment.as_mut().unwrap().status.conditions = Some(vec![DeploymentCondition {
            type_: "Progressing".into(),
            status: "False".into(),
            ..DeploymentCondition::default()
        }]);
        show(&world, "a", stuck);
        assert!(ask(&Turns::new(1), &world, "b"));
    }

    #[test]
    fn a_server_that_is_gone_gives_its_turn_back() {
        let (turns, world) = (Turns::new(1), world(Upgrade::Auto));
        assert!(ask(&turns, &world, "a"));
        assert!(!ask(&turns, &world, "b"));
        assert_eq!(turns.settle(&ServerKey::new("demo", "a"), None, "new"), [ServerKey::new("demo", "b")]);
    }

    #[test]
    fn a_server_that_cannot_move_holds_nobody_up() {
        let (turns, world) = (Turns::new(1), world(Upgrade::Auto));
        assert!(ask(&turns, &world, "a"));
        assert!(!ask(&turns, &world, "b"));
        assert!(!ask(&turns, &world, "c"));
        let [a, b, c] = ["a", "b", "c"].map(|name| ServerKey::new("demo", name));
        assert_eq!(turns.pass_over(&a), std::slice::from_ref(&b), "a is rejected, and b follows");
        assert_eq!(turns.pass_over(&b), [c], "b is first in line and does not move either");
        assert_eq!(turns.pass_over(&b), [], "who is not in line changes nothing");
        assert!(ask(&turns, &world, "a"), "a is healed");
    }

    #[test]
    fn manual_gives_none() {
        assert!(!ask(&Turns::new(5), &world(Upgrade::Manual), "a"));
    }
}
