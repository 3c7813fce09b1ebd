//! The Ingress, the URL, and what of the exposure cannot be had. Whatever can be applied is, because others wait for
//! it: cert-manager makes the TLS Secret only once there is an Ingress that names it.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, ServiceBackendPort,
};
use kube::ResourceExt as _;
use mooring_api::{McpServer, Reason, spec};
use mooring_contract::config::{Limits, endpoint_path};

use super::NonEmpty as _;
use super::ingress_annotations::{self, Controller};
use super::service::PORT_NAME;
use crate::observed::{Claim, IngressClass, Observed, Reference};
use crate::outcome::Finding;
use crate::settings::Settings;
use crate::{claims, names};

/// How a server is reached from outside.
pub(crate) struct Exposure {
    /// The Ingress, where one is asked for and has a host to serve.
    pub(crate) ingress: Option<Ingress>,
    /// Where clients find the server.
    pub(crate) url: String,
    /// What cannot be had.
    pub(crate) findings: Vec<Finding>,
}

/// Decides it.
pub(crate) fn exposure(server: &McpServer, observed: &Observed, settings: &Settings) -> Exposure {
    let Some(wanted) = &server.spec.ingress else {
        return Exposure { ingress: None, url: service_url(server, settings), findings: Vec::new() };
    };
    let mut findings = Vec::new();
    let hosts = free_hosts(server, observed, settings, &mut findings);
    let class = class(wanted, observed, &mut findings);
    check_tls(wanted, observed, &mut findings);
    let annotations = annotations(server, wanted, class, &mut findings);
    let url = match hosts.first() {
        Some(host) => {
            let scheme = if wanted.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{host}{}", endpoint_path(server.spec.path()))
        }
        None => service_url(server, settings),
    };
    let ingress = (!hosts.is_empty()).then(|| ingress(server, wanted, &hosts, annotations));
    Exposure { ingress, url, findings }
}

fn service_url(server: &McpServer, settings: &Settings) -> String {
    let (name, namespace) = (server.name_any(), names::namespace(server));
    format!("http://{name}.{namespace}.svc.{}{}", settings.cluster_domain, endpoint_path(server.spec.path()))
}

/// The hosts that no older server has with the same path.
fn free_hosts(
    server: &McpServer,
    observed: &Observed,
    settings: &Settings,
    findings: &mut Vec<Finding>,
) -> Vec<String> {
    let claims = claims::claims(server, settings);
    if claims.is_empty() {
        findings.push(finding(
            Reason::NoHosts,
            "hosts",
            "an Ingress is asked for and there is no host: set hosts, or start the operator with --base-domain"
                .to_owned(),
        ));
    }
    let holder = |claim: &Claim| {
        let same = |older: &&Claim| older.host == claim.host && older.path == claim.path && older.by != claim.by;
        observed.older_claims.iter().filter(same).min()
    };
    let mut free = Vec::new();
    for claim in claims {
        match holder(&claim) {
            None => free.push(claim.host),
            Some(older) => findings.push(finding(
                Reason::HostConflict,
                "hosts",
                format!(
                    "{}{} belongs to the older McpServer {}: choose another host or path",
                    claim.host, claim.path, older.by
                ),
            )),
        }
    }
    free
}

/// The class that will serve the Ingress: the one named, or the cluster's default. An operator without the right to read
/// classes knows of none, and calls none missing.
fn class<'a>(wanted: &spec::Ingress, observed: &'a Observed, findings: &mut Vec<Finding>) -> Option<&'a IngressClass> {
    let classes = observed.ingress_classes.as_ref()?;
    let (class, message) = match &wanted.class_name {
        Some(name) => (
            classes.get(name),
            format!("IngressClass {name} does not exist: install its controller, or name another class"),
        ),
        None => (
            classes.values().find(|class| class.default),
            "no IngressClass is the cluster's default: name one".to_owned(),
        ),
    };
    if class.is_none() {
        findings.push(finding(Reason::IngressClassNotFound, "ingress.className", message));
    }
    class
}

fn check_tls(wanted: &spec::Ingress, observed: &Observed, findings: &mut Vec<Finding>) {
    let Some(tls) = &wanted.tls else { return };
    if !observed.existing_references.contains(&Reference::Secret(tls.secret_name.clone())) {
        let message = format!("Secret {} does not exist: create it, or let cert-manager issue it", tls.secret_name);
        findings.push(finding(Reason::TlsSecretNotFound, "ingress.tls.secretName", message));
    }
}

fn annotations(
    server: &McpServer,
    wanted: &spec::Ingress,
    class: Option<&IngressClass>,
    findings: &mut Vec<Finding>,
) -> BTreeMap<String, String> {
    let body_bytes = server.spec.limits.as_ref().and_then(|limits| limits.body_bytes);
    let body_bytes = body_bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(Limits::BODY_BYTES);
    let controller = class.and_then(|class| Controller::of(&class.controller));
    let mut annotations = controller
        .map(|controller| ingress_annotations::for_controller(controller, body_bytes, wanted.tls.is_some()))
        .unwrap_or_default();
    for (name, value) in &wanted.annotations {
        match ingress_annotations::refusal(name, value) {
            None => {
                annotations.insert(name.clone(), value.clone());
            }
            Some(why) => findings.push(finding(
                Reason::AnnotationRefused,
                "ingress.annotations",
                format!("annotation {name} is left out: {why}"),
            )),
        }
    }
    annotations
}

fn ingress(
    server: &McpServer,
    wanted: &spec::Ingress,
    hosts: &[String],
    annotations: BTreeMap<String, String>,
) -> Ingress {
    let name = server.name_any();
    let rule = |host: &String| IngressRule {
        host: Some(host.clone()),
        http: Some(HTTPIngressRuleValue { paths: vec![path(&name, server.spec.path())] }),
    };
    let spec = IngressSpec {
        ingress_class_name: wanted.class_name.clone(),
        rules: Some(hosts.iter().map(rule).collect()),
        tls: wanted
            .tls
            .as_ref()
            .map(|tls| vec![IngressTLS { hosts: Some(hosts.to_vec()), secret_name: Some(tls.secret_name.clone()) }]),
        ..IngressSpec::default()
    };
    let mut metadata = names::metadata(server, name);
    metadata.annotations = annotations.non_empty();
    Ingress { metadata, spec: Some(spec), ..Ingress::default() }
}

fn path(service: &str, path: &str) -> HTTPIngressPath {
    let port = ServiceBackendPort { name: Some(PORT_NAME.to_owned()), number: None };
    HTTPIngressPath {
        backend: IngressBackend {
            service: Some(IngressServiceBackend { name: service.to_owned(), port: Some(port) }),
            resource: None,
        },
        path: Some(path.to_owned()),
        path_type: "Prefix".to_owned(),
    }
}

fn finding(reason: Reason, field: &str, message: String) -> Finding {
    Finding { reason, field: field.to_owned(), message }
}
