//! What a request asks of the API server, read from its method and address.

use bytes::Bytes;

/// One request, understood.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// API group; empty for the core.
    pub group: String,
    /// The plural; empty for a path that is no resource.
    pub resource: String,
    /// Namespace; empty for what has none, and for all.
    pub namespace: String,
    /// Name; empty for lists and for POST.
    pub name: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
    /// Value of `fieldManager`.
    pub field_manager: String,
    /// Whether nothing would be stored.
    pub dry_run: bool,
    /// Path and query as sent.
    pub uri: String,
    /// Body as sent.
    pub body: Bytes,
}

impl Request {
    /// Reads method, path and query.
    pub(super) fn new(method: &http::Method, uri: &http::Uri, body: Bytes) -> Self {
        let query = |name: &str| {
            let pairs = uri.query().unwrap_or_default().split('&');
            pairs.filter_map(|pair| pair.split_once('=')).find(|(found, _)| *found == name).map(|(_, value)| value)
        };
        let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, rest) = match segments.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => ("", [].as_slice()),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
        let named = rest.len() > 1;
        let watch = matches!(query("watch"), Some("1" | "true"));
        let verb = match (method.as_str(), named) {
            ("GET", _) if watch => "watch",
            ("GET", true) => "get",
            ("GET", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "",
        };
        Self {
            verb,
            group: group.to_owned(),
            resource: part(0),
            namespace: namespace.to_owned(),
            name: part(1),
            subresource: part(2),
            field_manager: query("fieldManager").unwrap_or_default().to_owned(),
            dry_run: query("dryRun").is_some(),
            uri: uri.to_string(),
            body,
        }
    }

    /// Whether it changes what is stored. Leases and Events are told apart by [`Request::is_counted`].
    pub fn is_write(&self) -> bool {
        matches!(self.verb, "create" | "update" | "patch" | "delete" | "deletecollection") && !self.dry_run
    }

    /// Whether it is a write that counts: neither of a Lease nor of an Event, nor a review of rights.
    pub fn is_counted(&self) -> bool {
        let free = ["leases", "events", "selfsubjectaccessreviews", "selfsubjectrulesreviews"];
        self.is_write() && !free.contains(&self.resource.as_str())
    }

    /// The object that is asked for, as `resource/name` or `resource/name/subresource`.
    pub fn target(&self) -> String {
        let parts = [self.resource.as_str(), &self.name, &self.subresource];
        parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, uri: &str) -> Request {
        Request::new(&method.parse().unwrap(), &uri.parse().unwrap(), Bytes::new())
    }

    #[test]
    fn requests_are_told_apart() {
        let cases = [
            ("GET", "/api/v1/namespaces/a/secrets/b.keys", "get", "", "a", "secrets/b.keys"),
            ("GET", "/api/v1/namespaces/a/secrets?watch=true", "watch", "", "a", "secrets"),
            ("GET", "/api/v1/namespaces/a", "get", "", "", "namespaces/a"),
            ("GET", "/apis/mooring.dev/v1alpha1/mcpservers?limit=500", "list", "mooring.dev", "", "mcpservers"),
            ("GET", "/apis/apps/v1", "list", "apps", "", ""),
            ("POST", "/api/v1/namespaces/a/pods/p/eviction", "create", "", "a", "pods/p/eviction"),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/a/deployments/b?fieldManager=mooring",
                "patch",
                "apps",
                "a",
                "deployments/b",
            ),
            (
                "PATCH",
                "/apis/mooring.dev/v1alpha1/namespaces/a/mcpservers/b/status",
                "patch",
                "mooring.dev",
                "a",
                "mcpservers/b/status",
            ),
            ("DELETE", "/apis/apps/v1/namespaces/a/deployments", "deletecollection", "apps", "a", "deployments"),
        ];
        for (method, uri, verb, group, namespace, target) in cases {
            let request = read(method, uri);
            assert_eq!(
                (request.verb, request.group.as_str(), request.namespace.as_str(), request.target().as_str()),
                (verb, group, namespace, target),
                "{method} {uri}"
            );
        }
    }

    #[test]
    fn leases_events_and_dry_runs_are_no_counted_writes() {
        assert!(read("PATCH", "/api/v1/namespaces/a/secrets/b").is_counted());
        assert!(!read("PATCH", "/api/v1/namespaces/a/secrets/b?dryRun=All").is_write());
        assert!(!read("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b").is_counted());
        assert!(!read("POST", "/apis/events.k8s.io/v1/namespaces/a/events").is_counted());
        assert!(!read("GET", "/api/v1/namespaces/a/secrets/b").is_write());
    }
}
