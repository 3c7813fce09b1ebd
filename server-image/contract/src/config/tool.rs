//! A declared tool, and the HTTP request that a call of it makes.

use serde::{Deserialize, Serialize};

/// One declared tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Name, unique among the tools of the server.
    pub name: String,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool does, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments; an object schema. Default: no arguments.
    #[serde(default = "no_arguments")]
    pub input_schema: Schema,
    /// The HTTP request that a call makes.
    pub http: ToolRequest,
    /// What is otherwise where the tool is served over one transport.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub overrides: Overrides,
}

/// A JSON Schema.
pub type Schema = serde_json::Map<String, serde_json::Value>;

/// The schema of a tool that takes no arguments.
pub fn no_arguments() -> Schema {
    Schema::from_iter([("type".to_owned(), "object".into()), ("additionalProperties".to_owned(), false.into())])
}

/// How clients reach declared tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedOver {
    /// Over standard input and output, a local client.
    Stdio,
    /// Over HTTP, in whatever form.
    Http,
}

/// What is otherwise over one transport.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overrides {
    /// Over standard input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Override>,
    /// Over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Override>,
}

/// What stands in place of a tool's own; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// Another description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Another schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Schema>,
    /// Another request, as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<ToolRequest>,
}

impl Overrides {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stdio.is_none() && self.http.is_none()
    }
}

impl Tool {
    /// The tool as it is over a transport.
    #[must_use]
    pub fn over(mut self, transport: ServedOver) -> Self {
        let Overrides { stdio, http } = std::mem::take(&mut self.overrides);
        let Some(other) = (match transport {
            ServedOver::Stdio => stdio,
            ServedOver::Http => http,
        }) else {
            return self;
        };
        let Override { description, input_schema, http } = other;
        self.description = description.or(self.description);
        self.input_schema = input_schema.unwrap_or(self.input_schema);
        self.http = http.unwrap_or(self.http);
        self
    }
}

/// The HTTP request behind a declared tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRequest {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`. Default: `GET`.
    #[serde(default = "get")]
    pub method: String,
    /// URL with `{argument}` placeholders in path and query; every value is percent-encoded.
    pub url: String,
    /// Longest wait for the whole answer, in milliseconds. Default: [`ToolRequest::TIMEOUT_MS`].
    #[serde(default = "tool_timeout_ms")]
    pub timeout_ms: u64,
    /// Headers that are sent with each request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<ToolHeader>,
}

impl ToolRequest {
    /// Default of a tool's `timeout`: 30 seconds.
    pub const TIMEOUT_MS: u64 = 30_000;
    /// The shortest and the longest.
    pub const TIMEOUT_BOUNDS: (u64, u64) = (1, 24 * 60 * 60 * 1000);
}

fn get() -> String {
    "GET".to_owned()
}

fn tool_timeout_ms() -> u64 {
    ToolRequest::TIMEOUT_MS
}

/// A header of a declared tool's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolHeader {
    /// Header name.
    pub name: String,
    /// Where the value comes from.
    #[serde(flatten)]
    pub value: HeaderValue,
}

/// A header's value: written down, or in an environment variable that the pod takes from a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HeaderValue {
    /// The value itself.
    Value(String),
    /// Name of the environment variable that holds the value.
    Env(String),
}
