//! Answers written as the specification prints them: JSON in place, given the types that rmcp sends.

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, InputRequests, InputRequiredResult};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A red square of one pixel, as PNG.
pub(crate) const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
/// No sample at all, as WAV.
pub(crate) const AUDIO: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==";

/// The outcome of a tool: an answer, or an error of the protocol.
pub(crate) type Outcome = Result<CallToolResponse, ErrorData>;

/// A value of the model from its JSON. That it does not fit is a fault of this server.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(format!("not understood: {error}"), None))
}

/// A text as a tool's whole content.
pub(crate) fn text(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}

/// A text that says that the tool failed.
pub(crate) fn failure(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// A tool's content.
pub(crate) fn content(blocks: Value) -> Outcome {
    Ok(CallToolResult::success(typed(blocks)?).into())
}

/// The answer that asks the client for something first.
pub(crate) fn ask(requests: Value, state: Option<String>) -> Result<InputRequiredResult, ErrorData> {
    let requests: InputRequests = typed(requests)?;
    Ok(InputRequiredResult::new(Some(requests), state))
}

/// A request to the user for these properties, all of them required.
pub(crate) fn elicitation(message: &str, properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(|fields| fields.keys()).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

/// A request to the user's model.
pub(crate) fn sampling(prompt: &str, tokens: u32) -> Value {
    json!({"method": "sampling/createMessage", "params": prompt_for(prompt, tokens)})
}

/// What a request to the user's model says.
pub(crate) fn prompt_for(prompt: &str, tokens: u32) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    json!({"messages": [message], "maxTokens": tokens})
}

/// A request for the client's roots.
pub(crate) fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}
