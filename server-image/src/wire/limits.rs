//! The limits of the wire, in the form in which they are asked. What happens beyond one is not decided here.

use std::sync::Arc;
use std::time::Duration;

use mooring_contract::config::Limits;

/// The limits that hold before a request is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireLimits {
    /// Most open connections.
    pub connections: usize,
    /// Largest head of a request, from its first byte to the empty line.
    pub header_bytes: usize,
    /// Most headers of a request.
    pub header_count: usize,
    /// Longest target of a request.
    pub uri_bytes: usize,
    /// From a head's first byte to its last.
    pub header_timeout: Duration,
    /// Longest time without a request on a connection.
    pub idle_timeout: Duration,
    /// Longest time in which a client takes nothing of what is ready for it.
    pub write_timeout: Duration,
}

/// Where the limits in force are read, each time when they are needed.
pub type Source = Arc<dyn Fn() -> WireLimits + Send + Sync>;

impl WireLimits {
    /// The management listener's own: it answers probes, scrapes and the operator, whatever the public one does.
    pub fn management() -> Self {
        let header_timeout = Duration::from_secs(5);
        Self { connections: 256, header_timeout, ..Self::from(&Limits::default()) }
    }

    /// For a connection beyond [`Self::connections`], which is kept just long enough to be told so.
    #[must_use]
    pub fn beyond(self) -> Self {
        const SHORT: Duration = Duration::from_secs(1);
        Self {
            header_timeout: self.header_timeout.min(SHORT),
            idle_timeout: self.idle_timeout.min(SHORT),
            write_timeout: self.write_timeout.min(SHORT),
            ..self
        }
    }
}

impl From<&Limits> for WireLimits {
    fn from(limits: &Limits) -> Self {
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Self {
            connections: size(limits.connections),
            header_bytes: size(limits.header_bytes),
            header_count: size(limits.header_count),
            uri_bytes: size(limits.uri_bytes),
            header_timeout: Duration::from_millis(limits.header_timeout_ms),
            idle_timeout: Duration::from_millis(limits.idle_timeout_ms),
            write_timeout: Duration::from_millis(limits.write_timeout_ms),
        }
    }
}
