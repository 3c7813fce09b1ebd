//! What holds for sessions.

use serde::{Deserialize, Serialize};

/// What holds for the sessions of the legacy protocol. What is absent has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sessions {
    /// Whether there are any.
    pub mode: SessionMode,
    /// A session that nobody used for so long ends, in milliseconds. A running call and an open stream count as use.
    pub idle_timeout_ms: u64,
    /// Most sessions of one pod; `initialize` gets 503 beyond them.
    pub max_per_pod: u64,
    /// Longest life of a session, in milliseconds.
    pub max_age_ms: u64,
    /// How long the sessions of a pod that is to stop live on, in milliseconds.
    pub drain_ms: u64,
}

/// Whether the server has sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionMode {
    /// A session stays on the pod that began it, whatever pod a request reaches.
    #[default]
    Sticky,
    /// There are none: any pod answers any request, and what the backend says of sessions is withheld.
    Stateless,
}

impl Sessions {
    /// Default of `sessions.idleTimeout`: 30 minutes.
    pub const IDLE_TIMEOUT_MS: u64 = 30 * 60 * 1000;
    /// Default of `sessions.maxPerPod`.
    pub const MAX_PER_POD: u64 = 1000;
    /// Default of `sessions.maxAge`: 24 hours.
    pub const MAX_AGE_MS: u64 = 24 * 60 * 60 * 1000;
    /// Default of `sessions.drain`: 5 minutes.
    pub const DRAIN_MS: u64 = 5 * 60 * 1000;

    /// Whether nothing differs from the defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            mode: SessionMode::default(),
            idle_timeout_ms: Self::IDLE_TIMEOUT_MS,
            max_per_pod: Self::MAX_PER_POD,
            max_age_ms: Self::MAX_AGE_MS,
            drain_ms: Self::DRAIN_MS,
        }
    }
}
