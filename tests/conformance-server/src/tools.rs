//! The tools: one table, in the order in which they are listed.

mod content;
mod jobs;
mod legacy;
mod modern;
mod rounds;

use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::model::{ClientCapabilities, InputResponses, JsonObject, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::answer::{Outcome, typed};
use crate::shared::Shared;

/// One call of a tool.
pub(crate) struct Call {
    pub(crate) arguments: JsonObject,
    /// What the client answered to an earlier round, and the state that it was given then.
    pub(crate) responses: InputResponses,
    pub(crate) state: Option<String>,
    pub(crate) context: RequestContext<RoleServer>,
    pub(crate) shared: Arc<Shared>,
    /// Log level of the session, as its place in the list of levels.
    pub(crate) level: u8,
}

impl Call {
    /// An argument that is a text.
    fn text(&self, name: &str) -> Result<&str, ErrorData> {
        let value = self.arguments.get(name).and_then(Value::as_str);
        value.ok_or_else(|| ErrorData::invalid_params(format!("the argument {name} is missing"), None))
    }

    /// What the client can do.
    fn client(&self) -> ClientCapabilities {
        self.context.client_capabilities().unwrap_or_default()
    }

    /// What the client answered to a question.
    fn response(&self, question: &str, pointer: &str) -> Option<&Value> {
        self.responses.get(question)?.pointer(pointer)
    }
}

/// A tool.
struct Entry {
    name: &'static str,
    description: &'static str,
    schema: fn() -> Value,
    run: fn(Call) -> BoxFuture<'static, Outcome>,
}

fn nothing() -> Value {
    json!({"type": "object", "properties": {}})
}

/// A tool without arguments.
const fn plain(name: &'static str, description: &'static str, run: fn(Call) -> BoxFuture<'static, Outcome>) -> Entry {
    Entry { name, description, schema: nothing, run }
}

fn entries() -> impl Iterator<Item = &'static Entry> {
    [content::ENTRIES, legacy::ENTRIES, modern::ENTRIES, rounds::ENTRIES, jobs::ENTRIES].into_iter().flatten()
}

pub(crate) fn list() -> Result<Vec<Tool>, ErrorData> {
    let described = entries()
        .map(|entry| json!({"name": entry.name, "description": entry.description, "inputSchema": (entry.schema)()}));
    typed(described.collect())
}

pub(crate) async fn call(name: &str, call: Call) -> Outcome {
    match entries().find(|entry| entry.name == name) {
        Some(entry) => (entry.run)(call).await,
        None => Err(ErrorData::invalid_params(format!("there is no tool {name}"), None)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_tool_is_listed_once_in_the_same_order() {
        let tools = list().unwrap();
        assert_eq!(tools, list().unwrap());
        assert_eq!(tools.iter().map(|tool| tool.name.clone()).collect::<BTreeSet<_>>().len(), tools.len());
    }
}
