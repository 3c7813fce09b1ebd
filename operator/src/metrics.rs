//! The operator's own metrics. Labels come from fixed sets, never from names of objects, so that their number is bounded.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// How a pass over one server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Everything is as the spec asks.
    Applied,
    /// Something has to go first, such as the children of an earlier server of the same name.
    Waiting,
    /// The spec cannot be served.
    Rejected,
    /// A step could not be done, and is tried again.
    Failed,
}

impl Pass {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Waiting => "waiting",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    kind: &'static str,
}

/// The metrics, and the registry that they are printed from.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    passes: Family<Outcome, Counter>,
    duration: Histogram,
    queued: Gauge,
    writes: Family<Written, Counter>,
    leader: Gauge,
    servers: Gauge<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let passes = Family::<Outcome, Counter>::default();
        let duration = Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]);
        let (queued, leader, servers) = (Gauge::default(), Gauge::default(), Gauge::default());
        let writes = Family::<Written, Counter>::default();
        let mut registry = Registry::with_prefix("mooring_operator");
        registry.register("reconciles", "Passes over one McpServer, by how they ended", passes.clone());
        registry.register("reconcile_seconds", "How long a pass took", duration.clone());
        registry.register("queue_depth", "McpServers that wait for a pass", queued.clone());
        registry.register("writes", "Writes to the API server, by kind", writes.clone());
        registry.register("leader", "1 while this process holds the Lease", leader.clone());
        registry.register("servers", "McpServers that are watched", servers.clone());
        for pass in [Pass::Applied, Pass::Waiting, Pass::Rejected, Pass::Failed] {
            let _ = passes.get_or_create(&Outcome { outcome: pass.as_str() }); // so that a rate exists before the first one
        }
        Self { registry, passes, duration, queued, writes, leader, servers }
    }
}

impl Metrics {
    /// A pass ended.
    pub fn passed(&self, pass: Pass, took: Duration) {
        self.passes.get_or_create(&Outcome { outcome: pass.as_str() }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// An object of `kind` was written.
    pub fn wrote(&self, kind: &'static str) {
        self.writes.get_or_create(&Written { kind }).inc();
    }

    /// How many servers wait for a pass.
    pub fn queued(&self, servers: usize) {
        self.queued.set(i64::try_from(servers).unwrap_or(i64::MAX));
    }

    /// How many servers there are.
    pub fn servers(&self, servers: usize) {
        self.servers.set(servers as u64);
    }

    /// Whether this process leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
    }

    /// Everything as text, in the OpenMetrics format or, for older scrapers, in Prometheus' own.
    pub fn text(&self, open_metrics: bool) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        if open_metrics {
            prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        } else {
            prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry)?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_these() {
        let metrics = Metrics::default();
        metrics.passed(Pass::Applied, Duration::from_millis(2));
        metrics.wrote("Service");
        metrics.leads(true);
        let text = metrics.text(true).unwrap();
        for line in [
            "mooring_operator_reconciles_total{outcome=\"applied\"} 1",
            "mooring_operator_reconciles_total{outcome=\"failed\"} 0",
            "mooring_operator_writes_total{kind=\"Service\"} 1",
            "mooring_operator_leader 1",
            "mooring_operator_queue_depth 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(metrics.text(false).unwrap().contains("# TYPE mooring_operator_leader gauge"));
    }
}
