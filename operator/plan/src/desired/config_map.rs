//! `<name>.config`: what the front door reads, from the spec and the names under which the server is reached.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use mooring_api::McpServer;
use mooring_api::spec::{Cors, HttpTransport, SessionMode, Tool, ToolHeader, ToolHttp, ToolMethod, ToolOverride};
use mooring_contract::config::{self, Config};

use super::deployment::front_door_image;
use super::front_door::header_variable;
use crate::observed::Observed;
use crate::settings::Settings;
use crate::{claims, names, references};

/// The ConfigMap.
pub(crate) fn config_map(
    server: &McpServer,
    observed: &Observed,
    settings: &Settings,
) -> Result<ConfigMap, serde_json::Error> {
    Ok(ConfigMap {
        metadata: names::metadata(server, names::config(&server.name_any())),
        data: Some(config(server, observed, settings).to_config_map_data()?),
        ..ConfigMap::default()
    })
}

fn config(server: &McpServer, observed: &Observed, settings: &Settings) -> Config {
    Config {
        version: config::VERSION,
        server: config::Identity {
            namespace: names::namespace(server),
            name: server.name_any(),
            uid: server.uid().unwrap_or_default(),
        },
        path: server.spec.path().to_owned(),
        security: security(server, observed, settings),
        source: source(server),
        limits: limits(server),
        sessions: sessions(server),
    }
}

fn security(server: &McpServer, observed: &Observed, settings: &Settings) -> config::Security {
    let mut hosts = claims::hosts(server, settings);
    hosts.extend(service_names(server, settings));
    config::Security {
        hosts: hosts.into_iter().collect(),
        allowed_hosts: sorted(&server.spec.allowed_hosts),
        origins: sorted(&server.spec.origins),
        cors: cors(server.spec.cors.clone().unwrap_or_default()),
        anonymous: server.spec.auth.as_ref().and_then(|auth| auth.anonymous).unwrap_or(false),
        key_secrets: references::key_secrets(server).into_iter().collect(),
        trusted_proxies: sorted(trusted_proxies(server, observed, settings)),
    }
}

/// Those of the installation wait for its front door: an older one refuses a file with a rule that it does not know, and
/// where it is started anew it has no other.
fn trusted_proxies<'a>(server: &'a McpServer, observed: &Observed, settings: &'a Settings) -> &'a [String] {
    let installed = front_door_image(server, observed, settings) == settings.front_door_image;
    let default = if installed { &settings.trusted_proxies[..] } else { &[] };
    server.spec.trusted_proxies.as_deref().unwrap_or(default)
}

fn cors(cors: Cors) -> config::Cors {
    let Cors { origins, headers, expose_headers, credentials, max_age } = cors;
    config::Cors {
        origins: sorted(&origins),
        headers: sorted(&headers),
        expose_headers: sorted(&expose_headers),
        credentials: credentials.unwrap_or(false),
        max_age_seconds: max_age.map_or(config::Cors::MAX_AGE_SECONDS, |age| milliseconds(age) / 1000),
    }
}

fn sorted(list: &[String]) -> Vec<String> {
    list.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
}

/// The names that cluster DNS has for the Service.
fn service_names(server: &McpServer, settings: &Settings) -> [String; 4] {
    let (name, namespace) = (server.name_any(), names::namespace(server));
    [
        name.clone(),
        format!("{name}.{namespace}"),
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.{}", settings.cluster_domain),
    ]
}

fn source(server: &McpServer) -> config::Source {
    match &server.spec.http {
        Some(http) => config::Source::Http(config::HttpBackend {
            port: u16::try_from(http.port()).unwrap_or_default(), // the schema holds the range
            path: http.path().to_owned(),
            transport: match http.transport() {
                HttpTransport::StreamableHttp => config::Transport::StreamableHttp,
                HttpTransport::Sse => config::Transport::Sse,
            },
        }),
        None => config::Source::Tools(server.spec.tools.iter().flatten().map(tool).collect()),
    }
}

/// A declared tool as the front door reads it.
pub(crate) fn tool(tool: &Tool) -> config::Tool {
    let overrides = tool.overrides.clone().unwrap_or_default();
    config::Tool {
        name: tool.name.clone(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone().unwrap_or_else(config::no_arguments),
        http: request(&tool.http),
        overrides: config::Overrides {
            stdio: overrides.stdio.as_ref().and_then(other),
            http: overrides.http.as_ref().and_then(other),
        },
    }
}

/// An override; an empty one means the same as none.
fn other(other: &ToolOverride) -> Option<config::Override> {
    let ToolOverride { description, input_schema, http } = other;
    let other = config::Override {
        description: description.clone(),
        input_schema: input_schema.clone(),
        http: http.as_ref().map(request),
    };
    (other != config::Override::default()).then_some(other)
}

fn request(http: &ToolHttp) -> config::ToolRequest {
    let mut headers: Vec<_> = http.headers.iter().filter_map(header).collect();
    headers.sort_by(|a, b| a.name.cmp(&b.name));
    config::ToolRequest {
        method: http.method.unwrap_or(ToolMethod::Get).as_str().to_owned(),
        url: http.url.clone(),
        timeout_ms: http.timeout.map_or(config::ToolRequest::TIMEOUT_MS, |time| milliseconds(time).max(1)),
        headers,
    }
}

fn header(header: &ToolHeader) -> Option<config::ToolHeader> {
    let value = match (&header.value, &header.secret) {
        (Some(value), _) => config::HeaderValue::Value(value.clone()),
        (None, Some(secret)) => config::HeaderValue::Env(header_variable(secret)),
        (None, None) => return None, // the schema wants one of them
    };
    Some(config::ToolHeader { name: header.name.clone(), value })
}

fn limits(server: &McpServer) -> config::Limits {
    let limits = server.spec.limits.clone().unwrap_or_default();
    let default = config::Limits::default();
    let size = |value: Option<i64>, default| value.and_then(|value| u64::try_from(value).ok()).unwrap_or(default);
    let time = |value: Option<kube::core::Duration>, default| value.map_or(default, milliseconds);
    let body_bytes = size(limits.body_bytes, default.body_bytes);
    config::Limits {
        body_bytes,
        body_bytes_total: size(limits.body_bytes_total, default.body_bytes_total).max(body_bytes),
        call_timeout_ms: time(limits.call_timeout, default.call_timeout_ms),
        connections: size(limits.connections, default.connections),
        requests: size(limits.requests, default.requests),
        streams_per_principal: size(limits.streams_per_principal, default.streams_per_principal),
        header_bytes: size(limits.header_bytes, default.header_bytes),
        header_count: size(limits.header_count, default.header_count),
        uri_bytes: size(limits.uri_bytes, default.uri_bytes),
        header_timeout_ms: time(limits.header_timeout, default.header_timeout_ms),
        body_timeout_ms: time(limits.body_timeout, default.body_timeout_ms),
        idle_timeout_ms: time(limits.idle_timeout, default.idle_timeout_ms),
        write_timeout_ms: time(limits.write_timeout, default.write_timeout_ms),
    }
}

/// What holds for sessions, with its defaults.
pub(crate) fn sessions(server: &McpServer) -> config::Sessions {
    let sessions = server.spec.sessions.clone().unwrap_or_default();
    let default = config::Sessions::default();
    let time = |value: Option<kube::core::Duration>, default| value.map_or(default, milliseconds);
    config::Sessions {
        mode: match sessions.mode.unwrap_or_default() {
            SessionMode::Sticky => config::SessionMode::Sticky,
            SessionMode::Stateless => config::SessionMode::Stateless,
        },
        idle_timeout_ms: time(sessions.idle_timeout, default.idle_timeout_ms),
        max_per_pod: sessions.max_per_pod.and_then(|most| u64::try_from(most).ok()).unwrap_or(default.max_per_pod),
        max_age_ms: time(sessions.max_age, default.max_age_ms),
        drain_ms: time(sessions.drain, default.drain_ms),
    }
}

fn milliseconds(duration: kube::core::Duration) -> u64 {
    u64::try_from(std::time::Duration::from(duration).as_millis()).unwrap_or(u64::MAX)
}
