//! Sessions.

use serde_json::json;

use super::case::Pods::{Roll, Stay};
use super::case::{Case, POD, Seen, case, is};

/// Over the base with source `http`, which is [`crate::world::full`].
pub(super) fn cases() -> Vec<Case> {
    vec![
        case(
            "sessions.mode",
            json!({"sessions": {"mode": "Stateless"}}),
            Seen::Config("/sessions/mode", json!("Stateless")),
            Roll, // there is nothing to drain but calls
        ),
        case(
            "sessions.idleTimeout",
            json!({"sessions": {"idleTimeout": "90s"}}),
            Seen::Config("/sessions/idleTimeoutMs", json!(90_000)),
            Stay,
        ),
        case(
            "sessions.maxAge",
            json!({"sessions": {"maxAge": "2h"}}),
            Seen::Config("/sessions/maxAgeMs", json!(7_200_000)),
            Stay,
        ),
        case(
            "sessions.maxPerPod",
            json!({"sessions": {"maxPerPod": 7}}),
            Seen::Config("/sessions/maxPerPod", json!(7)),
            Stay,
        ),
        case(
            "sessions.drain",
            json!({"sessions": {"drain": "1m"}}),
            Seen::Config("/sessions/drainMs", json!(60_000)),
            Roll,
        ),
        case(
            "sessions.drain and the pods' end",
            json!({"sessions": {"drain": "1m"}, "limits": {"callTimeout": "10s"}}),
            is(POD, "/terminationGracePeriodSeconds", json!(85)),
            Roll,
        ),
    ]
}
