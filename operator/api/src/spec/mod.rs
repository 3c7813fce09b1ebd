//! The spec: what a user writes. Each part has a file; every field is optional unless it is meaningless without, has
//! its default in its description, and an absent field means the same as that default.

mod auth;
mod autoscaling;
mod cors;
mod exposure;
mod http;
mod limits;
mod network;
mod pod;
mod rollout;
mod sessions;
mod tools;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub use auth::{Auth, DeclaredKey, KeySecret};
pub use autoscaling::Autoscaling;
pub use cors::Cors;
pub use exposure::{Ingress, IngressTls};
pub use http::{HttpSource, HttpTransport, ImagePullPolicy};
pub use limits::{FrontDoor, Limits, ResourceRequirements};
pub use network::NetworkPolicy;
pub use pod::{Pod, SecretName, Volume};
pub use rollout::{Rollout, RolloutStrategy};
pub use sessions::{SessionMode, Sessions};
pub use tools::{HeaderSecret, Tool, ToolHeader, ToolHttp, ToolMethod, ToolOverride, ToolOverrides};

use crate::McpServerStatus;

/// An MCP server, run on Kubernetes behind a front door that checks Host, Origin and key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "mooring.dev",
    version = "v1alpha1",
    kind = "McpServer",
    plural = "mcpservers",
    singular = "mcpserver",
    shortname = "mcps",
    category = "mooring",
    namespaced,
    status = "McpServerStatus",
    derive = "PartialEq",
    doc = "McpServer runs an MCP server (Model Context Protocol) on Kubernetes. The operator makes a Deployment, a Service, keys, a NetworkPolicy and, where asked for, an Ingress of it; a front door in every pod checks Host, Origin and key and keeps the server reachable for every client.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$')")
        .message("metadata.name: at most 40 characters, lower-case letters, digits and hyphens, beginning with a letter (it names Services and Secrets)")
)]
#[x_kube(
    validation = Rule::new("[has(self.tools), has(self.http)].filter(x, x).size() == 1")
        .message("set exactly one source: tools or http"),
    validation = Rule::new("!(has(self.sessions) && has(self.sessions.mode) && self.sessions.mode == 'Stateless' && has(self.http) && has(self.http.transport) && self.http.transport == 'sse')")
        .message("sessions.mode Stateless does not go with http.transport sse: that transport is made of sessions"),
    validation = Rule::new("!(has(self.replicas) && has(self.autoscaling))")
        .message("set replicas or autoscaling, not both: autoscaling decides how many pods there are")
)]
pub struct McpServerSpec {
    /// Source: tools declared here and served by the front door itself, each over an HTTP API. Any replica can answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub tools: Option<Vec<Tool>>,

    /// Source: any HTTP MCP server, run as a sidecar of the front door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,

    /// How many pods. When absent, the number is left to whoever scales the Deployment, beginning with 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,

    /// How many pods, by their use of CPU, in place of `replicas`. Default: none; `replicas` counts, or whoever scales the
    /// Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,

    /// What holds for sessions. Default: they are kept, each on the pod that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,

    /// How pods are replaced by newer ones. Default: one at a time, each when a newer one is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,

    /// Public names of the server: the rules of the Ingress, and names that the front door accepts as Host with any
    /// port. DNS names in lower case. Default: none; with `ingress` and the operator's base domain,
    /// `<name>.<namespace>.<base domain>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("self.all(h, h.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$') && !h.matches('^[0-9.]+$'))")
            .message("hosts are DNS names in lower case, without wildcard, scheme, port, path or trailing dot; other names belong in allowedHosts")
    )]
    pub hosts: Vec<String>,

    /// Further names that the front door accepts as Host, which get no Ingress rule: `10.0.0.5:8443` exactly, or
    /// `mcp.internal:*` with any port. Default: none. The Service's own names and loopback names are always accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 260)))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("self.all(h, h.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?|[[][0-9a-f:.]+[]])(:(([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])|[*]))?$'))")
            .message("allowedHosts are name, name:port or name:* in lower case; IPv6 addresses stand in brackets; no scheme, path, wildcard name or trailing dot")
    )]
    pub allowed_hosts: Vec<String>,

    /// Public path prefix, so that several servers share a host; the endpoint is `<path>/mcp`. Default: `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^/([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?$') && !self.matches('/[.][.]?(/|$)')")
        .message("path begins with / and does not end with one; segments are letters, digits and . _ ~ -, and none is . or .."))]
    pub path: Option<String>,

    /// Origins that browsers may call from, as browsers send them: `https://app.example.com`. Requests without an
    /// Origin header, which is to say every client but a browser, pass. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 260)))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("self.all(o, o.matches('^[a-z][a-z0-9+.-]*://([a-z0-9]([-a-z0-9.]*[a-z0-9])?|[[][0-9a-f:.]+[]])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$'))")
            .message("origins are scheme://host or scheme://host:port in lower case, without path, trailing slash or wildcard")
    )]
    pub origins: Vec<String>,

    /// Which of these origins' pages may read answers, and how (CORS). Default: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors: Option<Cors>,

    /// Proxies in front, such as the ingress controller's pods, by address or network (CIDR): what they say of the client in
    /// `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host` reaches the server, the first with their own address
    /// added. From anybody else these headers are replaced by what the front door saw. Whoever can send requests from such
    /// an address can claim to be any client. An empty list trusts nobody. Default: what the operator was started with as
    /// `--trusted-proxy`, nobody without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 43)))]
    #[x_kube(
        merge_strategy = ListMerge::Set,
        validation = Rule::new("self.all(p, p.matches('^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])[.]){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(/(3[0-2]|[12]?[0-9]))?$') || p.matches('^[0-9a-f]*:[0-9a-f:]*:[0-9a-f]*(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?$'))")
            .message("trustedProxies are IP addresses, or networks such as 10.244.0.0/16 and fd00::/8, in lower case")
    )]
    pub trusted_proxies: Option<Vec<String>>,

    /// Asks for an Ingress. Default: none; the Service is then the way in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Ingress>,

    /// Who may call. Default: whoever has a key; keys are made with `mooring keys create`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,

    /// What one call may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,

    /// The front door's own container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_door: Option<FrontDoor>,

    /// The pods, beyond their containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,

    /// The NetworkPolicy of the pods. Default: the front door's ports are open, the backend's port is open to nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
}

impl McpServerSpec {
    /// The public path prefix.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }
}
