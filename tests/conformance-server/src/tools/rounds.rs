//! Tools that answer with a question first (multi round-trip requests, SEP-2322). Where a tool must know later where it
//! was, it seals that into the request state, which the client only carries.

use std::future::ready;

use rmcp::ErrorData;
use serde_json::{Map, Value, json};

use super::{Call, Entry, plain};
use crate::answer::{Outcome, ask, elicitation, roots, sampling, text};

pub(super) const ENTRIES: &[Entry] = &[
    plain("test_input_required_result_elicitation", "Asks the user for a name", |call| Box::pin(ready(name(&call)))),
    plain("test_input_required_result_sampling", "Asks the model for a capital", |call| {
        Box::pin(ready(capital(&call)))
    }),
    plain("test_input_required_result_list_roots", "Asks for the roots", |call| Box::pin(ready(listed(&call)))),
    plain("test_input_required_result_request_state", "Asks, and knows its own state again", |call| {
        Box::pin(ready(confirmed(&call)))
    }),
    plain("test_input_required_result_multiple_inputs", "Asks for three things at once", |call| {
        Box::pin(ready(three(&call)))
    }),
    plain("test_input_required_result_multi_round", "Asks twice, one after the other", |call| {
        Box::pin(ready(twice(&call)))
    }),
    plain("test_input_required_result_tampered_state", "Refuses a state that it did not give", |call| {
        Box::pin(ready(confirmed(&call)))
    }),
    plain("test_input_required_result_capabilities", "Asks for what the client offers", |call| {
        Box::pin(ready(offered(&call)))
    }),
];

/// A question for one text.
fn question(message: &str, field: &str) -> Value {
    elicitation(message, &json!({field: {"type": "string"}}))
}

/// A question for yes or no.
fn confirmation() -> Value {
    elicitation("Please confirm", &json!({"ok": {"type": "boolean"}}))
}

/// Where the tool was, if the client says that it was somewhere: only what this server sealed counts.
fn place(call: &Call) -> Result<Option<String>, ErrorData> {
    let open = |state: &String| {
        let opened = call.shared.open(state);
        opened.map_err(|error| ErrorData::invalid_params(format!("requestState is refused: {error}"), None))
    };
    call.state.as_ref().map(open).transpose()
}

fn name(call: &Call) -> Outcome {
    match call.response("user_name", "/content/name").and_then(Value::as_str) {
        Some(name) => Ok(text(format!("Hello, {name}!")).into()),
        None => Ok(ask(json!({"user_name": question("What is your name?", "name")}), None)?.into()),
    }
}

fn capital(call: &Call) -> Outcome {
    match call.response("capital_question", "/content/text").and_then(Value::as_str) {
        Some(answer) => Ok(text(format!("The model said: {answer}")).into()),
        None => Ok(ask(json!({"capital_question": sampling("What is the capital of France?", 100)}), None)?.into()),
    }
}

fn listed(call: &Call) -> Outcome {
    match call.response("client_roots", "/roots").and_then(Value::as_array) {
        Some(roots) => Ok(text(format!("The client has {} roots: {}", roots.len(), json!(roots))).into()),
        None => Ok(ask(json!({"client_roots": roots()}), None)?.into()),
    }
}

fn confirmed(call: &Call) -> Outcome {
    match (place(call)?, call.response("confirm", "/content/ok")) {
        (Some(_), Some(_)) => Ok(text("state-ok").into()),
        _ => Ok(ask(json!({"confirm": confirmation()}), Some(call.shared.seal("confirm")))?.into()),
    }
}

fn three(call: &Call) -> Outcome {
    let name = call.response("user_name", "/content/name").and_then(Value::as_str);
    let greeting = call.response("greeting", "/content/text").and_then(Value::as_str);
    let listed = call.response("client_roots", "/roots").and_then(Value::as_array);
    if let (Some(_), Some(name), Some(greeting), Some(roots)) = (place(call)?, name, greeting, listed) {
        return Ok(text(format!("{greeting} {name}, you have {} roots", roots.len())).into());
    }
    let questions = json!({
        "user_name": question("What is your name?", "name"),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    });
    Ok(ask(questions, Some(call.shared.seal("three")))?.into())
}

fn twice(call: &Call) -> Outcome {
    let answer = |step: &str, field: &str| call.response(step, field).and_then(Value::as_str);
    match (place(call)?.as_deref().and_then(|place| place.split_once(' ')), answer("step1", "/content/name")) {
        (Some(("second", name)), _) if answer("step2", "/content/color").is_some() => {
            let color = answer("step2", "/content/color").unwrap_or_default();
            Ok(text(format!("{name} likes {color}")).into())
        }
        (Some(("first", _)), Some(name)) => {
            let state = call.shared.seal(&format!("second {name}"));
            Ok(ask(json!({"step2": question("Step 2: What is your favorite color?", "color")}), Some(state))?.into())
        }
        _ => {
            let state = call.shared.seal("first ");
            Ok(ask(json!({"step1": question("Step 1: What is your name?", "name")}), Some(state))?.into())
        }
    }
}

fn offered(call: &Call) -> Outcome {
    let client = call.client();
    let possible = [
        (client.elicitation.is_some(), "confirm", confirmation()),
        (client.sampling.is_some(), "greeting", sampling("Generate a greeting", 50)),
        (client.roots.is_some(), "client_roots", roots()),
    ];
    let questions = possible.into_iter().filter(|(offered, ..)| *offered);
    let questions: Map<String, Value> = questions.map(|(_, key, question)| (key.to_owned(), question)).collect();
    if questions.is_empty() || questions.keys().all(|key| call.responses.contains_key(key)) {
        return Ok(text("everything that the client offers was asked for").into());
    }
    Ok(ask(questions.into(), None)?.into())
}
