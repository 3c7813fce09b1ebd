//! Source `tools`: declared tools over HTTP APIs.

use kube::{KubeSchema, core::Duration};
use serde::{Deserialize, Serialize};

/// One declared tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Name, unique in this server: letters, digits and `_ . -`, at most 128 (MCP specification, tool names).
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9_.-]+$"))]
    pub name: String,
    /// Display name. Default: none, clients show the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub title: Option<String>,
    /// What the tool does, for the model that chooses it. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub description: Option<String>,
    /// JSON Schema of the arguments, an object schema. Calls that do not fit it are answered with an error that says
    /// why, and the API is not called. Default: no arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub input_schema: Option<serde_json::Map<String, serde_json::Value>>,
    /// The HTTP request that a call makes.
    pub http: ToolHttp,
    /// What is otherwise where the same tools are served over one transport. Default: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ToolOverrides>,
}

impl Tool {
    /// The request that pods make, which serve HTTP.
    pub fn request_in_pods(&self) -> &ToolHttp {
        let of_http = self.overrides.as_ref().and_then(|overrides| overrides.http.as_ref());
        of_http.and_then(|of_http| of_http.http.as_ref()).unwrap_or(&self.http)
    }
}

/// What is otherwise over one transport.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolOverrides {
    /// For a local client, where `mooring-server serve --transport stdio` serves the tools. Pods ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<ToolOverride>,
    /// For clients over HTTP, which is to say in pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<ToolOverride>,
}

/// What stands in place of a tool's own; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolOverride {
    /// Another description. Default: the tool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub description: Option<String>,
    /// Another schema. Default: the tool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub input_schema: Option<serde_json::Map<String, serde_json::Value>>,
    /// Another request, as a whole. Default: the tool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<ToolHttp>,
}

/// The HTTP request behind a declared tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolHttp {
    /// Method. Default: GET. With POST, PUT and PATCH the arguments that the URL does not name are sent as a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<ToolMethod>,
    /// URL, with `{argument}` placeholders in path and query. Values are percent-encoded; a query pair whose optional
    /// argument is absent is left out.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = Rule::new("self.matches('^https?://[A-Za-z0-9.-]+(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?([/?].*)?$') && !self.contains('#') && !self.contains(' ')")
        .message("url is http:// or https:// with a fixed host and, where it needs one, a port from 1 to 65535, then path and query; {argument} may stand in path and query only"))]
    pub url: String,
    /// Longest wait for the whole answer, for example `10s`. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) > duration('0s') && duration(self) <= duration('24h')")
        .message("timeout is a duration such as 10s or 1m30s, above 0 and at most 24h"))]
    pub timeout: Option<Duration>,
    /// Headers that are sent with each request. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub headers: Vec<ToolHeader>,
}

/// Method of a declared tool's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "they are HTTP's own names")]
pub enum ToolMethod {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl ToolMethod {
    /// As HTTP has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// A header of a declared tool's request: exactly one of `value` and `secret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.value) != has(self.secret)").message("set exactly one of value and secret"))]
pub struct ToolHeader {
    /// Header name.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9-]+$"))]
    pub name: String,
    /// The value, written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096), regex(pattern = r"^[ -~]*$"))]
    pub value: Option<String>,
    /// The value, taken from a Secret in the same namespace. A changed Secret takes effect with the next rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<HeaderSecret>,
}

/// One entry of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderSecret {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
    /// Entry of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}
