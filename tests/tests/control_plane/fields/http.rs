//! Fields of the source `http`.

use serde_json::{Value, json};

use super::case::Pods::{Roll, Stay};
use super::case::{Case, SERVER, Seen, case, has, is};

/// Over the base with source `http`, which is [`crate::world::full`].
pub(super) fn cases() -> Vec<Case> {
    let http = |patch: Value| json!({"http": patch});
    let quantities = json!({"requests": {"cpu": "20m"}, "limits": {"memory": "99Mi"}});
    vec![
        case("http.image", http(json!({"image": "b:2"})), is(SERVER, "/image", json!("b:2")), Roll),
        case("http.command", http(json!({"command": ["/x"]})), is(SERVER, "/command", json!(["/x"])), Roll),
        case("http.args", http(json!({"args": ["--y"]})), is(SERVER, "/args", json!(["--y"])), Roll),
        case("http.port", http(json!({"port": 9000})), Seen::Config("/source/http/port", json!(9000)), Stay),
        case("http.path", http(json!({"path": "/rpc"})), Seen::Config("/source/http/path", json!("/rpc")), Stay),
        case(
            "http.transport",
            http(json!({"transport": "sse"})),
            Seen::Config("/source/http/transport", json!("sse")),
            Stay,
        ),
        case(
            "http.transport and the default path",
            http(json!({"transport": "sse"})),
            Seen::Config("/source/http/path", json!("/sse")),
            Stay,
        ),
        case(
            "http.env",
            http(json!({"env": [{"name": "A", "value": "b"}]})),
            has(SERVER, "/env", json!({"name": "A", "value": "b"})),
            Roll,
        ),
        case(
            "http.envFrom",
            http(json!({"envFrom": [{"configMapRef": {"name": "c", "optional": true}}]})),
            has(SERVER, "/envFrom", json!({"configMapRef": {"name": "c", "optional": true}})),
            Roll,
        ),
        case(
            "http.resources",
            http(json!({"resources": quantities})),
            is(SERVER, "/resources", quantities.clone()),
            Roll,
        ),
        case(
            "http.volumeMounts",
            json!({"http": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "pod": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            has(SERVER, "/volumeMounts", json!({"name": "v", "mountPath": "/v"})),
            Roll,
        ),
        case(
            "http.imagePullPolicy",
            http(json!({"imagePullPolicy": "Always"})),
            is(SERVER, "/imagePullPolicy", json!("Always")),
            Roll,
        ),
        case(
            "http.securityContext",
            http(json!({"securityContext": {"readOnlyRootFilesystem": true}})),
            is(SERVER, "/securityContext/readOnlyRootFilesystem", json!(true)),
            Roll,
        ),
    ]
}
