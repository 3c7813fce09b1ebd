//! What the API server's rules cannot see, and the front door could not serve. Each refusal names the field.

use std::collections::BTreeSet;

use mooring_api::spec::{HttpSource, Pod, ResourceRequirements, Tool, ToolHttp};
use mooring_api::{McpServer, McpServerSpec, Reason};
use mooring_contract::Network;
use mooring_contract::param_header::param_headers;
use serde_json::{Map, Value};

use crate::outcome::Rejection;
use crate::{names, restricted, template};

/// Headers that belong to the connection, which the front door sets itself.
const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

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
    if tools.is_empty() {
        return Err(invalid("tools", "declare at least one tool"));
    }
    let mut names = BTreeSet::new();
    for tool in tools {
        let field = format!("tools[{}]", tool.name);
        if !names.insert(&tool.name) {
            return Err(invalid(field, "another tool has the same name"));
        }
        validate_tool(&field, tool.input_schema.as_ref(), &tool.http)?;
        let overrides = tool.overrides.as_ref();
        let stdio = overrides.and_then(|overrides| overrides.stdio.as_ref());
        let http = overrides.and_then(|overrides| overrides.http.as_ref());
        for (transport, other) in [("stdio", stdio), ("http", http)] {
            let Some(other) = other else { continue };
            let field = format!("{field}.overrides.{transport}");
            let schema = other.input_schema.as_ref().or(tool.input_schema.as_ref());
            validate_tool(&field, schema, other.http.as_ref().unwrap_or(&tool.http))?;
        }
    }
    Ok(())
}

/// A schema, and the request that must fit it.
fn validate_tool(field: &str, schema: Option<&Map<String, Value>>, http: &ToolHttp) -> Result<(), Rejection> {
    let no_arguments = Map::new();
    if let Some(schema) = schema {
        validate_schema(schema).map_err(|message| invalid(format!("{field}.inputSchema"), message))?;
    }
    let schema = schema.unwrap_or(&no_arguments);
    validate_url(&http.url, schema).map_err(|message| invalid(format!("{field}.http.url"), message))?;
    validate_headers(http).map_err(|message| invalid(format!("{field}.http.headers"), message))
}

/// MCP wants an object schema; the keywords that placeholders and headers are checked against must have their form.
fn validate_schema(schema: &Map<String, Value>) -> Result<(), String> {
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("a tool's arguments are an object: set type: object".to_owned());
    }
    if schema.get("properties").is_some_and(|properties| !properties.is_object()) {
        return Err("properties must be an object, name to schema".to_owned());
    }
    if let Some(required) = schema.get("required") {
        let names = required.as_array().filter(|names| names.iter().all(Value::is_string));
        names.ok_or("required must be a list of property names")?;
    }
    param_headers(schema).map(|_| ()).map_err(|error| error.to_string())
}

fn validate_url(url: &str, schema: &Map<String, Value>) -> Result<(), String> {
    let template = template::parse(url).map_err(|error| error.to_string())?;
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    for placeholder in template.placeholders() {
        let name = placeholder.name;
        if !properties.is_some_and(|properties| properties.contains_key(name)) {
            return Err(format!("{{{name}}} names no property of inputSchema: add it to properties"));
        }
        let is_required = required.is_some_and(|required| required.iter().any(|value| value == name));
        if placeholder.in_path && !is_required {
            return Err(format!("{{{name}}} stands in the path, so it must be in required of inputSchema"));
        }
    }
    Ok(())
}

fn validate_headers(http: &ToolHttp) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for header in &http.headers {
        let name = header.name.to_ascii_lowercase();
        if OWN_HEADERS.contains(&name.as_str()) {
            return Err(format!("the header {} is set by the front door: remove it", header.name));
        }
        if header.value.is_some() == header.secret.is_some() {
            return Err(format!("the header {} needs exactly one of value and secret", header.name));
        }
        if !names.insert(name) {
            return Err(format!("the header {} is there twice; upper and lower case are the same", header.name));
        }
    }
    Ok(())
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
