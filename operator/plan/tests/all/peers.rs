//! When it is told that pods do not reach each other: not of a restart.

use jiff::Timestamp;
use mooring_api::Reason;
use mooring_contract::DoorStatus;
use mooring_plan::observed::{Door, ObservedPod};
use mooring_plan::plan::plan;
use mooring_plan::status::next_change;
use serde_json::json;

use crate::statuses::{pods, ready};
use crate::world::{fixture, now, settings, world};

/// When a failure since `failed` is told, of a pod that has been ready since `ready`, in seconds from now.
fn told_in(reason: &str, failed: &str, became_ready: &str) -> Option<u64> {
    let server = fixture("http-minimal");
    let mut observed = world(&server);
    let peer = json!({"podUid": "to", "address": "10.0.0.2", "reason": reason, "since": failed});
    let door: DoorStatus = serde_json::from_value(json!({"ready": true, "unreachablePeers": [peer]})).unwrap();
    let from = ready(Door::Answered(Box::new(door)));
    let mut to = ObservedPod { uid: "to".to_owned(), ..ready(Door::Unasked) };
    let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": became_ready});
    to.status.conditions = serde_json::from_value(json!([condition])).unwrap();
    observed.pods = pods([from, to]);
    let is_told = |at: Timestamp| {
        let findings = plan(&server, &observed, &settings(""), at).unwrap().findings;
        findings.iter().any(|finding| finding.reason == Reason::PeersUnreachable)
    };
    if is_told(now()) {
        return Some(0);
    }
    let pause = next_change(&server, &observed, now())?;
    is_told(now().checked_add(pause).unwrap()).then_some(pause.as_secs())
}

#[test]
fn a_restart_is_no_matter_of_the_network() {
    let long_ago = "2026-06-01T08:00:00Z";
    // now is 12:00:00
    let cases = [
        ("a policy drops it", "timedOut", "2026-06-01T11:59:58Z", long_ago, Some(0)),
        ("refused just now: a front door may have ended", "refused", "2026-06-01T11:59:58Z", long_ago, Some(88)),
        ("refused, and still there when asked again", "refused", "2026-06-01T11:58:00Z", long_ago, Some(0)),
        ("refused while it started", "refused", "2026-06-01T11:58:00Z", "2026-06-01T11:59:00Z", Some(360)),
        ("not there while it started", "timedOut", "2026-06-01T11:58:00Z", "2026-06-01T11:59:00Z", Some(360)),
        ("as it became ready", "refused", "2026-06-01T11:59:03Z", "2026-06-01T11:59:00Z", Some(360)),
        ("since before its start, and it came again", "refused", long_ago, "2026-06-01T11:00:00Z", Some(0)),
    ];
    for (name, reason, failed, became_ready, told) in cases {
        assert_eq!(told_in(reason, failed, became_ready), told, "{name}");
    }
}
