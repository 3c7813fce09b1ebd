//! The keys that seal sessions, from the first to the last step of a rotation, whatever the pods do meanwhile.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use mooring_api::{ConditionType, McpServer, McpServerStatus, Reason};
use mooring_contract::door_status::SessionKeyIds;
use mooring_contract::session_key::Slot;
use mooring_contract::{DoorStatus, SessionKey};
use mooring_plan::mint;
use mooring_plan::names::{ANNOTATION_ROTATE, ANNOTATION_SETTLED};
use mooring_plan::observed::{Door, Observed, ObservedPod, SessionSecret};
use mooring_plan::outcome::{KeyStep, Mint, Revisions};
use mooring_plan::plan::plan;
use mooring_plan::refresh::agrees;
use mooring_plan::status::next_change;
use serde_json::{Value, json};

use crate::statuses::{after, pods};
use crate::world::{fixture, session_key, settings, world};

struct Life {
    server: McpServer,
    observed: Observed,
    /// The Secret as it is stored.
    secret: Value,
    now: Timestamp,
    made: u8,
}

impl Life {
    fn new() -> Self {
        let server = fixture("http-minimal");
        let observed = world(&server);
        let secret = mint::session_secret(&server, "token", &session_key(1)).unwrap();
        let mut secret = serde_json::to_value(secret).unwrap();
        secret["metadata"]["uid"] = "u".into();
        secret["metadata"]["resourceVersion"] = "1".into();
        let mut life = Self { server, observed, secret, now: "2026-05-21T00:00:00Z".parse().unwrap(), made: 1 };
        life.look();
        life
    }

    fn look(&mut self) {
        let secret: Secret = serde_json::from_value(self.secret.clone()).unwrap();
        self.observed.session = Some(SessionSecret::from_secret(&secret));
    }

    /// The step that is due, taken.
    fn step(&mut self) -> Option<&'static str> {
        let planned = plan(&self.server, &self.observed, &settings(""), self.now).unwrap();
        let Some(Mint::SessionKeys { uid, resource_version, step }) = planned.mint.first() else { return None };
        self.made += 1;
        let made = SessionKey::from_entropy(&[self.made; 36], self.now);
        let seen = (uid.as_str(), resource_version.as_str());
        let patch = mint::session_keys_patch(&self.server, seen, step, &made, self.now).unwrap();
        assert_eq!((&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]), (&json!("u"), &json!("1")));
        for part in ["data", "annotations"] {
            let (change, of) = if part == "data" {
                (&patch["data"], &mut self.secret)
            } else {
                (&patch["metadata"]["annotations"], &mut self.secret["metadata"])
            };
            for (name, value) in change.as_object().unwrap() {
                of[part][name] = value.clone();
            }
            if let Some(map) = of[part].as_object_mut() {
                map.retain(|_, value| !value.is_null());
            }
        }
        self.look();
        Some(match step {
            KeyStep::First => "first",
            KeyStep::Prepare => "prepare",
            KeyStep::Advance { .. } => "advance",
            KeyStep::Settle => "settle",
            KeyStep::Retire => "retire",
        })
    }

    /// The slots, by the first byte of each key.
    fn slots(&self) -> String {
        let keys = &self.observed.session.as_ref().unwrap().keys;
        keys.iter().map(|(slot, key)| format!("{slot:?} {}", key.id_bytes()[0])).collect::<Vec<_>>().join(", ")
    }

    fn pass(&mut self, time: &str) {
        self.now = time.parse().unwrap();
    }

    fn ask(&mut self, value: &str) {
        self.server.metadata.annotations.get_or_insert_default().insert(ANNOTATION_ROTATE.into(), value.into());
    }

    /// Which front doors need no touch, the config apart.
    fn in_force(&self) -> Vec<bool> {
        let revisions = plan(&self.server, &self.observed, &settings(""), self.now).unwrap().revisions;
        let revisions = Revisions { config: String::new(), ..revisions };
        let doors = self.observed.pods.values().map(|pod| match &pod.door {
            Door::Answered(door) => agrees(&revisions, door),
            Door::Unasked | Door::Unauthorized | Door::Unreachable(_) => false,
        });
        doors.collect()
    }

    fn told(&self) -> String {
        let status = after(&McpServerStatus::default(), &self.server, &self.observed);
        let accepted = status.condition(ConditionType::Accepted).unwrap();
        if accepted.reason == Reason::SessionKeysWaiting.as_str() { accepted.message.clone() } else { String::new() }
    }
}

/// A running pod whose front door reports these keys.
fn with(next: Option<u8>, current: Option<u8>) -> ObservedPod {
    let id = |number: Option<u8>| number.map(|number| session_key(number).id());
    let session_keys = SessionKeyIds { next: id(next), current: id(current), previous: None };
    running(Door::Answered(Box::new(DoorStatus { session_keys, ready: true, ..DoorStatus::default() })))
}

fn running(door: Door) -> ObservedPod {
    in_phase("Running", door)
}

/// A pod that has a node.
fn in_phase(phase: &str, door: Door) -> ObservedPod {
    let status = json!({"phase": phase, "conditions": [{"type": "PodScheduled", "status": "True"}]});
    ObservedPod { status: serde_json::from_value(status).unwrap(), door, ..ObservedPod::default() }
}

#[test]
fn a_key_is_replaced_when_it_is_old_and_no_session_is_lost() {
    let mut life = Life::new();
    life.observed.pods = pods([with(None, Some(1)), with(None, Some(1))]);
    assert_eq!(life.step(), None);
    assert_eq!(next_change(&life.server, &life.observed, life.now), None);

    life.pass("2026-06-19T00:00:00Z");
    assert_eq!(life.step(), Some("prepare"));
    assert_eq!(life.slots(), "Next 2, Current 1");
    // One has it, one has not: both are waited for, and the one is told.
    life.observed.pods = pods([with(Some(2), Some(1)), with(None, Some(1))]);
    assert_eq!(life.step(), None);
    assert!(life.told().contains("waits for pod-1, which"), "{}", life.told());
    assert_eq!(life.in_force(), [true, false], "it is touched");

    life.observed.pods = pods([with(Some(2), Some(1)), with(Some(2), Some(1))]);
    assert_eq!((life.told(), life.step()), (String::new(), Some("advance")));
    assert_eq!(life.in_force(), [false, false], "they are touched, so that they seal with the new one soon");
    assert_eq!(life.slots(), "Current 2, Previous 1");
    // One lags for longer than any session lives, and seals with the old one all the while.
    life.observed.pods = pods([with(None, Some(2)), with(Some(2), Some(1))]);
    life.pass("2026-06-21T00:00:00Z");
    assert_eq!(life.step(), None);
    assert!(life.told().contains("waits for pod-1, which"), "{}", life.told());
    life.observed.pods = pods([with(None, Some(2)), with(None, Some(2))]);
    assert_eq!((life.told(), life.step(), life.step()), (String::new(), Some("settle"), None));
    assert_eq!(next_change(&life.server, &life.observed, life.now).unwrap().as_secs(), 24 * 3600);
    life.pass("2026-06-22T00:00:00Z");
    assert_eq!(life.step(), Some("retire"));
    assert_eq!((life.slots().as_str(), life.step()), ("Current 2", None));
    assert_eq!(life.secret["metadata"]["annotations"], json!({}));
}

#[test]
fn nobody_who_may_still_be_asked_is_passed_over() {
    let mut life = Life::new();
    life.ask("now");
    assert_eq!(life.step(), Some("prepare"));
    let waits = |life: &mut Life, pod: ObservedPod| {
        life.observed.pods = pods([with(Some(2), Some(1)), pod]);
        life.told().contains("pod-1") && life.step().is_none()
    };
    assert!(waits(&mut life, running(Door::Unasked)));
    assert!(waits(&mut life, running(Door::Unreachable("no answer within 2 s".to_owned()))), "frozen");
    assert!(waits(&mut life, ObservedPod { terminating: true, ..with(None, Some(1)) }), "it drains");
    assert!(waits(&mut life, in_phase("Pending", Door::Unasked)), "it starts, and may have mounted what was before");
    // Its server heeds no SIGTERM.
    let stops = |terminating| {
        let door = Door::Unreachable("connection refused".to_owned());
        let mut pod = ObservedPod { terminating, ..running(door) };
        let front_door = json!([{"name": "front-door", "state": {"terminated": {"exitCode": 0}}}]);
        let mut status = serde_json::to_value(&pod.status).unwrap();
        status["containerStatuses"] = front_door;
        pod.status = serde_json::from_value(status).unwrap();
        pod
    };
    assert!(waits(&mut life, stops(false)), "it is about to be started anew");
    // One without a node will mount the newest, one that has ended opens nothing, and one of an older version seals nothing.
    let ended = in_phase("Succeeded", with(None, Some(1)).door);
    life.observed.pods = pods([with(Some(2), Some(1)), ObservedPod::default(), ended, stops(true), with(None, None)]);
    assert_eq!(life.step(), Some("advance"));
}

#[test]
fn what_is_asked_for_is_done_once_and_not_before_the_last_rotation_is_over() {
    let mut life = Life::new();
    life.ask("a");
    let rotation = [Some("prepare"), Some("advance"), Some("settle")];
    assert_eq!([life.step(), life.step(), life.step()], rotation);
    assert_eq!((life.step(), life.told()), (None, String::new()));
    life.ask("b");
    assert_eq!(life.step(), None);
    assert!(life.told().contains("follows at 2026-05-22T00:00:00Z"), "{}", life.told());
    life.pass("2026-05-22T00:00:00Z");
    assert_eq!(life.step(), Some("retire"));
    assert_eq!([life.step(), life.step(), life.step()], rotation);
    assert_eq!((life.slots().as_str(), life.step()), ("Current 6, Previous 2", None));
}

/// Without a word about when, the sessions of before are taken for as young as can be.
#[test]
fn nobody_shortens_the_life_of_sessions_by_a_lost_annotation() {
    for overwritten in [None, Some("long ago")] {
        let mut life = Life::new();
        life.ask("a");
        assert_eq!([life.step(), life.step(), life.step()], [Some("prepare"), Some("advance"), Some("settle")]);
        let annotations = life.secret["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.remove(ANNOTATION_SETTLED);
        annotations.extend(overwritten.map(|words| (ANNOTATION_SETTLED.to_owned(), words.into())));
        life.look();
        life.pass("2026-05-30T00:00:00Z");
        assert_eq!([life.step(), life.step()], [Some("settle"), None]);
        life.pass("2026-05-31T00:00:00Z");
        assert_eq!(life.step(), Some("retire"));
    }
}

#[test]
fn a_secret_that_lost_its_key_or_never_had_one_gets_one() {
    let mut life = Life::new();
    life.ask("a");
    life.secret["data"].as_object_mut().unwrap().remove(Slot::Current.entry());
    life.look();
    assert_eq!([life.step(), life.step()], [Some("first"), None], "and is not rotated at once");
    assert_eq!(life.slots(), "Current 2");
    // A new server that asks from the beginning has its newest key.
    let secret = mint::session_secret(&life.server, "token", &session_key(1)).unwrap();
    assert_eq!(SessionSecret::from_secret(&secret).rotated.as_deref(), Some("a"));
}
