//! Tools that answer at once: each kind of content, an error, and a schema with everything that JSON Schema has.

use std::future::ready;

use rmcp::model::CallToolResponse;
use serde_json::{Value, json};

use super::{Call, Entry, plain};
use crate::answer::{AUDIO, IMAGE, content, failure, text};

pub(super) const ENTRIES: &[Entry] = &[
    plain("test_simple_text", "A text", |_| {
        Box::pin(ready(Ok(text("This is a simple text response for testing.").into())))
    }),
    plain("test_image_content", "An image", |_| Box::pin(ready(content(json!([image()]))))),
    plain("test_audio_content", "A sound", |_| {
        Box::pin(ready(content(json!([{"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}]))))
    }),
    plain("test_embedded_resource", "A resource", |_| {
        let text = "This is an embedded resource content.";
        let resource = json!({"uri": "test://embedded-resource", "mimeType": "text/plain", "text": text});
        Box::pin(ready(content(json!([{"type": "resource", "resource": resource}]))))
    }),
    plain("test_multiple_content_types", "A text, an image and a resource", |_| {
        let data = json!({"test": "data", "value": 123}).to_string();
        let resource = json!({"uri": "test://mixed-content-resource", "mimeType": "application/json", "text": data});
        let text = json!({"type": "text", "text": "Multiple content types test:"});
        Box::pin(ready(content(json!([text, image(), {"type": "resource", "resource": resource}]))))
    }),
    plain("test_error_handling", "Always fails", |_| {
        Box::pin(ready(Ok(failure("This tool intentionally returns an error for testing").into())))
    }),
    Entry {
        name: "json_schema_2020_12_tool",
        description: "A schema with the vocabulary of JSON Schema 2020-12",
        schema: || serde_json::from_str(include_str!("vocabulary.json")).unwrap_or_default(),
        run: |call| Box::pin(ready(Ok(repeat(&call)))),
    },
    Entry {
        name: "test_header_argument",
        description: "An argument that travels in a header, too",
        schema: || {
            let region = json!({"type": "string", "description": "A region", "x-mcp-header": "Region"});
            json!({"type": "object", "properties": {"region": region}})
        },
        run: |call| Box::pin(ready(Ok(repeat(&call)))),
    },
];

fn image() -> Value {
    json!({"type": "image", "data": IMAGE, "mimeType": "image/png"})
}

/// Says what it was given.
fn repeat(call: &Call) -> CallToolResponse {
    text(Value::from(call.arguments.clone()).to_string()).into()
}
