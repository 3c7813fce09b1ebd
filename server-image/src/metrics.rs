//! What is counted. Labels are static words: no name of a server, key, tool or host is ever a label.

use std::sync::Arc;

use mooring_contract::door_status::Unreachable;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::session::registry::InUse;
use crate::wire::load::{Permit, Room};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusClass {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

/// Which listener a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Listener {
    listener: &'static str,
}

impl Listener {
    /// For MCP clients.
    pub const PUBLIC: Self = Self { listener: "public" };
    /// For probes, scrapes and the operator.
    pub const MANAGEMENT: Self = Self { listener: "management" };
    /// For other pods of the same server.
    pub const PEER: Self = Self { listener: "peer" };
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cut {
    listener: &'static str,
    reason: &'static str,
}

/// All metrics of one front door.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<StatusClass, Counter>,
    messages: Counter,
    refusals: Family<Reason, Counter>,
    backend_errors: Family<Reason, Counter>,
    in_flight: Gauge,
    body_bytes: Gauge,
    streams: Gauge,
    sessions: Gauge,
    reloads: Counter,
    connections: Family<Listener, Gauge>,
    cut: Family<Cut, Counter>,
    forwards: Counter,
    forward_errors: Family<Reason, Counter>,
    tasks: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("mooring_server"),
            requests: Family::default(),
            messages: Counter::default(),
            refusals: Family::default(),
            backend_errors: Family::default(),
            in_flight: Gauge::default(),
            body_bytes: Gauge::default(),
            streams: Gauge::default(),
            sessions: Gauge::default(),
            reloads: Counter::default(),
            connections: Family::default(),
            cut: Family::default(),
            forwards: Counter::default(),
            forward_errors: Family::default(),
            tasks: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("requests", "Requests answered on the public listener", metrics.requests.clone());
        registry.register("messages", "Messages admitted, each of a batch counted", metrics.messages.clone());
        registry.register("refusals", "Requests refused by the front door itself", metrics.refusals.clone());
        registry.register("backend_errors", "Exchanges that the backend failed", metrics.backend_errors.clone());
        registry.register("in_flight", "Requests whose answer has not ended", metrics.in_flight.clone());
        registry.register("body_bytes", "Bytes of request bodies that are held", metrics.body_bytes.clone());
        registry.register("event_streams", "Open event streams", metrics.streams.clone());
        registry.register("sessions", "Sessions that this pod owns", metrics.sessions.clone());
        registry.register("reloads", "Changes of configuration or keys that came into force", metrics.reloads.clone());
        registry.register("connections", "Open connections", metrics.connections.clone());
        registry.register(
            "connections_cut",
            "Connections and HTTP/2 streams that the front door closed unasked",
            metrics.cut.clone(),
        );
        registry.register("forwards", "Requests passed on to the pod of their session", metrics.forwards.clone());
        registry.register(
            "forward_errors",
            "Requests answered 404 because the pod of their session could not be reached",
            metrics.forward_errors.clone(),
        );
        registry.register("tasks", "Tasks of the process that have not ended", metrics.tasks.clone());
        metrics
    }
}

/// Counts one exchange, until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    requests: Gauge,
    streams: Option<Gauge>,
    room: Permit,
    session: Option<InUse>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.requests.dec();
        if let Some(streams) = &self.streams {
            streams.dec();
        }
    }
}

impl InFlight {
    /// Counts the exchange as an event stream, too.
    pub fn as_stream(&mut self, metrics: &Arc<Metrics>) {
        if self.streams.is_none() {
            metrics.streams.inc();
            self.streams = Some(metrics.streams.clone());
        }
    }

    /// Keeps a session in use.
    pub fn keeps(&mut self, session: Option<InUse>) {
        self.session = session;
    }

    /// Takes other room than it had.
    pub fn moves_to(&mut self, room: Permit) {
        self.room = room;
    }
}

/// Counts one session, until it is dropped.
#[derive(Debug)]
pub struct Kept(Gauge);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Counts an exchange that begins, and has room.
    pub fn begin(&self, room: Permit) -> InFlight {
        self.in_flight.inc();
        InFlight { requests: self.in_flight.clone(), streams: None, room, session: None }
    }

    /// Room for the body of a request, where all of them together have `limit` bytes.
    pub fn room_for_body(&self, limit: u64) -> Room {
        Room::among(&self.body_bytes, limit)
    }

    /// Open connections of that listener.
    pub fn connections(&self, listener: Listener) -> Gauge {
        self.connections.get_or_create_owned(&listener)
    }

    /// Counts a connection, or a stream of one, that was closed unasked.
    pub fn cut(&self, Listener { listener }: Listener, reason: &'static str) {
        self.cut.get_or_create(&Cut { listener, reason }).inc();
    }

    /// Counts the messages of a request.
    pub fn messages(&self, number: usize) {
        self.messages.inc_by(number as u64);
    }

    /// Counts a session that begins.
    pub fn session(&self) -> Kept {
        self.sessions.inc();
        Kept(self.sessions.clone())
    }

    /// Counts a request that is passed on to another pod.
    pub fn forwarded(&self) {
        self.forwards.inc();
    }

    /// Counts one that could not be.
    pub fn forward_failed(&self, reason: Unreachable) {
        let reason = match reason {
            Unreachable::Refused => "refused",
            Unreachable::TimedOut => "timed_out",
            Unreachable::Unproved => "unproved",
            Unreachable::Failed | Unreachable::Other => "failed",
        };
        self.forward_errors.get_or_create(&Reason { reason }).inc();
    }

    /// Counts an answer.
    pub fn answered(&self, status: http::StatusCode) {
        let status = match status.as_u16() {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        self.requests.get_or_create(&StatusClass { status }).inc();
    }

    /// Counts a refusal.
    pub fn refused(&self, refusal: &crate::refusal::Refusal) {
        let family = if refusal.is_backend() { &self.backend_errors } else { &self.refusals };
        family.get_or_create(&Reason { reason: refusal.label() }).inc();
    }

    /// Counts a reload.
    pub fn reloaded(&self) {
        self.reloads.inc();
    }

    /// Tells how many tasks have not ended. Nobody counts them but the runtime, and it is asked when a scraper asks.
    pub fn tasks(&self, alive: usize) {
        self.tasks.set(i64::try_from(alive).unwrap_or(i64::MAX));
    }

    /// The text for a scraper: OpenMetrics where it is asked for, else the classic format. With its media type.
    pub fn text(&self, open_metrics: bool) -> Result<(&'static str, String), std::fmt::Error> {
        let mut text = String::new();
        if open_metrics {
            prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
            return Ok(("application/openmetrics-text; version=1.0.0; charset=utf-8", text));
        }
        prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry)?;
        Ok(("text/plain; version=0.0.4; charset=utf-8", text))
    }
}
