//! Who may reach the server, and under which names: hosts, paths, origins, keys.

use serde_json::json;

use super::case::Pods::{Roll, Stay};
use super::case::{Case, Seen, case};

/// Over the base with source `http`, which is [`crate::world::full`].
pub(super) fn cases() -> Vec<Case> {
    let rules = "/spec/rules/0/http/paths/0/path";
    vec![
        case(
            "hosts",
            json!({"hosts": ["@.fields.example.com", "second.@.example.com"]}),
            Seen::Is("Ingress/@", "/spec/rules/1/host", json!("second.@.example.com")),
            Stay,
        ),
        case(
            "hosts in the config",
            json!({"hosts": ["@.fields.example.com", "third.@.example.com"]}),
            Seen::Config("/security/hosts?", json!("third.@.example.com")),
            Stay,
        ),
        case(
            "allowedHosts",
            json!({"allowedHosts": ["10.0.0.5:8443"]}),
            Seen::Config("/security/allowedHosts", json!(["10.0.0.5:8443"])),
            Stay,
        ),
        case("path", json!({"path": "/p"}), Seen::Is("Ingress/@", rules, json!("/p")), Stay),
        case("path in the config", json!({"path": "/p"}), Seen::Config("/path", json!("/p")), Stay),
        case(
            "origins",
            json!({"origins": ["https://o.example.com"]}),
            Seen::Config("/security/origins", json!(["https://o.example.com"])),
            Stay,
        ),
        case(
            "cors.origins",
            json!({"cors": {"origins": ["*"]}}),
            Seen::Config("/security/cors/origins", json!(["*"])),
            Stay,
        ),
        case(
            "cors.headers",
            json!({"cors": {"headers": ["x-a"]}}),
            Seen::Config("/security/cors/headers", json!(["x-a"])),
            Stay,
        ),
        case(
            "cors.exposeHeaders",
            json!({"cors": {"exposeHeaders": ["x-a"]}}),
            Seen::Config("/security/cors/exposeHeaders", json!(["x-a"])),
            Stay,
        ),
        case(
            "cors.credentials",
            json!({"cors": {"credentials": true}}),
            Seen::Config("/security/cors/credentials", json!(true)),
            Stay,
        ),
        case(
            "cors.maxAge",
            json!({"cors": {"maxAge": "5m"}}),
            Seen::Config("/security/cors/maxAgeSeconds", json!(300)),
            Stay,
        ),
        case(
            "trustedProxies",
            json!({"trustedProxies": ["10.244.0.0/16", "fd00::5"]}),
            Seen::Config("/security/trustedProxies", json!(["10.244.0.0/16", "fd00::5"])),
            Stay,
        ),
        case("auth.keys", json!({"auth": {"keys": [{"name": "laptop"}]}}), Seen::Gone("Secret/@.key.ci"), Stay),
        case(
            "auth.keySecrets",
            json!({"auth": {"keySecrets": [{"name": "shared"}]}}),
            Seen::Config("/security/keySecrets", json!(["shared"])),
            Roll,
        ),
        case(
            "auth.anonymous",
            json!({"auth": {"anonymous": true}}),
            Seen::Config("/security/anonymous", json!(true)),
            Stay,
        ),
    ]
}
