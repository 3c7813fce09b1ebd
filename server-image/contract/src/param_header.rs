//! `x-mcp-header`: properties of a tool's schema that clients repeat in `Mcp-Param-*` headers (2026-07-28, Streamable
//! HTTP, "Custom Headers from Tool Parameters"). Decides which a schema names and what is wrong with it, for the operator
//! and the front door alike. It knows nothing of requests.

use std::collections::HashMap;

use serde_json::Value;

use crate::config::Schema;

/// The keyword.
pub const KEYWORD: &str = "x-mcp-header";
/// Keywords whose values are data, never schemas.
const DATA: [&str; 5] = ["const", "default", "enum", "examples", "required"];
/// Types of which a value has one spelling.
const TYPES: [&str; 3] = ["string", "integer", "boolean"];

/// A property that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamHeader {
    /// The header as the schema spells it, `Mcp-Param-Region`. Upper and lower case are the same.
    pub header: String,
    /// Names of the properties on the way to it, from the root.
    pub path: Vec<String>,
    /// Whether its value is an integer, which has more than one spelling.
    pub is_integer: bool,
}

/// What is wrong with a schema. Clients leave out a tool of which this is so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamHeaderError {
    /// It stands at the root.
    #[error("{KEYWORD} belongs to a property, not to the arguments as a whole")]
    Root,
    /// It stands where a value has no fixed place.
    #[error("{KEYWORD} must not stand below {0}: a property that has it is reached through properties alone")]
    Misplaced(String),
    /// It makes no header name (RFC 9110, section 5.6.2).
    #[error("the {KEYWORD} of {0} must be the end of a header name: ASCII letters, digits and !#$%&'*+-.^_`|~")]
    Name(String),
    /// Its values have no spelling in a header, or several.
    #[error("{0} has an {KEYWORD}, so its type must be string, integer or boolean")]
    Type(String),
    /// Another property has the same.
    #[error("{first} and {second} have the same {KEYWORD}; upper and lower case are the same")]
    Twice {
        /// The property that came first.
        first: String,
        /// The other one.
        second: String,
    },
}

/// The properties of a schema that are repeated in headers.
pub fn param_headers(schema: &Schema) -> Result<Vec<ParamHeader>, ParamHeaderError> {
    if schema.contains_key(KEYWORD) {
        return Err(ParamHeaderError::Root);
    }
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    let mut seen = HashMap::new();
    for named in &found {
        if let Some(first) = seen.insert(named.header.to_ascii_lowercase(), named) {
            return Err(ParamHeaderError::Twice { first: first.path.join("."), second: named.path.join(".") });
        }
    }
    Ok(found)
}

fn collect(schema: &Schema, path: &mut Vec<String>, found: &mut Vec<ParamHeader>) -> Result<(), ParamHeaderError> {
    for (keyword, value) in schema {
        match value {
            Value::Object(properties) if keyword == "properties" => {
                for (name, property) in properties {
                    let Value::Object(property) = property else { continue };
                    path.push(name.clone());
                    if let Some(header) = property.get(KEYWORD) {
                        found.push(param_header(header, property, path)?);
                    }
                    collect(property, path, found)?;
                    path.pop();
                }
            }
            value if !DATA.contains(&keyword.as_str()) && mentions(value) => {
                path.push(keyword.clone());
                return Err(ParamHeaderError::Misplaced(path.join(".")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn param_header(header: &Value, property: &Schema, path: &[String]) -> Result<ParamHeader, ParamHeaderError> {
    let Some(end) = header.as_str().filter(|end| is_token(end)) else {
        return Err(ParamHeaderError::Name(path.join(".")));
    };
    let kind = property.get("type").and_then(Value::as_str).filter(|kind| TYPES.contains(kind));
    let Some(kind) = kind else { return Err(ParamHeaderError::Type(path.join("."))) };
    Ok(ParamHeader { header: format!("Mcp-Param-{end}"), path: path.to_vec(), is_integer: kind == "integer" })
}

/// RFC 9110, section 5.6.2.
pub(crate) fn is_token(text: &str) -> bool {
    let belongs = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(belongs)
}

/// Whether the keyword stands anywhere in a schema.
fn mentions(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(key, value)| key == KEYWORD || (!DATA.contains(&key.as_str()) && mentions(value)))
        }
        Value::Array(values) => values.iter().any(mentions),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_are_judged() {
        let header = |name: &str| json!({"type": "string", "x-mcp-header": name});
        let properties = [
            json!({"a": header("Region"), "b": {"type": "string"}}),
            json!({"a": {"type": "object", "properties": {"b": header("Region"), "c": {"type": "integer", "x-mcp-header": "C"}}}}),
            json!({"a": {"type": "boolean", "x-mcp-header": "!#$%&'*+-.^_`|~09Az"}}),
            json!({"a": {"type": "string", "default": {"x-mcp-header": 7}, "enum": [{"x-mcp-header": 7}]}}),
            json!({"a": header("")}),
            json!({"a": header("two words")}),
            json!({"a": header("a:b")}),
            json!({"a": header("a\nb")}),
            json!({"a": header("é")}),
            json!({"a": {"type": "string", "x-mcp-header": 7}}),
            json!({"a": {"type": "number", "x-mcp-header": "A"}}),
            json!({"a": {"type": ["string", "null"], "x-mcp-header": "A"}}),
            json!({"a": {"x-mcp-header": "A"}}),
            json!({"a": {"type": "object", "x-mcp-header": "A"}}),
            json!({"a": header("Region"), "b": {"type": "object", "properties": {"c": header("rEGION")}}}),
            json!({"a": {"type": "array", "items": header("A")}}),
            json!({"a": {"type": "object", "properties": {"b": {"anyOf": [header("A"), {"type": "null"}]}}}}),
            json!({"a": {"type": "object", "additionalProperties": header("A")}}),
        ];
        let of_properties = properties.iter().map(|properties| json!({"type": "object", "properties": properties}));
        let others = [
            json!({"type": "object", "x-mcp-header": "A"}),
            json!({"type": "object", "$defs": {"a": {"type": "string", "x-mcp-header": "A"}}}),
        ];
        let judged = of_properties.chain(others).map(|schema| match param_headers(schema.as_object().unwrap()) {
            Ok(found) => {
                let told = found.iter().map(|named| format!("{} = {}", named.header, named.path.join(".")));
                format!("{schema}\n  {}", told.collect::<Vec<_>>().join(", "))
            }
            Err(error) => format!("{schema}\n  {error}"),
        });
        insta::assert_snapshot!(judged.collect::<Vec<_>>().join("\n"));
    }
}
