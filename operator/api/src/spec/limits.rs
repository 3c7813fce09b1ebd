//! What calls and containers may use.

use std::collections::BTreeMap;

use kube::{KubeSchema, core::Duration};
use serde::{Deserialize, Serialize};

use crate::Quantity;

/// What one call may cost, and what all callers of one replica may use together. Sizes are bytes as whole numbers, times
/// are durations such as `90s`. A change holds for what comes next; what runs goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.bodyBytesTotal) || self.bodyBytesTotal >= (has(self.bodyBytes) ? self.bodyBytes : 4194304)")
    .message("bodyBytesTotal is at least bodyBytes (4194304 by default)"))]
pub struct Limits {
    /// Largest request body in bytes; a larger one gets 413. Default: 4194304 (4 MiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 1_073_741_824))]
    pub body_bytes: Option<i64>,
    /// Most bytes of request bodies that one replica holds at once, which is until the server has begun to answer. Whoever
    /// sends more gets 503 with Retry-After. The front door's memory must suffice for it. Default: 67108864 (64 MiB), or
    /// `bodyBytes` where that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 68_719_476_736_i64))]
    pub body_bytes_total: Option<i64>,
    /// Longest time from a call's first byte to the end of its answer, for example `30m`; then it gets 504, or its
    /// stream ends. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')")
        .message("callTimeout is a duration such as 90s or 1h30m, from 1s to 24h"))]
    pub call_timeout: Option<Duration>,
    /// Most open connections of one replica. The next are told 503 with Retry-After and closed; only health is still
    /// answered on them. Default: 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub connections: Option<i64>,
    /// Most requests that one replica answers at once, besides the streams of GET and `subscriptions/listen`. The next get 503 with Retry-After.
    /// Default: 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub requests: Option<i64>,
    /// Most event streams (GET and `subscriptions/listen`) that one caller may hold open at one replica. The next get 429
    /// with Retry-After. Default: 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub streams_per_principal: Option<i64>,
    /// Largest head of a request in bytes, from its first byte to the empty line, or over HTTP/2 as RFC 9113 counts it:
    /// name, value and 32 bytes of each field; a larger one gets 431. Default: 16384 (16 KiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65_536))]
    pub header_bytes: Option<i64>,
    /// Most headers of a request; more get 431. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 16, max = 256))]
    pub header_count: Option<i64>,
    /// Longest target (path and query) of a request in bytes; a longer one gets 414. Default: 8192 (8 KiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 256, max = 32_768))]
    pub uri_bytes: Option<i64>,
    /// Longest time from the first byte of a request's head to its last; then 408, or over HTTP/2 the end of the
    /// connection. Default: `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('10m')")
        .message("headerTimeout is a duration such as 90s or 1h30m, from 1s to 10m"))]
    pub header_timeout: Option<Duration>,
    /// Longest time for a request's body to arrive; then 408. It ends with `callTimeout` in any case. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')")
        .message("bodyTimeout is a duration such as 90s or 1h30m, from 1s to 24h"))]
    pub body_timeout: Option<Duration>,
    /// Longest time without a request on a connection; then it is closed. It must be longer than whoever routes here keeps
    /// its connections (Traefik 90 s, nginx 60 s). Default: `120s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('5s') && duration(self) <= duration('24h')")
        .message("idleTimeout is a duration such as 90s or 1h30m, from 5s to 24h"))]
    pub idle_timeout: Option<Duration>,
    /// Longest time in which a client takes nothing of an answer that is ready for it; then its connection, or in HTTP/2
    /// the stream alone, is cut. A silent event stream is not cut. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')")
        .message("writeTimeout is a duration such as 90s or 1h30m, from 1s to 1h"))]
    pub write_timeout: Option<Duration>,
}

/// The front door's own container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrontDoor {
    /// CPU and memory. Default: requests of 10m CPU and 32Mi memory, limits of 1 CPU and 256Mi memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

/// CPU, memory and other resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// What the container is given at least. Default: the limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub requests: BTreeMap<String, Quantity>,
    /// What the container is given at most. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub limits: BTreeMap<String, Quantity>,
}
