//! The NetworkPolicy. The front door checks who calls, so its ports are open, but for the one at which pods of the same
//! server bring each other what belongs to their sessions; a backend listens on every interface as a rule, so its port is
//! open to nobody.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyEgressRule, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort,
    NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use mooring_api::McpServer;
use mooring_contract::port;

use super::NonEmpty as _;
use super::tidy::tidied;
use crate::names;

/// The NetworkPolicy, unless the spec has none.
pub(crate) fn network_policy(server: &McpServer) -> Option<NetworkPolicy> {
    let wanted = server.spec.network_policy.clone().unwrap_or_default();
    if wanted.enabled == Some(false) {
        return None;
    }
    let own_pods =
        LabelSelector { match_labels: Some(names::selector_labels(&server.name_any())), ..LabelSelector::default() };
    let peers = vec![NetworkPolicyPeer { pod_selector: Some(own_pods.clone()), ..NetworkPolicyPeer::default() }];
    let egress = wanted.egress_to.non_empty().map(|mut rules| {
        rules.push(NetworkPolicyEgressRule { to: Some(peers.clone()), ports: Some(vec![tcp(port::PEER)]) });
        rules
    });
    let types = ["Ingress"].into_iter().chain(egress.is_some().then_some("Egress"));
    let spec = NetworkPolicySpec {
        pod_selector: Some(own_pods),
        policy_types: Some(types.map(str::to_owned).collect()),
        ingress: Some(vec![
            rule(port::PUBLIC, wanted.ingress_from),
            rule(port::PEER, peers),
            rule(port::MANAGEMENT, Vec::new()),
        ]),
        egress,
    };
    let metadata = names::metadata(server, server.name_any());
    Some(tidied(NetworkPolicy { metadata, spec: Some(spec) }))
}

/// One port, from these peers, or from anywhere.
fn rule(number: u16, from: Vec<NetworkPolicyPeer>) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule { from: from.non_empty(), ports: Some(vec![tcp(number)]) }
}

fn tcp(number: u16) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(i32::from(number))),
        protocol: Some("TCP".to_owned()),
        ..NetworkPolicyPort::default()
    }
}
