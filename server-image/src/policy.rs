//! Says in the log what is enforced from now on: one line for the rules, and one warning for each way in which the server
//! is open, or closed to everybody. Of keys it knows the number alone.

use std::borrow::Borrow;

use mooring_contract::config::ServedOver;

use crate::keys::KeySet;
use crate::rules::{Backend, Rules};

/// Says it.
pub fn print(rules: &Rules, keys: &KeySet, transport: ServedOver) {
    let source = match &rules.backend {
        Backend::Http(relay) => format!("http on port {}", relay.port),
        Backend::Sse(relay) => format!("http with the older transport on port {}", relay.port),
        Backend::Tools(tools) => format!("{} declared tools", tools.handshake().tool_count.unwrap_or_default()),
    };
    if transport == ServedOver::Stdio {
        // Whoever started this process is the caller: there is no Host, Origin or key.
        tracing::info!(
            server = rules.server.name,
            source,
            message_bytes = rules.body_bytes,
            call_timeout_seconds = rules.call_timeout.as_secs_f64(),
            "enforcing"
        );
        return;
    }
    tracing::info!(
        server = rules.server.name,
        namespace = rules.server.namespace,
        source,
        endpoint = rules.paths.endpoint(),
        hosts = rules.hosts.describe().join(" "),
        origins = listed(&rules.origins.accepted()),
        cors = listed(&rules.origins.readers()),
        trusted_proxies = listed(&rules.proxies.describe()),
        auth = if rules.anonymous { "key or anonymous" } else { "key" },
        keys = keys.len(),
        body_bytes = rules.body_bytes,
        body_bytes_total = rules.body_bytes_total,
        call_timeout_seconds = rules.call_timeout.as_secs_f64(),
        connections = rules.wire.connections,
        requests = rules.requests,
        streams_per_principal = rules.streams,
        sessions = ?rules.sessions.mode,
        revision = rules.revision,
        "enforcing"
    );
    if rules.anonymous {
        tracing::warn!("this server is open: auth.anonymous lets everybody call it without a key");
    } else if keys.len() == 0 {
        tracing::warn!("there are no keys: nobody can call this server");
    }
    if rules.origins.is_open() {
        tracing::warn!("this server is open to pages: * lets a page of any origin call it");
    }
    if rules.proxies.are_everybody() {
        tracing::warn!("everybody is a trusted proxy: any client may claim any address in X-Forwarded-For");
    }
}

fn listed<S: Borrow<str>>(names: &[S]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}
