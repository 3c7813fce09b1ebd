//! The CustomResourceDefinition as it is shipped: what the derive macro makes, less what the API server would warn of.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::Value;

use crate::McpServer;

/// The CustomResourceDefinition `mcpservers.mooring.dev`, as a JSON document.
pub fn definition() -> Result<Value, serde_json::Error> {
    let definition: CustomResourceDefinition = McpServer::crd();
    let mut document = serde_json::to_value(definition)?;
    tidy(&mut document);
    Ok(document)
}

/// Removes what the derive macro adds and the API server does not want: integer formats that it does not know, `null`
/// as a value (an absent field has one spelling), and whole-number bounds written as fractions.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("nullable");
            // Beside it, the API server would keep unknown fields one level deep and prune what lies in them.
            if map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) {
                map.remove("additionalProperties");
            }
            if let Some(Value::Array(values)) = map.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if map.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                map.remove("format");
            }
            for bound in ["minimum", "maximum"] {
                if let Some(number) = map.get(bound).and_then(whole) {
                    map.insert(bound.to_owned(), number.into());
                }
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn whole(value: &Value) -> Option<i64> {
    let number = value.as_f64().filter(|number| number.fract() == 0.0)?;
    format!("{number:.0}").parse().ok()
}

/// The same as YAML, as it is shipped in `crds/` and printed by `mooring crd`.
pub fn yaml() -> Result<String, CrdError> {
    Ok(serde_saphyr::to_string(&definition()?)?)
}

/// Why the definition cannot be written. Neither happens with the types of this crate; a test holds that.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The definition is no JSON document.
    #[error("the CustomResourceDefinition cannot be serialised: {0}")]
    Json(#[from] serde_json::Error),
    /// The document is no YAML.
    #[error("the CustomResourceDefinition cannot be written as YAML: {0}")]
    Yaml(#[from] serde_saphyr::ser::Error),
}
