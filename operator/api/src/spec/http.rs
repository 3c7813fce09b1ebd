//! Source `http`: any HTTP MCP server, as a sidecar of the front door.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, SecurityContext, VolumeMount};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::ResourceRequirements;

/// An HTTP MCP server, with the container fields that a pod has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpSource {
    /// Image of the MCP server.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,
    /// Command; replaces the image's entrypoint. Default: the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub command: Vec<String>,
    /// Arguments. Default: the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub args: Vec<String>,
    /// Port on which the server speaks HTTP in the pod. Default: 8000. Ports 24080 to 24089 are the front door's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    #[x_kube(validation = Rule::new("self < 24080 || self > 24089").message("ports 24080 to 24089 belong to the front door"))]
    pub port: Option<i32>,
    /// How the server is spoken to. Default: `streamableHttp`. With `sse` it is one that knows only HTTP+SSE, the
    /// transport of 2024-11-05; clients see no difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<HttpTransport>,
    /// Path of the MCP endpoint, exactly as the server wants it; with `transport: sse` that of its event stream.
    /// Default: `/mcp`; with `transport: sse`, `/sse`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^/[A-Za-z0-9._~/%-]*$"))]
    pub path: Option<String>,
    /// Environment variables. Default: none, except `HOME`, which is a writable directory unless it is set here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
    /// Secrets and ConfigMaps whose entries become environment variables. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub env_from: Vec<EnvFromSource>,
    /// CPU and memory of the container. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Where the volumes of `pod.volumes` are mounted. Default: nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Map(vec!["mountPath".into()]),
        validation = Rule::new("self.all(m, m.name.size() <= 63 && m.mountPath.size() <= 512 && !m.name.startsWith('mooring-') && m.mountPath.startsWith('/') && m.mountPath != '/etc/mooring' && !m.mountPath.startsWith('/etc/mooring/') && m.mountPath != '/home/mooring')")
            .message("mountPath is absolute and neither /etc/mooring nor /home/mooring, and names do not begin with mooring-: those are Mooring's")
    )]
    pub volume_mounts: Vec<VolumeMount>,
    /// When the image is pulled. Default: as Kubernetes does, `Always` for the tag latest, otherwise `IfNotPresent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Security settings of the container. What is not set here is what the *restricted* Pod Security profile demands,
    /// and user 65532, unless the cluster assigns users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("(!has(self.privileged) || !self.privileged) && (!has(self.allowPrivilegeEscalation) || !self.allowPrivilegeEscalation) && (!has(self.runAsNonRoot) || self.runAsNonRoot) && (!has(self.runAsUser) || self.runAsUser != 0) && (!has(self.capabilities) || !has(self.capabilities.add) || self.capabilities.add.all(c, c == 'NET_BIND_SERVICE'))")
        .message("the pod keeps the restricted Pod Security profile: no privileged, allowPrivilegeEscalation, user 0 or capabilities besides NET_BIND_SERVICE"))]
    pub security_context: Option<SecurityContext>,
}

impl HttpSource {
    /// The port, with its default.
    pub fn port(&self) -> i32 {
        self.port.unwrap_or(8000)
    }

    /// The transport, with its default.
    pub fn transport(&self) -> HttpTransport {
        self.transport.unwrap_or_default()
    }

    /// The path, with its default.
    pub fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(match self.transport() {
            HttpTransport::StreamableHttp => "/mcp",
            HttpTransport::Sse => "/sse",
        })
    }
}

/// How an HTTP MCP server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "they are the names that MCP has for them")]
pub enum HttpTransport {
    #[default]
    StreamableHttp,
    Sse,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "they are Kubernetes' own names")]
pub enum ImagePullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl ImagePullPolicy {
    /// As the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}
