//! Annotations of the Ingress: what each controller needs so that streams live and bodies pass, and which of the user's
//! would change what Mooring promises. A controller that is not listed gets none.

use std::collections::BTreeMap;

/// An ingress controller whose annotations are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    /// Community ingress-nginx.
    IngressNginx,
    /// F5 NGINX Ingress Controller.
    F5Nginx,
    /// Traefik.
    Traefik,
    /// HAProxy Technologies' controller.
    HaproxyTech,
    /// The community's haproxy-ingress.
    HaproxyIngress,
}

impl Controller {
    /// By `spec.controller` of an IngressClass.
    pub(crate) fn of(class_controller: &str) -> Option<Self> {
        let is = |name: &str| {
            class_controller.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match () {
            () if is("k8s.io/ingress-nginx") => Some(Self::IngressNginx),
            () if is("nginx.org/ingress-controller") => Some(Self::F5Nginx),
            () if is("traefik.io/ingress-controller") => Some(Self::Traefik),
            () if is("haproxy.org/ingress-controller") => Some(Self::HaproxyTech),
            () if is("haproxy-ingress.github.io/controller") => Some(Self::HaproxyIngress),
            () => None,
        }
    }
}

/// A read timeout of a day, no buffering, HTTP/1.1 to the front door, bodies as large as it takes, and no plain HTTP
/// where there is TLS.
pub(crate) fn for_controller(controller: Controller, body_bytes: u64, tls: bool) -> BTreeMap<String, String> {
    let body = body_bytes.to_string();
    let (always, with_tls): (Vec<(&str, &str)>, (&str, &str)) = match controller {
        Controller::IngressNginx => (
            vec![
                ("nginx.ingress.kubernetes.io/proxy-body-size", &body),
                ("nginx.ingress.kubernetes.io/proxy-buffering", "off"),
                ("nginx.ingress.kubernetes.io/proxy-http-version", "1.1"),
                ("nginx.ingress.kubernetes.io/proxy-read-timeout", "86400"),
                ("nginx.ingress.kubernetes.io/proxy-request-buffering", "off"),
                ("nginx.ingress.kubernetes.io/proxy-send-timeout", "86400"),
            ],
            ("nginx.ingress.kubernetes.io/ssl-redirect", "true"),
        ),
        // It speaks HTTP/1.1 to upstreams as it is, and has no switch for buffering requests.
        Controller::F5Nginx => (
            vec![
                ("nginx.org/client-max-body-size", &body),
                ("nginx.org/proxy-buffering", "false"),
                ("nginx.org/proxy-read-timeout", "86400s"),
                ("nginx.org/proxy-send-timeout", "86400s"),
            ],
            ("ingress.kubernetes.io/ssl-redirect", "true"),
        ),
        // It neither buffers nor limits, and its timeouts belong to its entry points. A router with TLS answers nothing in
        // the clear. A redirect would need a Middleware of its own kind or belongs to its entry point, and would hide from
        // a client that it sends its key in the clear first.
        Controller::Traefik => (Vec::new(), ("traefik.ingress.kubernetes.io/router.tls", "true")),
        // HAProxy streams, and limits no body.
        Controller::HaproxyTech => {
            (vec![("haproxy.org/timeout-server", "86400s")], ("haproxy.org/ssl-redirect", "true"))
        }
        Controller::HaproxyIngress => (
            vec![
                ("haproxy-ingress.github.io/proxy-body-size", &body),
                ("haproxy-ingress.github.io/timeout-server", "86400s"),
            ],
            ("haproxy-ingress.github.io/ssl-redirect", "true"),
        ),
    };
    let pairs = always.into_iter().chain(tls.then_some(with_tls));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Why a user's annotation is left out, if it is: it would put configuration into a shared proxy, take requests past
/// the front door's checks, or change the paths and hosts that it knows.
pub(crate) fn refusal(name: &str, value: &str) -> Option<&'static str> {
    let (domain, word) = name.rsplit_once('/').unwrap_or_default();
    if word.contains("snippet") || word.starts_with("config-") || word.starts_with("configuration-") {
        return Some("it writes configuration into a proxy that others share");
    }
    if word.starts_with("auth-") {
        return Some("the front door decides who may call");
    }
    if word.contains("rewrite") || word == "server-alias" {
        return Some("it changes the path or the hosts; use spec.path and spec.hosts");
    }
    if word == "custom-headers" || word.starts_with("mirror-") {
        return Some("it changes or copies requests on their way to the front door");
    }
    let nginx = ["nginx.ingress.kubernetes.io", "nginx.org", "nginx.com"].contains(&domain);
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) && !b"\"{};#".contains(&byte);
    (nginx && !value.bytes().all(plain)).then_some("its value has characters that end a directive of nginx")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_that_change_the_promise_are_refused() {
        let refused = [
            ("nginx.ingress.kubernetes.io/configuration-snippet", ""),
            ("nginx.ingress.kubernetes.io/server-snippet", ""),
            ("nginx.org/location-snippets", ""),
            ("haproxy.org/backend-config-snippet", ""),
            ("haproxy-ingress.github.io/config-backend", ""),
            ("nginx.ingress.kubernetes.io/auth-url", ""),
            ("nginx.ingress.kubernetes.io/auth-tls-secret", ""),
            ("nginx.ingress.kubernetes.io/rewrite-target", "/$1"),
            ("nginx.ingress.kubernetes.io/server-alias", "a.example.com"),
            ("nginx.ingress.kubernetes.io/custom-headers", "x/y"),
            ("nginx.ingress.kubernetes.io/mirror-target", "https://x"),
            ("nginx.ingress.kubernetes.io/proxy-read-timeout", "1; return 200"),
        ];
        let passing = [
            ("cert-manager.io/cluster-issuer", "letsencrypt"),
            ("acme.cert-manager.io/http01-edit-in-place", "true"),
            ("external-dns.alpha.kubernetes.io/hostname", "mcp.example.com"),
            ("nginx.ingress.kubernetes.io/limit-rps", "10"),
            ("alb.ingress.kubernetes.io/tags", "{\"a\": \"b\"}"),
        ];
        for (name, value) in refused {
            assert!(refusal(name, value).is_some(), "{name}");
        }
        for (name, value) in passing {
            assert_eq!(refusal(name, value), None, "{name}");
        }
    }
}
