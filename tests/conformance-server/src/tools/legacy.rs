//! Tools that speak while they run, most of them in the way of the sessions before 2026-07-28: logs, progress, questions
//! to the client, and a stream that ends before its answer is there.

use std::time::Duration;

use http::request::Parts;
use rmcp::ErrorData;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam};
use rmcp::service::ServiceError;
use serde_json::{Value, json};

use super::{Call, Entry, plain};
use crate::answer::{self, Outcome, failure, text, typed};
use crate::web::HangUp;

/// Between two steps, so that a client sees that they arrive one by one.
const STEP: Duration = Duration::from_millis(50);
/// From the end of a stream to the answer that it lacked.
const AWAY: Duration = Duration::from_millis(300);

pub(super) const ENTRIES: &[Entry] = &[
    plain("test_tool_with_logging", "Logs three times while it runs", |call| Box::pin(logging(call))),
    plain("test_tool_with_progress", "Tells its progress three times", |call| Box::pin(progress(call))),
    Entry {
        name: "test_sampling",
        description: "Asks the client's model",
        schema: || {
            let prompt = json!({"type": "string", "description": "The prompt for the model"});
            json!({"type": "object", "properties": {"prompt": prompt}, "required": ["prompt"]})
        },
        run: |call| Box::pin(sampling(call)),
    },
    Entry {
        name: "test_elicitation",
        description: "Asks the user for name and address",
        schema: || {
            let message = json!({"type": "string", "description": "The message for the user"});
            json!({"type": "object", "properties": {"message": message}, "required": ["message"]})
        },
        run: |call| Box::pin(contact(call)),
    },
    plain("test_elicitation_sep1034_defaults", "Asks the user with a default for each type", |call| {
        Box::pin(elicit(call, "Please review the defaults", defaults(), &[], "Elicitation completed"))
    }),
    plain("test_elicitation_sep1330_enums", "Asks the user with each kind of choice", |call| {
        Box::pin(elicit(call, "Please choose", choices(), &[], "Elicitation completed"))
    }),
    plain("test_reconnection", "Ends its stream and answers on the next one", |call| Box::pin(reconnection(call))),
];

/// Sends a log message where the session's level, or the request's own, lets it pass. A modern request without a level
/// gets none.
pub(super) async fn log(call: &Call, message: &str) -> Result<(), ErrorData> {
    let threshold = match call.context.meta.protocol_version() {
        Some(_) => call.context.meta.log_level().map(|level| level as u8),
        None => Some(call.level),
    };
    let level = LoggingLevel::Info;
    if threshold.is_none_or(|threshold| (level as u8) < threshold) {
        return Ok(());
    }
    let message = LoggingMessageNotificationParam::new(level, message.into()).with_logger("conformance");
    call.context.peer.notify_logging_message(message).await.map_err(unsent)
}

async fn logging(call: Call) -> Outcome {
    log(&call, "Tool execution started").await?;
    tokio::time::sleep(STEP).await;
    log(&call, "Tool processing data").await?;
    tokio::time::sleep(STEP).await;
    log(&call, "Tool execution completed").await?;
    Ok(text("Tool with logging executed").into())
}

async fn progress(call: Call) -> Outcome {
    let token = call.context.meta.get_progress_token();
    for progress in [0.0, 50.0, 100.0] {
        if let Some(token) = &token {
            let step = ProgressNotificationParam::new(token.clone(), progress).with_total(100.0);
            call.context.peer.notify_progress(step).await.map_err(unsent)?;
        }
        tokio::time::sleep(STEP).await;
    }
    Ok(text("Tool with progress executed").into())
}

async fn sampling(call: Call) -> Outcome {
    if call.client().sampling.is_none() {
        return Ok(failure("the client offers no sampling").into());
    }
    let request = typed(answer::prompt_for(call.text("prompt")?, 100))?;
    let answer = json!(call.context.peer.create_message(request).await.map_err(unsent)?);
    let said = answer.pointer("/content/text").and_then(Value::as_str).unwrap_or_default();
    Ok(text(format!("LLM response: {said}")).into())
}

async fn contact(call: Call) -> Outcome {
    let properties = json!({
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    });
    let message = call.text("message")?.to_owned();
    elicit(call, &message, properties, &["username", "email"], "User response").await
}

/// Asks the user, and says how that went.
async fn elicit(call: Call, message: &str, properties: Value, required: &[&str], said: &str) -> Outcome {
    if call.client().elicitation.is_none() {
        return Ok(failure("the client offers no elicitation").into());
    }
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let request = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let answer = call.context.peer.create_elicitation(typed(request)?).await.map_err(unsent)?;
    let action = json!(answer.action);
    let action = action.as_str().unwrap_or_default();
    Ok(text(format!("{said}: action={action}, content={}", json!(answer.content))).into())
}

/// SEP-1034.
fn defaults() -> Value {
    json!({
        "name": {"type": "string", "description": "A name", "default": "John Doe"},
        "age": {"type": "integer", "description": "An age", "default": 30},
        "score": {"type": "number", "description": "A score", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "description": "Whether it was verified", "default": true},
    })
}

/// SEP-1330.
fn choices() -> Value {
    let titled = |titles: [&str; 3]| -> Value {
        let choice = |(number, title)| json!({"const": format!("value{number}"), "title": title});
        (1..).zip(titles).map(choice).collect()
    };
    json!({
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"])},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array",
            "items": {"anyOf": titled(["First Choice", "Second Choice", "Third Choice"])}},
    })
}

/// SEP-1699: the stream ends, the tool goes on, and the client fetches the answer with `Last-Event-ID`.
async fn reconnection(call: Call) -> Outcome {
    if let Some(HangUp(hang_up)) = call.context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get()) {
        // Not before the stream has begun.
        tokio::time::sleep(STEP).await;
        hang_up.cancel();
        tokio::time::sleep(AWAY).await;
    }
    Ok(text("Reconnection test completed").into())
}

fn unsent(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        other => ErrorData::internal_error(format!("the client could not be asked: {other}"), None),
    }
}
