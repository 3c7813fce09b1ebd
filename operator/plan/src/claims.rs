//! Which server has a host and path: the older one. Only servers that ask for an Ingress claim any.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use mooring_api::McpServer;

use crate::names::namespace;
use crate::observed::Claim;
use crate::settings::Settings;

/// The public hosts of a server: its own, or the one below the operator's base domain. Sorted, because the order in
/// which a spec lists them means nothing.
pub fn hosts(server: &McpServer, settings: &Settings) -> BTreeSet<String> {
    if !server.spec.hosts.is_empty() {
        return server.spec.hosts.iter().cloned().collect();
    }
    let base = settings.base_domain.as_ref().filter(|_| server.spec.ingress.is_some());
    base.map(|base| format!("{}.{}.{base}", server.name_any(), namespace(server))).into_iter().collect()
}

/// What a server claims: every host of its Ingress, with its path.
pub fn claims(server: &McpServer, settings: &Settings) -> Vec<Claim> {
    if server.spec.ingress.is_none() {
        return Vec::new();
    }
    let by = format!("{}/{}", namespace(server), server.name_any());
    let path = server.spec.path().to_owned();
    hosts(server, settings).into_iter().map(|host| Claim { host, path: path.clone(), by: by.clone() }).collect()
}

/// Whether `a` has the right of the older one over `b`: by creation, then by namespace and name.
pub fn is_older(a: &McpServer, b: &McpServer) -> bool {
    let age = |server: &McpServer| {
        let created = server.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created.is_none(), created, namespace(server), server.name_any())
    };
    age(a) < age(b)
}
