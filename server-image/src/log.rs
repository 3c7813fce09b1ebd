//! Logs: how they are written, and the one line of each request. No credential, query, session id, argument or body is
//! ever in it.

mod lines;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use tokio::time::Instant;
use tracing_subscriber::EnvFilter;

pub use self::lines::Lines;
use crate::clock;
use crate::refusal::Refusal;
use crate::who::Principal;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Starts logging to standard error. `level` is a level or a filter (`info`, `mooring_server=debug`).
pub fn start(format: Format, level: &str) -> anyhow::Result<Arc<Lines>> {
    let filter = EnvFilter::try_new(level)?;
    let lines = Lines::start(std::io::stderr(), |lost| tracing::warn!("{lost} log lines were lost: nobody read them"))?;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(Arc::clone(&lines)).log_internal_errors(false); // they would go to standard error, and panic where it is gone
    let started = match format {
        Format::Json => builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init(),
        Format::Text => builder.with_ansi(false).with_target(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging cannot be set up: {error}"))?;
    Ok(lines)
}

/// The line of one request, collected on its way.
#[derive(Debug)]
pub struct Entry {
    request_id: HeaderValue,
    http_method: Method,
    caller: Option<Principal>,
    method: Option<String>,
    refusal: Option<&'static str>,
    is_health: bool,
}

impl Entry {
    /// Begins with what is safe to log of a request.
    pub fn new(parts: &Parts, request_id: &HeaderValue) -> Self {
        Self {
            request_id: request_id.clone(),
            http_method: parts.method.clone(),
            caller: None,
            method: None,
            refusal: None,
            is_health: parts.uri.path().ends_with("/health") || parts.uri.path().ends_with("/health/ready"),
        }
    }

    /// Who calls.
    pub fn caller(&mut self, principal: &Principal) {
        self.caller = Some(principal.clone());
    }

    /// What is called. A method's name is the client's text, so only a short one is kept.
    pub fn method(&mut self, method: Option<&str>) {
        self.method = method.map(|method| method.get(..method.floor_char_boundary(64)).unwrap_or_default().to_owned());
    }

    /// Why it was refused.
    pub fn refused(&mut self, refusal: &Refusal) {
        self.refusal = Some(refusal.label());
    }

    /// Writes the line: refusals and failures at info, all else at debug.
    pub fn write(self, status: StatusCode, arrival: Instant) {
        let Self { request_id, http_method, caller, method, refusal, is_health } = self;
        let milliseconds = || milliseconds_since(arrival);
        let request_id = request_id.to_str().unwrap_or_default();
        let (status, refusal) = (status.as_u16(), refusal.unwrap_or_default());
        let (caller, method) = (caller.as_ref().map_or("", Principal::name), method.unwrap_or_default());
        if !is_health && (!refusal.is_empty() || status >= 500) {
            tracing::info!(request_id, %http_method, method, caller, status, refusal, milliseconds = milliseconds(), "request");
        } else {
            tracing::debug!(request_id, %http_method, method, caller, status, refusal, milliseconds = milliseconds(), "request");
        }
    }
}

/// Writes that a request failed whose answer had begun: the line of the request says how it began.
pub fn failed(request_id: &HeaderValue, caller: &Principal, refusal: &Refusal, arrival: Instant) {
    let (request_id, caller) = (request_id.to_str().unwrap_or_default(), caller.name());
    let (refusal, milliseconds) = (refusal.label(), milliseconds_since(arrival));
    tracing::info!(request_id, caller, refusal, milliseconds, "a request failed after its answer had begun");
}

fn milliseconds_since(arrival: Instant) -> u64 {
    u64::try_from((clock::instant() - arrival).as_millis()).unwrap_or(u64::MAX)
}

/// The innermost reason, for the log.
pub fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
