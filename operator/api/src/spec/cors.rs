//! Which pages may read the server's answers.

use kube::{KubeSchema, core::Duration};
use serde::{Deserialize, Serialize};

/// Cross-origin resource sharing: which pages may read answers, and how. The methods are GET, POST, DELETE and OPTIONS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.credentials) && self.credentials && has(self.origins) && self.origins.exists(o, o == '*'))")
    .message("browsers take no credentials with *: write the origins out, or leave credentials out (a key in a header needs none)"))]
pub struct Cors {
    /// Origins whose pages may read answers; `*` is any. They may call as if `origins` had them; what `origins` has and
    /// this list has not may call without reading. Default: `origins`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 260)))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("self.all(o, o == '*' || o.matches('^[a-z][a-z0-9+.-]*://([a-z0-9]([-a-z0-9.]*[a-z0-9])?|[[][0-9a-f:.]+[]])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$'))")
            .message("origins are *, scheme://host or scheme://host:port in lower case, without path, trailing slash or wildcard name")
    )]
    pub origins: Vec<String>,
    /// Request headers that pages may set. The list replaces the default, but for Mcp-Session-Id and
    /// Mcp-Protocol-Version, which are always allowed, as is Mcp-Param-*. Default: Content-Type, Accept, Authorization,
    /// x-api-key, Mcp-Session-Id, Mcp-Protocol-Version, Last-Event-ID, Mcp-Method, Mcp-Name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9_-]+$")))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub headers: Vec<String>,
    /// Answer headers that pages may read, besides Mcp-Session-Id, WWW-Authenticate and Retry-After. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9_-]+$")))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub expose_headers: Vec<String>,
    /// Whether pages may send cookies and other credentials of the browser. Keys are headers and need it not. Default:
    /// false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<bool>,
    /// How long browsers may keep the answer to a preflight. Default: `600s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+(s|m|h))+$') && duration(self) <= duration('24h')")
        .message("maxAge is a duration in whole seconds such as 600s or 1h, at most 24h"))]
    pub max_age: Option<Duration>,
}
