//! The shipped CustomResourceDefinition is the one that the types give, and is fit for the API server.

use std::path::Path;

use serde_json::Value;

fn shipped() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds/mcpservers.yaml")
}

#[test]
fn the_shipped_file_is_what_the_types_give() {
    let generated = mooring_api::crd::yaml().unwrap();
    let shipped = std::fs::read_to_string(shipped()).unwrap_or_default();
    assert!(shipped == generated, "crds/mcpservers.yaml is out of date: run `cargo xtask generate`");
}

#[test]
fn it_fits_into_the_annotation_of_a_plain_kubectl_apply() {
    let size = mooring_api::crd::definition().unwrap().to_string().len();
    assert!(
        size < 256 * 1024,
        "{size} bytes; kubectl apply stores the whole object in an annotation of at most 256 KiB"
    );
}

fn walk(value: &Value, path: &str, visit: &mut impl FnMut(&str, &serde_json::Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            visit(path, map);
            map.iter().for_each(|(key, value)| walk(value, &format!("{path}.{key}"), visit));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, path, visit)),
        _ => {}
    }
}

#[test]
fn nothing_in_the_schema_makes_the_api_server_warn() {
    let definition = mooring_api::crd::definition().unwrap();
    walk(&definition, "", &mut |path, map| {
        let format = map.get("format").and_then(Value::as_str).unwrap_or_default();
        assert!(!format.starts_with("uint"), "{path}: format {format}");
        assert!(!map.contains_key("nullable"), "{path}: null is a second spelling of absent");
        let free = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        assert!(!(free && map.contains_key("additionalProperties")), "{path}: nested fields would be pruned");
        if let Some(Value::Array(values)) = map.get("enum") {
            assert!(!values.contains(&Value::Null), "{path}: null in an enum");
        }
    });
}

#[test]
fn every_field_of_ours_is_described() {
    let definition = mooring_api::crd::definition().unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let mut undescribed = Vec::new();
    for part in ["spec", "status"] {
        walk(&schema[part], part, &mut |path, map| {
            if let Some(Value::Object(properties)) = map.get("properties") {
                undescribed.extend(
                    properties
                        .iter()
                        .filter(|(_, field)| field.get("description").is_none())
                        .map(|(name, _)| format!("{path}.{name}")),
                );
            }
        });
    }
    assert!(undescribed.is_empty(), "kubectl explain says nothing about {undescribed:#?}");
}
