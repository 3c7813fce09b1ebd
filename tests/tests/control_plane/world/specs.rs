//! Specs, and what is made of them.

use serde_json::{Value, json};

/// The IngressClass that exists.
pub(super) const CLASS: &str = "traefik";

/// A server with every kind of child but those of scale, and two declared keys. `host` keeps servers apart.
pub(crate) fn full(host: &str) -> Value {
    json!({
        "http": {"image": "example.com/server:1", "port": 3001},
        "hosts": [host],
        "ingress": {"className": CLASS},
        "auth": {"keys": [{"name": "laptop"}, {"name": "ci"}]},
    })
}

/// The children of [`full`], by kind and name.
pub(crate) fn full_children(name: &str) -> Vec<String> {
    let mut children: Vec<String> = ["Deployment", "Ingress", "NetworkPolicy", "Service", "ServiceAccount"]
        .map(|kind| format!("{kind}/{name}"))
        .into();
    children.push(format!("ConfigMap/{name}.config"));
    children.extend(["key.ci", "key.laptop", "keys", "session"].map(|secret| format!("Secret/{name}.{secret}")));
    children.sort();
    children
}

/// What gives a server the kinds of scale, to be merged over a spec with source `http`.
pub(crate) fn scaled() -> Value {
    json!({"http": {"resources": {"requests": {"cpu": "10m"}}}, "autoscaling": {"maxReplicas": 2}})
}

/// The children that it brings.
pub(crate) fn scaled_children(name: &str) -> Vec<String> {
    ["HorizontalPodAutoscaler", "PodDisruptionBudget"].map(|kind| format!("{kind}/{name}")).into()
}

/// `base` with a merge patch applied (RFC 7386).
pub(crate) fn patched(base: &Value, patch: &Value) -> Value {
    let mut merged = base.clone();
    merge(&mut merged, patch);
    merged
}

/// RFC 7386.
fn merge(base: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *base = patch.clone() };
    if !base.is_object() {
        *base = json!({});
    }
    let Some(base) = base.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            base.remove(key);
        } else {
            merge(base.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
