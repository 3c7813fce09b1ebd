//! What the operator was started with, as far as a decision depends on it.

use serde::{Deserialize, Serialize};

/// The operator's settings that shape children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// Image of the front door, by tag or digest.
    pub front_door_image: String,
    /// When the kubelet pulls it; absent leaves it to Kubernetes.
    pub front_door_pull_policy: Option<String>,
    /// Secrets for pulling it, which must exist in the namespace of each server.
    pub front_door_pull_secrets: Vec<String>,
    /// Whether running servers move to a new front-door image by themselves.
    pub upgrade: Upgrade,
    /// Servers with an Ingress and no hosts get `<name>.<namespace>.<base domain>`.
    pub base_domain: Option<String>,
    /// Whose forwarded headers the front doors of servers believe that do not say so themselves. Each is a
    /// [`mooring_contract::Network`].
    pub trusted_proxies: Vec<String>,
    /// DNS domain of the cluster, for the Service's long name.
    pub cluster_domain: String,
    /// Whether the cluster assigns user ids by namespace (OpenShift), so that a pod must not name one.
    pub cluster_assigns_users: bool,
}

/// How running servers come to a new front-door image. A change of the spec always takes the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Upgrade {
    /// By themselves, a few servers at a time.
    #[default]
    Auto,
    /// Only when their spec changes.
    Manual,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            front_door_image: concat!("localhost/mooring-server:", env!("CARGO_PKG_VERSION")).to_owned(),
            front_door_pull_policy: None,
            front_door_pull_secrets: Vec::new(),
            upgrade: Upgrade::Auto,
            base_domain: None,
            trusted_proxies: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            cluster_assigns_users: false,
        }
    }
}
