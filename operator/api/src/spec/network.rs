//! The NetworkPolicy of the pods.

use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyPeer};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Who may reach the pods, and whom they may reach.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Whether there is a NetworkPolicy. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Who may reach the public port. Default: anybody; the front door checks the key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ingress_from: Vec<NetworkPolicyPeer>,
    /// Whom the pods may reach besides each other, as NetworkPolicy egress rules; DNS has to be among them. Default:
    /// anybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub egress_to: Vec<NetworkPolicyEgressRule>,
}
