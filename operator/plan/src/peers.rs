//! Pods of a server that cannot bring each other what belongs to their sessions, in words with what is likely in the way.
//! A pod that is gone or does not serve is no such case: its sessions end with it. Nor is one that was starting, or is
//! about to be seen as such.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use mooring_api::{McpServer, Reason};
use mooring_contract::door_status::{Unreachable, UnreachablePeer};
use mooring_contract::port;

use crate::names;
use crate::observed::{Door, Observed, ObservedPod};
use crate::outcome::Finding;
use crate::status::{is_ready, ready_since};

/// Most pairs of pods that are told.
const TOLD: usize = 3;
/// Longer than a front door tells of a failure that does not come again (5 min), and the operator believes it.
const REMEMBERED: Duration = Duration::from_mins(7);
/// Longer than it takes until front doors are asked again: by then the end of a front door is seen, or it serves again.
const AGAIN: Duration = Duration::from_secs(90);
/// By how much the clocks of nodes may differ, of which Kubernetes tells whole seconds.
const SLACK: Duration = Duration::from_secs(5);

/// A pod that did not reach another one which serves.
struct Failure<'a> {
    from: &'a str,
    to: &'a str,
    why: &'static str,
    /// From when on it is told.
    told_from: Timestamp,
}

/// What the front doors say of each other.
pub(crate) fn unreachable(server: &McpServer, observed: &Observed, now: Timestamp) -> Option<Finding> {
    let told = failures(observed).filter(|failure| failure.told_from <= now);
    let pairs: BTreeSet<_> = told.map(|Failure { from, to, why, .. }| (from, to, why)).collect();
    let (number, port) = (pairs.len(), port::PEER);
    let told: Vec<_> = pairs.iter().take(TOLD).map(|(from, to, why)| format!("{from} to {to} ({why})")).collect();
    let more = number.checked_sub(TOLD).filter(|more| *more > 0).map(|more| format!(" and {more} more"));
    (number > 0).then(|| Finding {
        reason: Reason::PeersUnreachable,
        field: "sessions".to_owned(),
        message: format!(
            "pods do not reach each other at port {port}: {}{}. Requests that come by the one end the sessions of the other with 404. A NetworkPolicy of the namespace may be in the way: let it allow port {port} in and out between pods with the labels {}",
            told.join(", "),
            more.unwrap_or_default(),
            names::selector(&server.name_any()),
        ),
    })
}

/// When failures that are not told yet will be.
pub(crate) fn grace_ends(observed: &Observed) -> impl Iterator<Item = Timestamp> {
    failures(observed).map(|failure| failure.told_from)
}

fn failures(observed: &Observed) -> impl Iterator<Item = Failure<'_>> {
    let serving = |uid: &str| observed.pods.iter().find(|(_, pod)| pod.uid == uid && is_ready(pod));
    let asked = observed.pods.iter().filter(|(_, pod)| !pod.terminating);
    let failures = asked.filter_map(|(from, pod)| match &pod.door {
        Door::Answered(door) => Some(door.unreachable_peers.iter().map(move |peer| (from, peer))),
        Door::Unasked | Door::Unauthorized | Door::Unreachable(_) => None,
    });
    failures.flatten().filter_map(move |(from, peer)| {
        let (to, pod) = serving(&peer.pod_uid)?;
        Some(Failure { from, to, why: words(peer.reason), told_from: told_from(peer, pod)? })
    })
}

/// A failure of before the pod was ready is one of its start; where it is told for longer than it is remembered, it came
/// again. Where a front door ends, connections are refused before Kubernetes knows.
fn told_from(peer: &UnreachablePeer, pod: &ObservedPod) -> Option<Timestamp> {
    let is_of_start = |ready: &Timestamp| ready.checked_add(SLACK).is_ok_and(|started| peer.since <= started);
    let (since, grace) = match (ready_since(pod).filter(is_of_start), peer.reason) {
        (Some(ready), _) => (ready, REMEMBERED),
        (None, Unreachable::Refused) => (peer.since, AGAIN),
        (None, _) => (peer.since, Duration::ZERO),
    };
    since.checked_add(grace).ok()
}

fn words(reason: Unreachable) -> &'static str {
    match reason {
        Unreachable::Refused => "refused",
        Unreachable::TimedOut => "no answer",
        Unreachable::Failed | Unreachable::Other => "the connection failed",
        Unreachable::Unproved => "what answered could not prove that it is that pod",
    }
}
