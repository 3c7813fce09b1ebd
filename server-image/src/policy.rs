//! Says in the log what is enforced from now on: one line for the rules, and one warning for each way in which the server
//! is open, or closed to everybody. Of keys it knows the number alone.

use std::borrow::Borrow;

use mooring_contract::config::{ServedOver, SessionMode};

use crate::keys::KeySet;
use crate::rules::{Backend, Rules, SessionRules};

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
    let (cors, wire) = (rules.origins.policy(), &rules.wire);
    tracing::info!(
        server = rules.server.name,
        namespace = rules.server.namespace,
        source,
        endpoint = rules.paths.endpoint(),
        hosts = rules.hosts.describe().join(" "),
        origins = listed(&rules.origins.accepted()),
        cors = listed(&rules.origins.readers()),
        cors_headers = cors.headers,
        cors_expose_headers = cors.exposed,
        cors_credentials = cors.credentials,
        cors_max_age_seconds = cors.max_age_seconds,
        trusted_proxies = listed(&rules.proxies.describe()),
        auth = if rules.anonymous { "key or anonymous" } else { "key" },
        keys = keys.len(),
        key_secrets = listed(&rules.key_secrets),
        body_bytes = rules.body_bytes,
        body_bytes_total = rules.body_bytes_total,
        body_timeout_seconds = rules.body_timeout.as_secs_f64(),
        call_timeout_seconds = rules.call_timeout.as_secs_f64(),
        connections = wire.connections,
        requests = rules.requests,
        streams_per_principal = rules.streams,
        header_bytes = wire.header_bytes,
        header_count = wire.header_count,
        header_timeout_seconds = wire.header_timeout.as_secs_f64(),
        uri_bytes = wire.uri_bytes,
        idle_timeout_seconds = wire.idle_timeout.as_secs_f64(),
        write_timeout_seconds = wire.write_timeout.as_secs_f64(),
        sessions = sessions(&rules.sessions),
        revision = rules.revision,
        "enforcing"
    );
    if rules.anonymous {
        tracing::warn!(
            "this server is open: security.anonymous (auth.anonymous of an McpServer) lets everybody call it without a key"
        );
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

/// In one field, because a line has room for no more than 32.
fn sessions(rules: &SessionRules) -> String {
    let SessionRules { mode, idle_timeout, max_per_pod, max_age, drain } = rules;
    match mode {
        SessionMode::Stateless => "stateless".to_owned(),
        SessionMode::Sticky => format!(
            "sticky, max_per_pod {max_per_pod}, idle_timeout {} s, max_age {} s, drain {} s",
            idle_timeout.as_secs_f64(),
            max_age.as_secs_f64(),
            drain.as_secs_f64()
        ),
    }
}

fn listed<S: Borrow<str>>(names: &[S]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}
