//! What lies before the pods: Ingress and NetworkPolicy.

use serde_json::json;

use super::case::Pods::Stay;
use super::case::{Case, Seen, case};

/// Over the base with source `http`, which is [`crate::world::full`].
pub(super) fn cases() -> Vec<Case> {
    let dns = json!([{"ports": [{"port": 53, "protocol": "UDP"}]}]);
    let peer = json!([{"namespaceSelector": {"matchLabels": {"a": "b"}}}]);
    vec![
        case("ingress", json!({"ingress": null}), Seen::Gone("Ingress/@"), Stay),
        case(
            "ingress.className",
            json!({"ingress": {"className": "other"}}),
            Seen::Is("Ingress/@", "/spec/ingressClassName", json!("other")),
            Stay,
        ),
        case(
            "ingress.tls",
            json!({"ingress": {"tls": {"secretName": "t"}}}),
            Seen::Is("Ingress/@", "/spec/tls/0/secretName", json!("t")),
            Stay,
        ),
        case(
            "ingress.annotations",
            json!({"ingress": {"annotations": {"cert-manager.io/cluster-issuer": "x"}}}),
            Seen::Is("Ingress/@", "/metadata/annotations/cert-manager.io~1cluster-issuer", json!("x")),
            Stay,
        ),
        case(
            "networkPolicy.enabled",
            json!({"networkPolicy": {"enabled": false}}),
            Seen::Gone("NetworkPolicy/@"),
            Stay,
        ),
        case(
            "networkPolicy.ingressFrom",
            json!({"networkPolicy": {"ingressFrom": peer}}),
            Seen::Is("NetworkPolicy/@", "/spec/ingress/0/from", peer.clone()),
            Stay,
        ),
        case(
            "networkPolicy.egressTo",
            json!({"networkPolicy": {"egressTo": dns}}),
            Seen::Has("NetworkPolicy/@", "/spec/egress", dns[0].clone()),
            Stay,
        ),
    ]
}
