//! Tools for the requests of 2026-07-28 that stand alone: what the client must offer, what a stream may carry, and
//! changes that subscribers are told of.

use std::future::ready;

use rmcp::ErrorData;
use rmcp::model::ClientCapabilities;
use serde_json::json;

use super::legacy::log;
use super::{Call, Entry, plain};
use crate::answer::{Outcome, ask, elicitation, text};

pub(super) const ENTRIES: &[Entry] = &[
    plain("test_missing_capability", "Needs a client that offers sampling", |call| {
        Box::pin(ready(missing_capability(&call)))
    }),
    plain("test_streaming_elicitation", "Asks the user, in the answer itself", |call| {
        Box::pin(streaming_elicitation(call))
    }),
    plain("test_logging_tool", "Logs where the request allows it", |call| Box::pin(logging(call))),
    plain("test_trigger_tool_change", "Changes the list of tools", |call| {
        call.shared.change(|changes| changes.tools += 1);
        Box::pin(ready(Ok(text("the tools have changed").into())))
    }),
    plain("test_trigger_prompt_change", "Changes the list of prompts", |call| {
        call.shared.change(|changes| changes.prompts += 1);
        Box::pin(ready(Ok(text("the prompts have changed").into())))
    }),
];

fn missing_capability(call: &Call) -> Outcome {
    if call.client().sampling.is_some() {
        return Ok(text("the client offers sampling").into());
    }
    let required = ClientCapabilities::builder().enable_sampling().build();
    Err(ErrorData::missing_required_client_capability(required))
}

async fn streaming_elicitation(call: Call) -> Outcome {
    log(&call, "about to ask").await?;
    if call.response("user_name", "/content/name").is_some() {
        return Ok(text("the user answered").into());
    }
    let question = elicitation("What is your name?", &json!({"name": {"type": "string"}}));
    Ok(ask(json!({"user_name": question}), None)?.into())
}

async fn logging(call: Call) -> Outcome {
    log(&call, "the tool runs").await?;
    Ok(text("the tool has run").into())
}
