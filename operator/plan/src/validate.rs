//! What the API server's rules cannot see, and the front door could not serve. Each refusal names the field.

use std::collections::BTreeSet;

use mooring_api::spec::{HttpSource, Pod, ResourceRequirements, Tool, ToolHttp};
use mooring_api::{McpServer, McpServerSpec, Reason};
use mooring_contract::Network;
use mooring_contract::config::check_tools;

use crate::outcome::Rejection;
use crate::{desired, names, restricted};

/// A rejection for what the spec says.
pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Rejection {
    Rejection { reason: Reason::InvalidSpec, field: field.into(), message: message.into() }
}

/// Checks the spec.
pub(crate) fn validate(server: &McpServer) -> Result<(), Rejection> {
    let spec = &server.spec;
    match (&spec.tools, &spec.http) {
        (Some(tools), None) => validate_tools(tools)?,
        (None, Some(http)) => validate_http(http, spec.pod.as_ref())?,
        _ => return Err(invalid("spec", "set exactly one source: tools or http")),
    }
    validate_autoscaling(spec)?;
    validate_trusted_proxies(spec)?;
    restricted::check(spec)
}

fn validate_trusted_proxies(spec: &McpServerSpec) -> Result<(), Rejection> {
    let wrong = spec.trusted_proxies.iter().flatten().find_map(|proxy| proxy.parse::<Network>().err());
    wrong.map_or(Ok(()), |error| Err(invalid("trustedProxies", error.to_string())))
}

/// Kubernetes measures the use of CPU against what is requested, and not at all where one container requests none.
fn validate_autoscaling(spec: &McpServerSpec) -> Result<(), Rejection> {
    if spec.autoscaling.is_none() {
        return Ok(());
    }
    if spec.replicas.is_some() {
        return Err(invalid("autoscaling", "set replicas or autoscaling, not both"));
    }
    let missing = |container: &str, field: &str| {
        let message = format!(
            "container {container} requests no CPU, so there is nothing to measure its use against: set {field}.resources.requests.cpu"
        );
        Err(invalid("autoscaling", message))
    };
    // A limit counts as the request where there is none.
    let requests_cpu = |resources: &ResourceRequirements| {
        resources.requests.contains_key("cpu") || resources.limits.contains_key("cpu")
    };
    let of_front_door = spec.front_door.as_ref().and_then(|front_door| front_door.resources.as_ref());
    if !of_front_door.is_none_or(requests_cpu) {
        return missing(names::FRONT_DOOR, "frontDoor");
    }
    match &spec.http {
        Some(http) if !http.resources.as_ref().is_some_and(requests_cpu) => missing(names::SERVER, "http"),
        _ => Ok(()),
    }
}

fn validate_tools(tools: &[Tool]) -> Result<(), Rejection> {
    for tool in tools {
        let field = format!("tools[{}]", tool.name);
        validate_headers(&tool.http).map_err(|message| invalid(format!("{field}.http.headers"), message))?;
        let overrides = tool.overrides.as_ref();
        let stdio = overrides.and_then(|overrides| overrides.stdio.as_ref());
        let http = overrides.and_then(|overrides| overrides.http.as_ref());
        for (transport, other) in [("stdio", stdio), ("http", http)] {
            let Some(request) = other.and_then(|other| other.http.as_ref()) else { continue };
            let field = format!("{field}.overrides.{transport}.http.headers");
            validate_headers(request).map_err(|message| invalid(field, message))?;
        }
    }
    let declared: Vec<_> = tools.iter().map(desired::tool).collect();
    check_tools(&declared).map_err(|wrong| {
        invalid(wrong.field_of(|_, tool| format!("tools[{}]", tool.name), "tools", &declared), wrong.reason)
    })
}

/// What the front door is told of a header no longer shows it.
fn validate_headers(http: &ToolHttp) -> Result<(), String> {
    let wrong = http.headers.iter().find(|header| header.value.is_some() == header.secret.is_some());
    wrong.map_or(Ok(()), |header| Err(format!("the header {} needs exactly one of value and secret", header.name)))
}

fn validate_http(http: &HttpSource, pod: Option<&Pod>) -> Result<(), Rejection> {
    let volumes: BTreeSet<_> = pod.iter().flat_map(|pod| &pod.volumes).map(|volume| volume.name.as_str()).collect();
    for mount in &http.volume_mounts {
        if !volumes.contains(mount.name.as_str()) {
            return Err(invalid(
                format!("http.volumeMounts[{}]", mount.mount_path),
                format!("there is no volume {}: add it to pod.volumes", mount.name),
            ));
        }
    }
    Ok(())
}
