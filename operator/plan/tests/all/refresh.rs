//! Which pods are touched.

use std::collections::BTreeMap;

use mooring_contract::DoorStatus;
use mooring_plan::observed::{Door, ObservedPod};
use mooring_plan::outcome::Revisions;
use mooring_plan::refresh::{agrees, pause, stored, touches};

use crate::world::{fixture, world};

fn revisions() -> Revisions {
    Revisions {
        config: "c1".to_owned(),
        keys: Some("k1".to_owned()),
        key_secrets: BTreeMap::from([("vault".to_owned(), "v1".to_owned())]),
        ..Revisions::default()
    }
}

fn door(config: &str, keys: &str, vault: &str) -> DoorStatus {
    DoorStatus {
        config_revision: config.to_owned(),
        keys_revision: keys.to_owned(),
        key_secret_revisions: BTreeMap::from([("vault".to_owned(), vault.to_owned())]),
        ..DoorStatus::default()
    }
}

fn pod(door: Door) -> ObservedPod {
    ObservedPod { uid: "uid".to_owned(), door, ..ObservedPod::default() }
}

fn answered(door: DoorStatus) -> ObservedPod {
    pod(Door::Answered(Box::new(door)))
}

#[test]
fn only_pods_that_say_so_are_touched() {
    let pods = vec![
        ("config", answered(door("c0", "k1", "v1"))),
        ("keys", answered(door("c1", "k0", "v1"))),
        ("none", answered(DoorStatus { key_secret_revisions: BTreeMap::new(), ..door("c1", "k1", "v1") })),
        ("right", answered(door("c1", "k1", "v1"))),
        ("secret", answered(door("c1", "k1", "v0"))),
        ("silent", pod(Door::Unreachable("timed out".to_owned()))),
        ("stopping", ObservedPod { terminating: true, ..answered(door("c0", "k0", "v0")) }),
        ("stopping and foreign", ObservedPod { terminating: true, ..pod(Door::Unauthorized) }),
        ("token", pod(Door::Unauthorized)),
        ("unasked", pod(Door::Unasked)),
    ];
    let pods = pods.into_iter().map(|(name, pod)| (name.to_owned(), pod)).collect();
    let touched: Vec<_> = touches(&revisions(), &pods).into_iter().map(|touch| touch.pod).collect();
    assert_eq!(touched, ["config", "keys", "none", "secret", "token"]);
}

/// Patching the same value again would change nothing, and the kubelet would not look.
#[test]
fn every_touch_writes_another_value() {
    let mut pods = BTreeMap::from([("a".to_owned(), answered(door("c0", "k1", "v1")))]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let value = touches(&revisions(), &pods).remove(0).value;
        assert!(!seen.contains(&value), "{value}");
        pods.get_mut("a").unwrap().refresh = Some(value.clone());
        seen.push(value);
    }
    let other = Revisions { config: "c2".to_owned(), ..revisions() };
    assert!(!seen.contains(&touches(&other, &pods).remove(0).value));
}

/// A config that was read and refused does not become better by reading it again; unknown keys cannot be compared.
#[test]
fn what_cannot_come_is_not_waited_for() {
    let refused = DoorStatus { config_error: Some("too new".to_owned()), ..door("c0", "k1", "v1") };
    assert!(agrees(&revisions(), &refused));
    assert!(agrees(&Revisions { keys: None, ..revisions() }, &door("c1", "k0", "v1")));
    assert!(!agrees(&revisions(), &door("c1", "k0", "v1")));
}

#[test]
fn pauses_grow() {
    let pauses: Vec<_> = (0..20).map(|looks| pause(looks).as_millis()).collect();
    assert_eq!(pauses[..3], [200, 1000, 5000]);
    assert!(pauses.is_sorted());
}

/// Whoever deletes a Secret of `auth.keySecrets` revokes its keys, although the spec is then rejected.
#[test]
fn a_deleted_key_secret_is_out_of_force_although_the_spec_is_rejected() {
    let server = fixture("keys-from-secrets");
    let mut observed = world(&server);
    let door_with = |revisions: &Revisions| DoorStatus {
        config_revision: "whatever".to_owned(),
        keys_revision: revisions.keys.clone().unwrap(),
        key_secret_revisions: revisions.key_secrets.clone(),
        ..DoorStatus::default()
    };
    let door = door_with(&stored(&server, &observed));
    assert!(agrees(&stored(&server, &observed), &door));
    observed.key_secrets.remove("from-vault");
    assert!(!agrees(&stored(&server, &observed), &door));
    assert!(agrees(&stored(&server, &observed), &door_with(&stored(&server, &observed))));
    // A Secret that the running config does not mention yet is not waited for.
    let mut older = door_with(&stored(&server, &observed));
    older.key_secret_revisions.remove("from-vault");
    assert!(agrees(&stored(&server, &observed), &older));
}
