//! The objects that a spec refers to: what has to be looked up before planning, and which server a change of one of
//! them concerns. What the spec calls optional is none.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, ProjectedVolumeSource};
use mooring_api::McpServer;
use mooring_api::spec::Volume;

use crate::observed::Reference;

/// A reference, and the field that makes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Located {
    /// What is referred to.
    pub reference: Reference,
    /// By which field.
    pub field: String,
}

/// Everything that the server refers to in its namespace.
pub fn references(server: &McpServer) -> BTreeSet<Reference> {
    let mut references: BTreeSet<_> = of_pods(server).into_iter().map(|located| located.reference).collect();
    references.extend(key_secrets(server).into_iter().map(Reference::Secret));
    references.extend(tls_secret(server).map(|name| Reference::Secret(name.to_owned())));
    references
}

/// The Secrets of `auth.keySecrets`, whose bytes are read.
pub fn key_secrets(server: &McpServer) -> BTreeSet<String> {
    server.spec.auth.iter().flat_map(|auth| &auth.key_secrets).map(|secret| secret.name.clone()).collect()
}

/// The TLS Secret of the Ingress.
pub fn tls_secret(server: &McpServer) -> Option<&str> {
    Some(server.spec.ingress.as_ref()?.tls.as_ref()?.secret_name.as_str())
}

/// What pods need before their containers start.
pub fn of_pods(server: &McpServer) -> Vec<Located> {
    let mut found = Found(Vec::new());
    for tool in server.spec.tools.iter().flatten() {
        for header in &tool.request_in_pods().headers {
            if let Some(secret) = &header.secret {
                found.secret(&secret.name, None, format!("tools[{}].http.headers[{}]", tool.name, header.name));
            }
        }
    }
    if let Some(http) = &server.spec.http {
        http.env.iter().for_each(|variable| found.variable(variable));
        http.env_from.iter().for_each(|source| found.variables(source));
    }
    if let Some(pod) = &server.spec.pod {
        pod.volumes.iter().for_each(|volume| found.volume(volume));
        if let Some(name) = &pod.service_account_name {
            found.add(Reference::ServiceAccount(name.clone()), None, "pod.serviceAccountName".to_owned());
        }
    }
    found.0
}

struct Found(Vec<Located>);

impl Found {
    fn add(&mut self, reference: Reference, optional: Option<bool>, field: String) {
        if optional != Some(true) {
            self.0.push(Located { reference, field });
        }
    }

    fn secret(&mut self, name: &str, optional: Option<bool>, field: String) {
        self.add(Reference::Secret(name.to_owned()), optional, field);
    }

    fn config_map(&mut self, name: &str, optional: Option<bool>, field: String) {
        self.add(Reference::ConfigMap(name.to_owned()), optional, field);
    }

    fn variable(&mut self, variable: &EnvVar) {
        let Some(source) = &variable.value_from else { return };
        let field = format!("http.env[{}]", variable.name);
        if let Some(secret) = &source.secret_key_ref {
            self.secret(&secret.name, secret.optional, field.clone());
        }
        if let Some(config_map) = &source.config_map_key_ref {
            self.config_map(&config_map.name, config_map.optional, field);
        }
    }

    fn variables(&mut self, source: &EnvFromSource) {
        let field = "http.envFrom".to_owned();
        if let Some(secret) = &source.secret_ref {
            self.secret(&secret.name, secret.optional, field.clone());
        }
        if let Some(config_map) = &source.config_map_ref {
            self.config_map(&config_map.name, config_map.optional, field);
        }
    }

    fn volume(&mut self, volume: &Volume) {
        let field = format!("pod.volumes[{}]", volume.name);
        if let Some(config_map) = &volume.config_map {
            self.config_map(&config_map.name, config_map.optional, field.clone());
        }
        if let Some(Some(name)) = volume.secret.as_ref().map(|secret| secret.secret_name.as_ref()) {
            self.secret(name, volume.secret.as_ref().and_then(|secret| secret.optional), field.clone());
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            self.add(Reference::PersistentVolumeClaim(claim.claim_name.clone()), None, field.clone());
        }
        if let Some(projected) = &volume.projected {
            self.projected(projected, &field);
        }
    }

    fn projected(&mut self, projected: &ProjectedVolumeSource, field: &str) {
        for source in projected.sources.iter().flatten() {
            if let Some(secret) = &source.secret {
                self.secret(&secret.name, secret.optional, field.to_owned());
            }
            if let Some(config_map) = &source.config_map {
                self.config_map(&config_map.name, config_map.optional, field.to_owned());
            }
        }
    }
}
