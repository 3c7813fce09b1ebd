//! What one call may cost, and all callers together.

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// What one call may cost, and all callers together. What is absent has its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Largest request body, in bytes.
    pub body_bytes: u64,
    /// Most bytes of request bodies that are held at once; where it is below `body_bytes`, that counts.
    pub body_bytes_total: u64,
    /// Longest time from a request's first byte to the end of its answer, in milliseconds.
    pub call_timeout_ms: u64,
    /// Most open connections.
    pub connections: u64,
    /// Most requests that are answered at once, besides the streams of GET and `subscriptions/listen`.
    pub requests: u64,
    /// Most event streams that one caller may hold open.
    pub streams_per_principal: u64,
    /// Largest head of a request, in bytes.
    pub header_bytes: u64,
    /// Most headers of a request.
    pub header_count: u64,
    /// Longest target of a request, in bytes.
    pub uri_bytes: u64,
    /// Longest time from a head's first byte to its last, in milliseconds.
    pub header_timeout_ms: u64,
    /// Longest time for a request's body to arrive, in milliseconds.
    pub body_timeout_ms: u64,
    /// Longest time without a request on a connection, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Longest time in which a client takes nothing of what is ready for it, in milliseconds.
    pub write_timeout_ms: u64,
}

/// One limit: its field, how it is read, and the least and the most that it may be.
pub type Bound = (&'static str, fn(&Limits) -> u64, u64, u64);

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl Limits {
    /// The bounds of every limit, which the API server holds, too.
    pub const BOUNDS: [Bound; 13] = [
        ("bodyBytes", |limits| limits.body_bytes, 1024, 1024 * 1024 * 1024),
        ("bodyBytesTotal", |limits| limits.body_bytes_total, 1024, 64 * 1024 * 1024 * 1024),
        ("callTimeoutMs", |limits| limits.call_timeout_ms, SECOND, DAY),
        ("connections", |limits| limits.connections, 1, 65_536),
        ("requests", |limits| limits.requests, 1, 65_536),
        ("streamsPerPrincipal", |limits| limits.streams_per_principal, 1, 65_536),
        ("headerBytes", |limits| limits.header_bytes, 1024, 65_536),
        ("headerCount", |limits| limits.header_count, 16, 256),
        ("uriBytes", |limits| limits.uri_bytes, 256, 32_768),
        ("headerTimeoutMs", |limits| limits.header_timeout_ms, SECOND, 10 * MINUTE),
        ("bodyTimeoutMs", |limits| limits.body_timeout_ms, SECOND, DAY),
        ("idleTimeoutMs", |limits| limits.idle_timeout_ms, 5 * SECOND, DAY),
        ("writeTimeoutMs", |limits| limits.write_timeout_ms, SECOND, HOUR),
    ];

    /// Which of them is out of its bounds, if any.
    pub fn check(&self) -> Result<(), Invalid> {
        let wrong = Self::BOUNDS.iter().find(|(_, read, least, most)| !(*least..=*most).contains(&read(self)));
        wrong.map_or(Ok(()), |(field, read, least, most)| {
            Err(Invalid::new(format!("limits.{field}"), format!("{} is not from {least} to {most}", read(self))))
        })
    }

    /// Default of `limits.bodyBytes`: 4 MiB, the limit of the SDKs.
    pub const BODY_BYTES: u64 = 4 * 1024 * 1024;
    /// Default of `limits.bodyBytesTotal`: 64 MiB, a quarter of the memory that a front door has by default.
    pub const BODY_BYTES_TOTAL: u64 = 64 * 1024 * 1024;
    /// Default of `limits.callTimeout`: 10 minutes.
    pub const CALL_TIMEOUT_MS: u64 = 10 * 60 * 1000;
    /// Default of `limits.idleTimeout`: longer than ingresses keep a connection (Traefik 90 s, nginx 60 s), so that none
    /// is closed here just as a request is sent.
    pub const IDLE_TIMEOUT_MS: u64 = 120 * 1000;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: Self::BODY_BYTES,
            body_bytes_total: Self::BODY_BYTES_TOTAL,
            call_timeout_ms: Self::CALL_TIMEOUT_MS,
            connections: 4096,
            requests: 1024,
            streams_per_principal: 1024,
            header_bytes: 16 * 1024,
            header_count: 100,
            uri_bytes: 8 * 1024,
            header_timeout_ms: 10 * 1000,
            body_timeout_ms: 60 * 1000,
            idle_timeout_ms: Self::IDLE_TIMEOUT_MS,
            write_timeout_ms: 60 * 1000,
        }
    }
}
