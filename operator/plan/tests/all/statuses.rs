//! The status for what a cluster can look like, and that it does not move while nothing happens.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mooring_api::{ConditionType, McpServer, McpServerStatus, Reason};
use mooring_contract::DoorStatus;
use mooring_contract::door_status::Handshake;
use mooring_plan::observed::{Door, Observed, ObservedDeployment, ObservedPod};
use mooring_plan::outcome::Finding;
use mooring_plan::plan::plan;
use mooring_plan::status::{next_change, status};
use mooring_plan::{Applied, Outcome};
use serde_json::{Value, json};

use crate::autoscaling;
use crate::world::{fixture, now, settings, world};

/// What a Deployment reports: replicas, updated, ready and available.
pub fn deployment(replicas: i32, updated: i32, available: i32) -> ObservedDeployment {
    let status = json!({
        "observedGeneration": 3, "replicas": replicas, "updatedReplicas": updated,
        "readyReplicas": available, "availableReplicas": available,
    });
    ObservedDeployment {
        generation: 3,
        replicas: Some(1),
        status: serde_json::from_value(status).unwrap(),
        ..ObservedDeployment::default()
    }
}

/// A pod whose user container is in `state`, after `last`; the front door runs.
pub fn pod(ready: bool, state: Value, last: Value) -> ObservedPod {
    let running = json!({"running": {"startedAt": "2026-06-01T11:00:00Z"}});
    let container = |name: &str, state: Value, last: Value| {
        json!({
            "name": name, "image": format!("registry.example.com/{name}:1.0"), "imageID": "", "ready": ready,
            "restartCount": 0, "state": state, "lastState": last,
        })
    };
    let status = json!({
        "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        "initContainerStatuses": [container("server", state, last)],
        "containerStatuses": [container("front-door", running, json!({}))],
    });
    ObservedPod {
        uid: "uid".to_owned(),
        created: Some("2026-06-01T11:00:00Z".parse().unwrap()),
        status: serde_json::from_value(status).unwrap(),
        ..ObservedPod::default()
    }
}

pub fn running() -> Value {
    json!({"running": {"startedAt": "2026-06-01T11:00:00Z"}})
}

pub fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

pub fn terminated(reason: &str, code: i32, message: &str) -> Value {
    json!({"terminated": {"reason": reason, "exitCode": code, "message": message}})
}

fn pod_of_nobody() -> ObservedPod {
    pod(false, running(), json!({}))
}

/// A pod that no node takes.
fn unschedulable(words: &str) -> ObservedPod {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": format!("0/1 nodes are available: {words}")});
    let status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
    ObservedPod { status, ..ObservedPod::default() }
}

/// A pod that has had a node since then, and none of its volumes.
fn without_volumes(since: &str) -> ObservedPod {
    let status = json!({"conditions": [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
        {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": since},
    ]});
    ObservedPod { status: serde_json::from_value(status).unwrap(), ..ObservedPod::default() }
}

pub fn handshaken() -> Door {
    let handshake = Handshake {
        name: "everything".to_owned(),
        version: "1.0.0".to_owned(),
        protocol_versions: vec!["2025-11-25".to_owned(), "2025-06-18".to_owned()],
        tool_count: Some(11),
    };
    Door::Answered(Box::new(DoorStatus { ready: true, handshake: Some(handshake), ..DoorStatus::default() }))
}

pub fn refused(error: &str) -> Door {
    Door::Answered(Box::new(DoorStatus { handshake_error: Some(error.to_owned()), ..DoorStatus::default() }))
}

pub fn ready(door: Door) -> ObservedPod {
    ObservedPod { door, ..pod(true, running(), json!({})) }
}

pub fn pods(pods: impl IntoIterator<Item = ObservedPod>) -> BTreeMap<String, ObservedPod> {
    pods.into_iter().enumerate().map(|(index, pod)| (format!("pod-{index}"), pod)).collect()
}

/// The status after one pass over `observed`, where `refused` children were not applied.
pub fn after_with(
    old: &McpServerStatus,
    server: &McpServer,
    observed: &Observed,
    applied: &Applied,
) -> McpServerStatus {
    match plan(server, observed, &settings(""), now()) {
        Ok(plan) => status(old, server, observed, Outcome::Planned { plan: &plan, applied }, now()),
        Err(rejection) => status(old, server, observed, Outcome::Rejected(&rejection), now()),
    }
}

pub fn after(old: &McpServerStatus, server: &McpServer, observed: &Observed) -> McpServerStatus {
    after_with(old, server, observed, &Applied::default())
}

/// Changes to a world, by a name.
type Scenario = (&'static str, &'static str, fn(&mut Observed));

const SCENARIOS: &[Scenario] = &[
    ("new", "http-minimal", |_| {}),
    ("new, with an Ingress", "ingress-default-class", |_| {}),
    ("pods are made", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        observed.pods = pods([ObservedPod::default()]);
    }),
    ("ready", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 1));
        observed.pods = pods([ready(handshaken())]);
    }),
    ("ready and not asked", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 1));
        observed.pods = pods([ready(Door::Unasked)]);
    }),
    ("ready and out of reach", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 1));
        observed.pods = pods([ready(Door::Unreachable("timed out".to_owned()))]);
    }),
    ("ready, with an address", "ingress-default-class", |observed| {
        observed.deployment = Some(deployment(1, 1, 1));
        observed.pods = pods([ready(handshaken())]);
        observed.ingress_addresses = vec!["192.0.2.2".to_owned(), "192.0.2.1".to_owned()];
    }),
    ("no MCP server", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        observed.pods = pods([ObservedPod { door: refused("404 Not Found"), ..pod(false, running(), json!({})) }]);
    }),
    ("image cannot be pulled", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        let words = r#"Back-off pulling image "x": ErrImagePull: rpc error: code = NotFound desc = not found"#;
        observed.pods = pods([pod(false, waiting("ImagePullBackOff", words), json!({}))]);
    }),
    ("crashes", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        let last = terminated(
            "Error",
            1,
            "Traceback\n  File \"server.py\", line 1\nModuleNotFoundError: No module named 'mcp'",
        );
        observed.pods = pods([pod(false, waiting("CrashLoopBackOff", "back-off 10s"), last)]);
    }),
    ("out of memory", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        observed.pods = pods([pod(false, running(), terminated("OOMKilled", 137, ""))]);
    }),
    ("image wants root", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        let words = "container has runAsNonRoot and image will run as root (pod: \"x\", container: server)";
        observed.pods = pods([pod(false, waiting("CreateContainerConfigError", words), json!({}))]);
    }),
    ("command does not exist", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        let last = terminated("StartError", 128, "exec: \"serve\": executable file not found in $PATH");
        observed.pods = pods([pod(false, waiting("CrashLoopBackOff", "back-off 10s"), last)]);
    }),
    ("no node", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient memory."});
        let status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
        observed.pods = pods([ObservedPod { status, ..ObservedPod::default() }]);
    }),
    ("quota", "http-minimal", |observed| {
        let mut refused = deployment(0, 0, 0);
        let condition = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
            "message": "pods \"everything-1-\" is forbidden: exceeded quota: small"}]);
        refused.status.conditions = serde_json::from_value(condition).unwrap();
        observed.deployment = Some(refused);
    }),
    ("new pods come while old ones serve", "http-minimal", |observed| {
        observed.deployment = Some(deployment(2, 1, 1));
        observed.pods = pods([ready(handshaken()), ObservedPod::default()]);
    }),
    ("new pods fail while old ones serve", "http-minimal", |observed| {
        observed.deployment = Some(deployment(2, 1, 1));
        let failing = pod(false, waiting("ErrImagePull", "not found"), json!({}));
        observed.pods = pods([ready(handshaken()), failing]);
    }),
    ("a quota is too tight for a rollout", "http-minimal", |observed| {
        let mut refused = deployment(1, 0, 1);
        let condition = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
            "message": "pods \"everything-2-\" is forbidden: exceeded quota: small"}]);
        refused.status.conditions = serde_json::from_value(condition).unwrap();
        observed.deployment = Some(refused);
        observed.pods = pods([ready(handshaken())]);
    }),
    ("an anti-affinity keeps new pods away", "http-minimal", |observed| {
        observed.deployment = Some(deployment(2, 1, 1));
        observed.pods = pods([ready(handshaken()), unschedulable("1 node(s) didn't match pod anti-affinity rules.")]);
    }),
    ("a volume is held by an old pod", "http-minimal", |observed| {
        observed.deployment = Some(deployment(2, 1, 1));
        let words = "1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod.";
        observed.pods = pods([ready(handshaken()), unschedulable(words)]);
    }),
    ("new pods want a node that there is not", "http-minimal", |observed| {
        observed.deployment = Some(deployment(2, 1, 1));
        let words = "1 node(s) didn't match Pod's node affinity/selector.";
        observed.pods = pods([ready(handshaken()), unschedulable(words)]);
    }),
    ("one pod more finds no room", "replicas-limits-resources", |observed| {
        observed.deployment = Some(deployment(3, 3, 2));
        observed.pods = pods([ready(handshaken()), unschedulable("1 Insufficient memory.")]);
    }),
    ("a new pod finds no room", "http-minimal", |observed| {
        observed.deployment = Some(deployment(2, 1, 1));
        observed.pods = pods([ready(handshaken()), unschedulable("1 Insufficient memory.")]);
    }),
    ("a volume stays on another node", "http-every-field", |observed| {
        observed.deployment = Some(deployment(2, 1, 1));
        observed.pods = pods([ready(handshaken()), without_volumes("2026-06-01T11:59:00Z")]);
    }),
    ("a volume has its time to come", "http-every-field", |observed| {
        observed.deployment = Some(deployment(2, 1, 1));
        observed.pods = pods([ready(handshaken()), without_volumes("2026-06-01T11:59:50Z")]);
    }),
    ("a volume does not come", "rollout-recreate", |observed| {
        observed.deployment = Some(deployment(1, 1, 0));
        observed.pods = pods([without_volumes("2026-06-01T11:59:00Z")]);
    }),
    ("the Deployment has not seen the new spec", "http-minimal", |observed| {
        observed.deployment = Some(ObservedDeployment { generation: 4, ..deployment(1, 1, 1) });
        observed.pods = pods([ready(handshaken())]);
    }),
    ("two of three", "replicas-limits-resources", |observed| {
        observed.deployment = Some(deployment(3, 3, 2));
        observed.pods = pods([ready(handshaken())]);
    }),
    ("scaled to zero", "http-minimal", |observed| {
        observed.deployment = Some(ObservedDeployment { replicas: Some(0), ..deployment(0, 0, 0) });
    }),
    ("keys", "keys-declared", |observed| {
        observed.declared_keys.remove("ci");
    }),
    ("pods that do not reach each other", "replicas-limits-resources", |observed| {
        observed.deployment = Some(deployment(3, 3, 3));
        let pod = |uid: &str, peers: Value| {
            let mut status: DoorStatus =
                serde_json::from_value(json!({"ready": true, "unreachablePeers": peers})).unwrap();
            let Door::Answered(shaken) = handshaken() else { unreachable!() };
            status.handshake = shaken.handshake;
            ObservedPod { uid: uid.to_owned(), ..ready(Door::Answered(Box::new(status))) }
        };
        let peer = |uid: &str, reason: &str| json!({"podUid": uid, "address": "10.0.0.2", "reason": reason, "since": "2026-06-01T11:00:00Z"});
        let first = pod("a", json!([peer("b", "timedOut"), peer("gone", "refused"), peer("starting", "refused")]));
        let second = pod("b", json!([peer("a", "timedOut"), peer("c", "unproved")]));
        let third = pod("c", json!([peer("a", "unheard")]));
        let starting = ObservedPod { uid: "starting".to_owned(), ..pod_of_nobody() };
        observed.pods = pods([first, second, third, starting]);
    }),
    ("nothing measures for the autoscaler", "autoscaling", |observed| {
        observed.deployment = Some(autoscaling::available_since("2026-06-01T11:00:00Z"));
        observed.inactive_autoscaler = autoscaling::unmeasured("2026-06-01T11:00:00Z");
        observed.pods = pods([ready(handshaken())]);
    }),
    ("config refused", "http-minimal", |observed| {
        observed.deployment = Some(deployment(1, 1, 1));
        let door = DoorStatus { config_error: Some("version 3".to_owned()), ..DoorStatus::default() };
        observed.pods = pods([ready(Door::Answered(Box::new(door)))]);
    }),
    ("references missing", "references-missing", |observed| observed.deployment = Some(deployment(1, 1, 0))),
    ("references missing, pods serve", "references-missing", |observed| {
        observed.deployment = Some(deployment(1, 1, 1));
        observed.pods = pods([ready(handshaken())]);
    }),
    ("a weak key", "keys-from-secrets", |observed| {
        observed.deployment = Some(deployment(1, 1, 1));
        observed.pods = pods([ready(handshaken())]);
        observed.key_secrets.get_mut("from-vault").unwrap().insert("weak".to_owned(), b"hunter2".to_vec());
    }),
    ("key Secret missing, new", "keys-from-secrets", |observed| observed.key_secrets.clear()),
    ("key Secret missing, pods serve", "keys-from-secrets", |observed| {
        observed.key_secrets.clear();
        observed.deployment = Some(deployment(1, 1, 1));
        observed.pods = pods([ready(handshaken())]);
    }),
    ("TLS Secret missing", "ingress-base-domain", |observed| {
        observed.deployment = Some(deployment(1, 1, 1));
        observed.pods = pods([ready(handshaken())]);
    }),
    ("host taken", "ingress-host-conflict", |_| {}),
    ("no hosts, no class", "ingress-no-hosts", |_| {}),
];

/// A status in few lines: one for each condition.
fn brief(status: &McpServerStatus) -> Value {
    let conditions = status.conditions.iter().map(|condition| {
        let text = format!("{}: {}", condition.reason, condition.message);
        (format!("{}={}", condition.type_, condition.status), text)
    });
    let mut rest = serde_json::to_value(status).unwrap();
    for known in ["conditions", "observedGeneration", "selector"] {
        rest.as_object_mut().unwrap().remove(known);
    }
    json!({"conditions": conditions.collect::<BTreeMap<_, _>>(), "rest": rest})
}

#[test]
fn every_scenario_has_its_status_and_keeps_it() {
    let mut statuses = BTreeMap::new();
    for (name, of, change) in SCENARIOS {
        let server = fixture(of);
        let mut observed = world(&server);
        change(&mut observed);
        let first = after(&McpServerStatus::default(), &server, &observed);
        assert_eq!(after(&first, &server, &observed), first, "{name}");
        statuses.insert(*name, brief(&first));
    }
    insta::assert_yaml_snapshot!(statuses);
}

#[test]
fn a_whole_status_is_as_documented() {
    let server = fixture("keys-declared");
    let mut observed = world(&server);
    observed.deployment = Some(deployment(1, 1, 1));
    observed.pods = pods([ready(handshaken())]);
    insta::assert_yaml_snapshot!(after(&McpServerStatus::default(), &server, &observed));
}

#[test]
fn children_that_were_not_applied_are_told_where_they_matter() {
    let server = fixture("ingress-default-class");
    let mut observed = world(&server);
    observed.deployment = Some(deployment(1, 1, 1));
    observed.pods = pods([ready(handshaken())]);
    let outcome = |child: &str, reason, waiting| {
        let message = "an object of this name exists and is not Mooring's".to_owned();
        let refused = vec![Finding { reason, field: child.to_owned(), message }];
        let applied = Applied { refused: if waiting { Vec::new() } else { refused }, waiting };
        brief(&after_with(&McpServerStatus::default(), &server, &observed, &applied))
    };
    insta::assert_yaml_snapshot!(BTreeMap::from([
        ("conflict", outcome("Service plain", Reason::NameConflict, false)),
        ("conflict of the Ingress", outcome("Ingress plain", Reason::NameConflict, false)),
        ("refused", outcome("Deployment plain", Reason::ChildRefused, false)),
        ("waiting", outcome("", Reason::NameConflict, true)),
    ]));
}

/// The kubelet goes round its loops with other words each time.
#[test]
fn a_pod_that_fails_again_and_again_is_told_once() {
    let server = fixture("http-minimal");
    let round = |states: &[(Value, Value)]| {
        let mut seen = Vec::new();
        let mut old = McpServerStatus::default();
        for (state, last) in states.iter().chain(states) {
            let mut observed = world(&server);
            observed.deployment = Some(deployment(1, 1, 0));
            observed.pods = pods([pod(false, state.clone(), last.clone())]);
            old = after(&old, &server, &observed);
            if seen.last() != Some(&old) {
                seen.push(old.clone());
            }
        }
        seen.len()
    };
    let end = |line: u32| terminated("Error", 1, &format!("12:00:0{line} cannot reach the database"));
    assert_eq!(
        round(&[
            (running(), end(1)),
            (end(2), end(1)),
            (waiting("CrashLoopBackOff", "back-off 10s restarting"), end(2)),
            (waiting("CrashLoopBackOff", "back-off 20s restarting"), end(3)),
        ]),
        1
    );
    let error = "failed to resolve reference: not found";
    assert_eq!(
        round(&[
            (waiting("ErrImagePull", error), json!({})),
            (waiting("ImagePullBackOff", "Back-off pulling image \"x\""), json!({})),
            (waiting("ImagePullBackOff", &format!("Back-off pulling image \"x\": ErrImagePull: {error}")), json!({})),
        ]),
        1
    );
}

/// Where no pods run, a new server costs two writes: after the apply, and when the Deployment's status arrives.
#[test]
fn a_new_server_is_written_twice_where_no_pods_run() {
    let server = fixture("ingress-default-class");
    let moments: [fn(&mut Observed); 5] = [
        |_| {},
        |observed| {
            observed.deployment =
                Some(ObservedDeployment { replicas: Some(1), generation: 1, ..ObservedDeployment::default() });
        },
        |observed| observed.deployment = Some(ObservedDeployment { generation: 1, ..deployment(0, 0, 0) }),
        |observed| observed.deployment = Some(ObservedDeployment { generation: 1, ..deployment(1, 1, 0) }),
        |observed| {
            observed.deployment = Some(ObservedDeployment { generation: 1, ..deployment(1, 1, 0) });
            observed.pods = pods([ObservedPod::default()]);
        },
    ];
    let mut written = vec![McpServerStatus::default()];
    for moment in moments {
        let mut observed = world(&server);
        moment(&mut observed);
        let next = after(written.last().unwrap(), &server, &observed);
        if written.last() != Some(&next) {
            written.push(next);
        }
    }
    assert_eq!(written.len() - 1, 2);
}

#[test]
fn transition_times_move_with_the_status_alone() {
    let server = fixture("http-minimal");
    let mut observed = world(&server);
    let plan = plan(&server, &observed, &settings(""), now()).unwrap();
    let applied = Applied::default();
    let at = |old: &McpServerStatus, observed: &Observed, time: &str| {
        let time: Timestamp = time.parse().unwrap();
        status(old, &server, observed, Outcome::Planned { plan: &plan, applied: &applied }, time)
    };
    let time = |status: &McpServerStatus, kind| status.condition(kind).unwrap().last_transition_time.0.to_string();
    let first = at(&McpServerStatus::default(), &observed, "2026-06-01T12:00:00.75Z");
    observed.deployment = Some(deployment(1, 1, 1));
    let second = at(&first, &observed, "2026-06-01T12:00:09Z");
    assert_eq!(time(&first, ConditionType::Available), "2026-06-01T12:00:00Z");
    assert_eq!(time(&second, ConditionType::Available), "2026-06-01T12:00:09Z");
    assert_eq!(time(&second, ConditionType::Accepted), "2026-06-01T12:00:00Z");
}

/// An operator that restarts has asked nobody yet; a server whose pods are gone has been verified by nobody.
#[test]
fn what_was_verified_stands_while_pods_are_ready() {
    let server = fixture("http-minimal");
    let mut observed = world(&server);
    observed.deployment = Some(deployment(1, 1, 1));
    observed.pods = pods([ready(handshaken())]);
    let verified = after(&McpServerStatus::default(), &server, &observed);
    observed.pods = pods([ready(Door::Unasked)]);
    assert_eq!(after(&verified, &server, &observed), verified);
    // What the front door told before its backend answered, and the pod became ready.
    observed.pods = pods([ready(refused("nothing listens on port 8000"))]);
    assert_eq!(after(&verified, &server, &observed), verified);
    let first = after(&McpServerStatus::default(), &server, &observed);
    assert_eq!(first.condition(ConditionType::Verified).unwrap().reason, "HandshakePending");
    observed.pods = pods([ObservedPod { terminating: true, ..ready(handshaken()) }]);
    let gone = after(&verified, &server, &observed);
    assert_eq!(gone.condition(ConditionType::Verified).unwrap().status, "Unknown");
    assert_eq!(gone.server, None);
}

/// A backend that starts slowly is not called a failure at once, and the operator knows when to look again.
#[test]
fn a_starting_backend_has_its_grace() {
    let server = fixture("http-minimal");
    let mut observed = world(&server);
    observed.deployment = Some(deployment(1, 1, 0));
    let mut starting = pod(false, running(), json!({}));
    let state = json!({"running": {"startedAt": "2026-06-01T11:59:50Z"}});
    starting.status.container_statuses.as_mut().unwrap()[0].state = serde_json::from_value(state).unwrap();
    starting.door = refused("connection refused");
    observed.pods = pods([starting]);
    let verified = after(&McpServerStatus::default(), &server, &observed);
    assert_eq!(verified.condition(ConditionType::Verified).unwrap().reason, "HandshakePending");
    assert_eq!(next_change(&server, &observed, now()).unwrap().as_secs(), 20);
}

/// Volumes that are slow have their time, too.
#[test]
fn a_wait_for_volumes_is_looked_at_again() {
    let server = fixture("http-every-field");
    let mut observed = world(&server);
    observed.pods = pods([without_volumes("2026-06-01T11:59:50Z")]);
    assert_eq!(next_change(&server, &observed, now()).unwrap().as_secs(), 20);
}

#[test]
fn the_next_expiry_is_waited_for() {
    let server = fixture("keys-declared");
    let wait = next_change(&server, &world(&server), "2026-12-31T23:59:00Z".parse().unwrap()).unwrap();
    assert_eq!(wait.as_secs(), 60);
    assert_eq!(next_change(&server, &world(&server), "2027-01-01T00:00:00Z".parse().unwrap()), None);
}
