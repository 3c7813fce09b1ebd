//! What a configuration must be beyond its form. The operator holds what is declared in an McpServer to it, and the front
//! door whatever it is given; the API server's own rules refuse no less.

use std::collections::BTreeSet;

use super::{Config, Cors, Override, Schema, SessionMode, Source, Tool, ToolHeader, ToolRequest, Transport};
use crate::Invalid;
use crate::param_header::{is_token, param_headers};
use crate::url_template;

/// Most tools of one server.
const TOOLS: usize = 128;
/// Longest name of a tool (MCP specification, tool names).
const TOOL_NAME: usize = 128;
/// Longest display name.
const TITLE: usize = 256;
/// Longest description.
const DESCRIPTION: usize = 16 * 1024;
/// Methods of a declared tool's request.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// Most headers of a declared tool's request.
const HEADERS: usize = 32;
/// Longest name of one.
const HEADER_NAME: usize = 128;
/// Longest value of one that is written down.
const HEADER_VALUE: usize = 4096;
/// Longest public path prefix.
const PATH: usize = 128;
/// Longest path of a backend.
const BACKEND_PATH: usize = 256;

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

impl Config {
    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.server.name.trim().is_empty() || self.server.name.contains(char::is_control) {
            return Err(Invalid::new("server.name", "write a name; clients show it"));
        }
        check_path(&self.path).map_err(|reason| Invalid::new("path", reason))?;
        match &self.source {
            Source::Tools(tools) => check_tools(tools).map_err(|wrong| Invalid {
                field: wrong.field_of(|index, _| format!("source.tools[{index}]"), "source.tools", tools),
                reason: wrong.reason,
            })?,
            Source::Http(backend) => {
                if backend.port == 0 {
                    return Err(Invalid::new("source.http.port", "the port must be a number from 1 to 65535"));
                }
                check_backend_path(&backend.path).map_err(|reason| Invalid::new("source.http.path", reason))?;
            }
        }
        if self.sessions.mode == SessionMode::Stateless && self.speaks_the_older_transport() {
            return Err(Invalid::new(
                "sessions.mode",
                "Stateless does not go with transport sse, which is made of sessions",
            ));
        }
        if self.security.cors.max_age_seconds > Cors::MAX_AGE_SECONDS_MOST {
            let reason = format!("it must be at most {}", Cors::MAX_AGE_SECONDS_MOST);
            return Err(Invalid::new("security.cors.maxAgeSeconds", reason));
        }
        self.limits.check()
    }

    fn speaks_the_older_transport(&self) -> bool {
        matches!(&self.source, Source::Http(backend) if backend.transport == Transport::Sse)
    }
}

fn check_path(path: &str) -> Result<(), &'static str> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    let is_segment = |text: &str| !matches!(text, "" | "." | "..") && text.bytes().all(legal);
    match path.strip_prefix('/') {
        Some("") => Ok(()),
        Some(rest) if path.len() <= PATH && rest.split('/').all(is_segment) => Ok(()),
        _ => Err(
            "it begins with / and does not end with one, and has at most 128 characters; segments are letters, digits \
                  and . _ ~ -, and none is . or ..",
        ),
    }
}

fn check_backend_path(path: &str) -> Result<(), String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._~/%-".contains(&byte);
    if path.starts_with('/') && path.len() <= BACKEND_PATH && path.bytes().all(legal) {
        return Ok(());
    }
    Err(format!(
        "it begins with / and has at most {BACKEND_PATH} characters: letters, digits and . _ ~ - / %, so no query either"
    ))
}

/// Which of the declared tools is wrong, where in it, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongTool {
    /// Its place in the list; none where the list as a whole is wrong.
    pub index: Option<usize>,
    /// The field in it, `http.url`; empty where it is the tool as a whole.
    pub field: String,
    /// What it must be.
    pub reason: String,
}

impl WrongTool {
    /// The whole field: that of the tool as `name` has it, or `list`.
    pub fn field_of(&self, name: impl Fn(usize, &Tool) -> String, list: &str, tools: &[Tool]) -> String {
        let tool = self.index.and_then(|index| Some(name(index, tools.get(index)?)));
        match (tool, self.field.as_str()) {
            (None, _) => list.to_owned(),
            (Some(tool), "") => tool,
            (Some(tool), field) => format!("{tool}.{field}"),
        }
    }
}

/// What is wrong with declared tools, if anything.
pub fn check_tools(tools: &[Tool]) -> Result<(), WrongTool> {
    let of_list = |reason: String| WrongTool { index: None, field: String::new(), reason };
    if tools.is_empty() {
        return Err(of_list("declare at least one tool".to_owned()));
    }
    if tools.len() > TOOLS {
        return Err(of_list(format!("a server has at most {TOOLS} tools")));
    }
    let mut names = BTreeSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let of_tool = |field: String, reason: String| WrongTool { index: Some(index), field, reason };
        if !names.insert(&tool.name) {
            return Err(of_tool(String::new(), "another tool has the same name".to_owned()));
        }
        check_tool(tool).map_err(|Invalid { field, reason }| of_tool(field, reason))?;
    }
    Ok(())
}

fn check_tool(tool: &Tool) -> Result<(), Invalid> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if tool.name.is_empty() || tool.name.len() > TOOL_NAME || !tool.name.bytes().all(legal) {
        let reason = format!("a tool's name is 1 to {TOOL_NAME} letters, digits and _ . -");
        return Err(Invalid::new("name", reason));
    }
    check_length("title", tool.title.as_ref(), TITLE)?;
    check_length("description", tool.description.as_ref(), DESCRIPTION)?;
    check_arguments("", &tool.input_schema, &tool.http)?;
    for (transport, other) in [("stdio", &tool.overrides.stdio), ("http", &tool.overrides.http)] {
        let Some(Override { description, input_schema, http }) = other else { continue };
        check_length(&format!("overrides.{transport}.description"), description.as_ref(), DESCRIPTION)?;
        let (schema, http) = (input_schema.as_ref().unwrap_or(&tool.input_schema), http.as_ref().unwrap_or(&tool.http));
        check_arguments(&format!("overrides.{transport}."), schema, http)?;
    }
    Ok(())
}

fn check_length(field: &str, text: Option<&String>, longest: usize) -> Result<(), Invalid> {
    if text.is_some_and(|text| text.chars().count() > longest) {
        return Err(Invalid::new(field, format!("it has at most {longest} characters")));
    }
    Ok(())
}

/// A schema, and the request that must fit it; their fields begin with `prefix`.
fn check_arguments(prefix: &str, schema: &Schema, http: &ToolRequest) -> Result<(), Invalid> {
    let invalid = |field: &'static str| move |reason: String| Invalid::new(format!("{prefix}{field}"), reason);
    check_schema(schema).map_err(invalid("inputSchema"))?;
    if !METHODS.contains(&http.method.as_str()) {
        return Err(invalid("http.method")(format!("it is one of {}, in capitals", METHODS.join(", "))));
    }
    check_url(&http.url, schema).map_err(invalid("http.url"))?;
    let (least, most) = ToolRequest::TIMEOUT_BOUNDS;
    if !(least..=most).contains(&http.timeout_ms) {
        return Err(invalid("http.timeoutMs")(format!("{} is not from {least} to {most}", http.timeout_ms)));
    }
    check_headers(&http.headers).map_err(invalid("http.headers"))
}

/// MCP wants an object schema; the keywords that placeholders and headers are checked against must have their form.
fn check_schema(schema: &Schema) -> Result<(), String> {
    if schema.get("type").and_then(serde_json::Value::as_str) != Some("object") {
        return Err("a tool's arguments are an object: set type: object".to_owned());
    }
    if schema.get("properties").is_some_and(|properties| !properties.is_object()) {
        return Err("properties must be an object, name to schema".to_owned());
    }
    if let Some(required) = schema.get("required") {
        let names = required.as_array().filter(|names| names.iter().all(serde_json::Value::is_string));
        names.ok_or("required must be a list of property names")?;
    }
    param_headers(schema).map(|_| ()).map_err(|error| error.to_string())
}

fn check_url(url: &str, schema: &Schema) -> Result<(), String> {
    let template = url_template::parse(url).map_err(|error| error.to_string())?;
    let properties = schema.get("properties").and_then(serde_json::Value::as_object);
    let required = schema.get("required").and_then(serde_json::Value::as_array);
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

fn check_headers(headers: &[ToolHeader]) -> Result<(), String> {
    if headers.len() > HEADERS {
        return Err(format!("a request has at most {HEADERS} headers"));
    }
    let mut names = BTreeSet::new();
    for (place, ToolHeader { name, value }) in (1..).zip(headers) {
        if !is_token(name) || name.len() > HEADER_NAME {
            // It is not told: it may be the whole header, with a secret.
            return Err(format!(
                "the name of header {place} is no header name: write letters, digits and -, at most {HEADER_NAME}"
            ));
        }
        let lower = name.to_ascii_lowercase();
        if OWN_HEADERS.contains(&lower.as_str()) {
            return Err(format!("the header {name} is set by the front door: remove it"));
        }
        let printable = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        match value {
            super::HeaderValue::Value(text) if text.len() > HEADER_VALUE || !printable(text) => {
                return Err(format!(
                    "the value of the header {name} must be printable ASCII, at most {HEADER_VALUE} characters"
                ));
            }
            super::HeaderValue::Env(variable) if variable.is_empty() => {
                return Err(format!("the header {name} needs the name of a variable in env"));
            }
            _ => {}
        }
        if !names.insert(lower) {
            return Err(format!("the header {name} is there twice; upper and lower case are the same"));
        }
    }
    Ok(())
}
