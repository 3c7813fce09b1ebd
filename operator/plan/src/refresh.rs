//! Which pods to touch so that the kubelet refreshes their mounts, and when to look again. A pod is touched only when
//! its own front door shows that it has something else in force than the API server holds: another revision, or another
//! token, as after somebody deleted `<name>.session` to end all sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use mooring_api::McpServer;
use mooring_contract::DoorStatus;
use mooring_contract::door_status::SessionKeyIds;

use crate::observed::{Door, Observed, ObservedPod};
use crate::outcome::Revisions;
use crate::references;
use crate::revisions::of_entries;

/// A pod to touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Name of the pod.
    pub pod: String,
    /// UID of the pod, so that a newer one of the same name is not hit.
    pub uid: String,
    /// New value of the annotation `mooring.dev/refresh`; never the one that is there, or nothing would change.
    pub value: String,
}

/// Pods whose front door has something else in force, in the order of their names. One that is stopping is left alone.
pub fn touches(revisions: &Revisions, pods: &BTreeMap<String, ObservedPod>) -> Vec<Touch> {
    let wanted = digest(revisions);
    let lags = |pod: &ObservedPod| match &pod.door {
        Door::Answered(door) => !agrees(revisions, door),
        Door::Unauthorized => true,
        Door::Unasked | Door::Unreachable(_) => false,
    };
    let touch = |(name, pod): (&String, &ObservedPod)| Touch {
        pod: name.clone(),
        uid: pod.uid.clone(),
        value: next_value(&wanted, pod.refresh.as_deref()),
    };
    pods.iter().filter(|(_, pod)| !pod.terminating && lags(pod)).map(touch).collect()
}

/// Whether a front door has everything in force. A config that it has read and refused will not come into force by
/// another reading. One that reports no session key is of a version that has none. Where the config is not known, a Secret that the front door does not know is not waited for.
pub fn agrees(revisions: &Revisions, door: &DoorStatus) -> bool {
    let known = !revisions.config.is_empty();
    let config = !known || door.config_error.is_some() || door.config_revision == revisions.config;
    let keys = revisions.keys.as_ref().is_none_or(|keys| *keys == door.keys_revision);
    let in_force = |name| door.key_secret_revisions.get(name);
    let mut key_secrets = revisions.key_secrets.iter();
    let known_keys = [&door.session_keys, &revisions.session_keys].into_iter().all(|ids| !ids.is_empty());
    let session_keys = !known_keys || door.session_keys == revisions.session_keys;
    config
        && keys
        && session_keys
        && key_secrets.all(|(name, revision)| in_force(name).map_or(!known, |in_force| in_force == revision))
}

/// What the key Secrets hold as they are stored, for a server whose spec is rejected: there is no plan, and yet a key
/// that was revoked has to stop working, above all where the rejection is that somebody deleted a key Secret.
pub fn stored(server: &McpServer, observed: &Observed) -> Revisions {
    let nothing = BTreeMap::new();
    let entries = |name: &String| observed.key_secrets.get(name).unwrap_or(&nothing);
    Revisions {
        config: String::new(),
        keys: Some(of_entries(observed.keys.as_ref().map_or(&nothing, |keys| &keys.data))),
        key_secrets: references::key_secrets(server)
            .into_iter()
            .map(|name| (name.clone(), of_entries(entries(&name))))
            .collect(),
        session_keys: SessionKeyIds::default(),
    }
}

/// How long to wait before looking again, after `looks` looks at which not all agreed. The kubelet needs 0.1 to 0.25 s,
/// but its watches are unordered, so a touch may come before the Secret that it was meant for.
pub fn pause(looks: u32) -> Duration {
    match looks {
        0 => Duration::from_millis(200),
        1 => Duration::from_secs(1),
        2..=13 => Duration::from_secs(5),
        _ => Duration::from_mins(1), // by now the kubelet's own sync has it, or cannot
    }
}

/// The value of `mooring.dev/refresh` is a digest of the revisions and a counter.
fn next_value(wanted: &str, present: Option<&str>) -> String {
    let count = present.and_then(|value| value.strip_prefix(wanted)?.strip_prefix('.')?.parse::<u32>().ok());
    format!("{wanted}.{}", count.map_or(0, |count| count.wrapping_add(1)))
}

fn digest(revisions: &Revisions) -> String {
    let Revisions { config, keys, key_secrets, session_keys } = revisions;
    let entries = key_secrets.iter().map(|(name, revision)| (name.as_str(), revision.as_bytes()));
    let own = [("", config.as_bytes()), ("/", keys.as_deref().unwrap_or_default().as_bytes())];
    let SessionKeyIds { next, current, previous } = session_keys;
    let slots = [("/next", next), ("/current", current), ("/previous", previous)];
    let of_sessions = slots.map(|(slot, id)| (slot, id.as_deref().unwrap_or_default().as_bytes()));
    mooring_contract::revision::revision(entries.chain(own).chain(of_sessions))
}
