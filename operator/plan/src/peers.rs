//! Pods of a server that cannot bring each other what belongs to their sessions, in words with what is likely in the way.
//! A pod that is gone or does not serve is no such case: its sessions end with it.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use mooring_api::{McpServer, Reason};
use mooring_contract::door_status::Unreachable;
use mooring_contract::port;

use crate::names;
use crate::observed::{Door, Observed};
use crate::outcome::Finding;
use crate::status::is_ready;

/// Most pairs of pods that are told.
const TOLD: usize = 3;

/// What the front doors say of each other.
pub(crate) fn unreachable(server: &McpServer, observed: &Observed) -> Option<Finding> {
    let serving = |uid: &str| observed.pods.iter().find(|(_, pod)| pod.uid == uid && is_ready(pod));
    let mut pairs = BTreeSet::new();
    for (from, pod) in observed.pods.iter().filter(|(_, pod)| !pod.terminating) {
        let Door::Answered(door) = &pod.door else { continue };
        for peer in &door.unreachable_peers {
            if let Some((to, _)) = serving(&peer.pod_uid) {
                pairs.insert((from.as_str(), to.as_str(), words(peer.reason)));
            }
        }
    }
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

fn words(reason: Unreachable) -> &'static str {
    match reason {
        Unreachable::Refused => "refused",
        Unreachable::TimedOut => "no answer",
        Unreachable::Failed | Unreachable::Other => "the connection failed",
        Unreachable::Unproved => "what answered could not prove that it is that pod",
    }
}
