//! Sessions of clients that speak a revision of MCP before 2026-07-28.

use kube::{KubeSchema, core::Duration};
use serde::{Deserialize, Serialize};

/// What holds for sessions: those of clients that speak a revision of MCP before 2026-07-28. A session stays on the pod
/// that began it, whatever pod a request reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.mode) && self.mode == 'Stateless') || !(has(self.idleTimeout) || has(self.maxAge) || has(self.maxPerPod) || has(self.drain))")
    .message("with mode Stateless there are no sessions: leave idleTimeout, maxAge, maxPerPod and drain out"))]
pub struct Sessions {
    /// `Sticky`: the server's sessions are kept, each on its pod. `Stateless`: there are none; any pod answers any request,
    /// and what the server says of sessions is withheld. Default: `Sticky`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<SessionMode>,
    /// A session that nobody used for so long ends. A running call and an open stream count as use. Default: `30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('720h')")
        .message("idleTimeout is a duration such as 30m or 2h, from 1s to 720h"))]
    pub idle_timeout: Option<Duration>,
    /// Longest life of a session. Default: `24h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('720h')")
        .message("maxAge is a duration such as 24h, from 1m to 720h"))]
    pub max_age: Option<Duration>,
    /// Most sessions of one pod. Beyond them a new one gets 503 with Retry-After; none that is in use is ended for it.
    /// Default: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_per_pod: Option<i64>,
    /// How long the sessions of a pod that is to stop live on, if they do not end before. Drains of nodes and cluster
    /// autoscalers may grant less. Default: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) <= duration('24h')")
        .message("drain is a duration such as 5m, at most 24h"))]
    pub drain: Option<Duration>,
}

/// Whether a server has sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the field says what they mean")]
pub enum SessionMode {
    #[default]
    Sticky,
    Stateless,
}
