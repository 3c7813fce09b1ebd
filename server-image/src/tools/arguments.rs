//! The arguments of a call: an object, each member kept as it was written, so that big numbers reach the API unchanged;
//! and judged against the tool's schema.

use std::collections::BTreeMap;

use jsonschema::Validator;
use serde_json::Value;
use serde_json::value::RawValue;

/// The members of `arguments`, each as it was written.
pub type Arguments<'a> = BTreeMap<String, &'a RawValue>;

/// Most violations that are told at once.
const VIOLATIONS: usize = 5;
/// Longest text of one of them: a violation repeats the offending value.
const VIOLATION_LENGTH: usize = 300;

/// Reads `arguments`; absent means none.
pub fn read(raw: Option<&RawValue>) -> Result<Arguments<'_>, String> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok(Arguments::new()),
        Some(text) if text.starts_with('{') => {
            serde_json::from_str(text).map_err(|error| format!("params.arguments: {error}"))
        }
        Some(_) => Err("params.arguments must be an object".into()),
    }
}

/// Compiles a schema. A `$ref` never reaches the network or a file.
pub fn compile(schema: &serde_json::Map<String, Value>) -> Result<Validator, String> {
    jsonschema::validator_for(&Value::Object(schema.clone()))
        .map_err(|error| format!("inputSchema{}: {error}", error.instance_path().as_str().replace('/', ".")))
}

/// What is wrong with the arguments, in words for the model that made them.
pub fn violations(validator: &Validator, raw: Option<&RawValue>) -> Result<(), String> {
    let text = raw.map(RawValue::get).filter(|text| *text != "null").unwrap_or("{}");
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let told: Vec<_> = validator
        .iter_errors(&value)
        .take(VIOLATIONS)
        .map(|error| {
            let place = error.instance_path().to_string();
            let place = place.trim_start_matches('/').replace('/', ".");
            let text: String = error.to_string().chars().take(VIOLATION_LENGTH).collect();
            if place.is_empty() { text } else { format!("{place}: {text}") }
        })
        .collect();
    if told.is_empty() { Ok(()) } else { Err(told.join("; ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn violations_are_told_in_words() {
        let schema = json!({
            "type": "object",
            "properties": {"city": {"type": "string", "minLength": 1}, "days": {"type": "integer", "maximum": 7}},
            "required": ["city"],
            "additionalProperties": false,
        });
        let validator = compile(schema.as_object().unwrap()).unwrap();
        let tell = |text: &str| {
            let raw = RawValue::from_string(text.into()).unwrap();
            violations(&validator, Some(&raw)).err().unwrap_or_else(|| "fine".into())
        };
        let cases = [
            r#"{"city":"Oslo"}"#,
            r"{}",
            r#"{"city":7}"#,
            r#"{"city":"","days":8}"#,
            r#"{"city":"Oslo","colour":"red"}"#,
            r#"{"city":"Oslo","days":1.5}"#,
            "null",
        ];
        let lines: Vec<_> = cases.iter().map(|case| format!("{case} -> {}", tell(case))).collect();
        insta::assert_snapshot!(lines.join("\n"));
        assert_eq!(violations(&validator, None).unwrap_err(), tell("{}"));
    }

    #[test]
    fn a_schema_never_reaches_outside() {
        for reference in ["https://example.com/schema.json", "file:///etc/passwd"] {
            let schema = json!({"type": "object", "properties": {"a": {"$ref": reference}}});
            assert!(compile(schema.as_object().unwrap()).is_err(), "{reference}");
        }
    }

    #[test]
    fn arguments_keep_their_spelling() {
        let raw = RawValue::from_string(r#"{"a":12345678901234567890123,"b":1e2}"#.into()).unwrap();
        let arguments = read(Some(&raw)).unwrap();
        assert_eq!(arguments["a"].get(), "12345678901234567890123");
        assert_eq!(arguments["b"].get(), "1e2");
        assert!(read(Some(&RawValue::from_string("[]".into()).unwrap())).is_err());
    }
}
