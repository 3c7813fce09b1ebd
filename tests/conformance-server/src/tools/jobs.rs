//! Tools of the tasks extension (SEP-2663). A client that does not speak it is served at once where the tool can, and
//! told what is missing where it cannot.

use std::future::ready;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ClientCapabilities, CreateTaskResult};
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskOptions};
use serde_json::{Value, json};

use super::{Call, Entry, plain};
use crate::answer::{Outcome, ask, elicitation, failure, text, typed};

/// How long a job that fails works before.
const WORK: Duration = Duration::from_secs(1);

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "greet",
        description: "Greets at once; never a task",
        schema: || json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}),
        run: |call| Box::pin(ready(greet(&call))),
    },
    Entry {
        name: "slow_compute",
        description: "Takes a while; a task where the client speaks of tasks",
        schema: || {
            let seconds = json!({"type": "number", "minimum": 0});
            json!({"type": "object", "properties": {"seconds": seconds, "label": {"type": "string"}}})
        },
        run: |call| Box::pin(slow_compute(call)),
    },
    plain("failing_job", "A task whose tool fails", |call| {
        Box::pin(ready(required(&call, |_| {
            Box::pin(async {
                tokio::time::sleep(WORK).await;
                Ok(failure("This job always fails"))
            })
        })))
    }),
    plain("protocol_error_job", "A task that ends in an error of the protocol", |call| {
        Box::pin(ready(required(&call, |_| {
            Box::pin(ready(Err(ErrorData::internal_error("This job always breaks", None).into())))
        })))
    }),
    Entry {
        name: "confirm_delete",
        description: "A task that waits for the user",
        schema: || json!({"type": "object", "properties": {"filename": {"type": "string"}}}),
        run: |call| Box::pin(ready(confirm_delete(&call))),
    },
    plain("multi_input", "A task that waits for two answers", |call| {
        Box::pin(ready(required(&call, |task| Box::pin(multi_input(task)))))
    }),
    plain("test_tool_with_task", "Asks for a name, then goes on as a task", |call| {
        Box::pin(ready(asks_then_works(&call)))
    }),
];

fn greet(call: &Call) -> Outcome {
    Ok(text(format!("Hello, {}!", call.text("name")?)).into())
}

/// Starts a task; the answer is its handle.
fn start(call: &Call, work: impl FnOnce(TaskContext) -> TaskFuture) -> CallToolResponse {
    CreateTaskResult::new(call.shared.tasks.spawn(TaskOptions::default().with_poll_interval_ms(200), work)).into()
}

/// Starts a task, which there cannot be without the extension.
fn required(call: &Call, work: impl FnOnce(TaskContext) -> TaskFuture) -> Outcome {
    if !call.client().supports_tasks() {
        let missing = ClientCapabilities::builder().enable_tasks().build();
        return Err(ErrorData::missing_required_client_capability(missing));
    }
    Ok(start(call, work))
}

async fn slow_compute(call: Call) -> Outcome {
    let seconds = call.arguments.get("seconds").and_then(Value::as_f64).unwrap_or_default();
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|_| ErrorData::invalid_params("seconds is no number of seconds", None))?;
    let label = call.text("label").unwrap_or("unnamed").to_owned();
    let result = text(format!("{label} took {seconds} s"));
    if duration.is_zero() || !call.client().supports_tasks() {
        tokio::time::sleep(duration).await;
        return Ok(result.into());
    }
    let work = async move |task: TaskContext| {
        tokio::select! {
            () = task.cancelled() => Err(TaskExit::Cancelled),
            () = tokio::time::sleep(duration) => Ok(result),
        }
    };
    Ok(start(&call, |task| Box::pin(work(task))))
}

fn confirm_delete(call: &Call) -> Outcome {
    let file = call.text("filename").unwrap_or("everything").to_owned();
    required(call, |task| {
        Box::pin(async move {
            let question = elicitation(&format!("Delete {file}?"), &json!({"confirm": {"type": "boolean"}}));
            let answer = task.request_input("confirm", typed(question)?).await?;
            let done = answer.pointer("/content/confirm") == Some(&Value::Bool(true));
            Ok(text(if done { format!("Deleted {file}") } else { format!("Kept {file}") }))
        })
    })
}

async fn multi_input(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let question = |message: &str| typed(elicitation(message, &json!({"name": {"type": "string"}})));
    let (first, second) = (question("The first name?")?, question("The second name?")?);
    let (first, second) =
        futures::future::try_join(task.request_input("first", first), task.request_input("second", second)).await?;
    let name = |answer: &Value| answer.pointer("/content/name").and_then(Value::as_str).unwrap_or("nobody").to_owned();
    Ok(text(format!("{} and {}", name(&first), name(&second))))
}

fn asks_then_works(call: &Call) -> Outcome {
    let Some(name) = call.response("user_name", "/content/name").and_then(Value::as_str) else {
        let question = elicitation("What is your name?", &json!({"name": {"type": "string"}}));
        return Ok(ask(json!({"user_name": question}), None)?.into());
    };
    let result = text(format!("The work for {name} is done"));
    required(call, |_| Box::pin(ready(Ok(result))))
}
