//! The Ingress annotations for each controller, with and without TLS.

use std::collections::BTreeMap;

use mooring_plan::observed::IngressClass;
use mooring_plan::plan::plan;

use crate::world::{fixture, now, settings, world};

#[test]
fn every_controller_has_its_annotations() {
    let mut server = fixture("ingress-tls-and-annotations");
    server.spec.ingress.as_mut().unwrap().annotations.clear();
    let controllers = [
        "k8s.io/ingress-nginx",
        "nginx.org/ingress-controller",
        "traefik.io/ingress-controller",
        "haproxy.org/ingress-controller",
        "haproxy.org/ingress-controller/internal",
        "haproxy-ingress.github.io/controller",
        "example.com/unknown",
        "traefik.io/ingress-controller-of-somebody-else",
    ];
    let annotations = controllers.map(|controller| {
        let of = |tls: bool| {
            let mut server = server.clone();
            let ingress = server.spec.ingress.as_mut().unwrap();
            ingress.tls = ingress.tls.take().filter(|_| tls);
            let mut observed = world(&server);
            let class = IngressClass { controller: controller.to_owned(), default: false };
            observed.ingress_classes = Some(BTreeMap::from([("nginx".to_owned(), class)]));
            let plan = plan(&server, &observed, &settings(""), now()).unwrap();
            assert_eq!(plan.findings, []);
            plan.desired.ingress.unwrap().metadata.annotations
        };
        (controller, BTreeMap::from([("plain", of(false)), ("tls", of(true))]))
    });
    insta::assert_yaml_snapshot!(BTreeMap::from(annotations));
}

/// What the user writes wins, but for what would change the promise.
#[test]
fn the_users_annotations_win() {
    let server = fixture("ingress-tls-and-annotations");
    let plan = plan(&server, &world(&server), &settings(""), now()).unwrap();
    let annotations = plan.desired.ingress.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"], "60");
    assert_eq!(annotations["cert-manager.io/cluster-issuer"], "letsencrypt");
    assert!(!annotations.keys().any(|name| name.contains("snippet")));
    let reasons: Vec<_> = plan.findings.iter().map(|finding| finding.reason.as_str()).collect();
    assert_eq!(reasons, ["AnnotationRefused"]);
}

/// Without a default class nobody would serve the Ingress; it is applied all the same.
#[test]
fn a_cluster_without_a_default_class_is_told() {
    let server = fixture("ingress-default-class");
    let mut observed = world(&server);
    observed.ingress_classes.as_mut().unwrap().values_mut().for_each(|class| class.default = false);
    let plan = plan(&server, &observed, &settings(""), now()).unwrap();
    assert!(plan.desired.ingress.is_some());
    assert_eq!(plan.findings[0].message, "no IngressClass is the cluster's default: name one");
}

/// An operator without the right to read IngressClasses calls none missing.
#[test]
fn what_may_not_be_read_is_not_called_missing() {
    let mut observed = world(&fixture("ingress-default-class"));
    observed.ingress_classes = None;
    for name in ["ingress-default-class", "ingress-tls-and-annotations"] {
        let plan = plan(&fixture(name), &observed, &settings(""), now()).unwrap();
        assert!(plan.desired.ingress.is_some());
        assert!(plan.findings.iter().all(|finding| finding.reason.as_str() != "IngressClassNotFound"), "{name}");
    }
}
