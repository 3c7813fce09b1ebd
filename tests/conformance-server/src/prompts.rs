//! The prompts, and the completion of their arguments.

use rmcp::ErrorData;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    Prompt, Reference,
};
use serde_json::{Value, json};

use crate::answer::{self, IMAGE, typed};

/// What an argument may be completed to.
const WORDS: [&str; 6] = ["paris", "park", "party", "tea", "test", "testing"];

pub(crate) fn list() -> Result<Vec<Prompt>, ErrorData> {
    typed(json!([
        {"name": "test_simple_prompt", "description": "A prompt without arguments"},
        {"name": "test_prompt_with_arguments", "description": "A prompt that repeats its arguments", "arguments": [
            {"name": "arg1", "description": "First test argument", "required": true},
            {"name": "arg2", "description": "Second test argument", "required": true},
        ]},
        {"name": "test_prompt_with_embedded_resource", "description": "A prompt with a resource in it", "arguments": [
            {"name": "resourceUri", "description": "URI of the resource to embed", "required": true},
        ]},
        {"name": "test_prompt_with_image", "description": "A prompt with an image in it"},
        {"name": "test_input_required_result_prompt", "description": "A prompt that asks the user first"},
    ]))
}

pub(crate) fn get(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let argument = |name: &str| {
        let value = request.arguments.as_ref().and_then(|arguments| arguments.get(name)).and_then(Value::as_str);
        value.ok_or_else(|| ErrorData::invalid_params(format!("the argument {name} is missing"), None))
    };
    match request.name.as_str() {
        "test_simple_prompt" => messages(&[text("This is a simple prompt for testing.")]),
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1")?, argument("arg2")?);
            messages(&[text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))])
        }
        "test_prompt_with_embedded_resource" => {
            let uri = argument("resourceUri")?;
            let resource =
                json!({"uri": uri, "mimeType": "text/plain", "text": "Embedded resource content for testing."});
            let embedded = json!({"type": "resource", "resource": resource});
            messages(&[embedded, text("Please process the embedded resource above.")])
        }
        "test_prompt_with_image" => {
            let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
            messages(&[image, text("Please analyze the image above.")])
        }
        "test_input_required_result_prompt" => {
            let answers = request.input_responses.as_ref().and_then(|responses| responses.get("user_context"));
            if let Some(context) = answers.and_then(|given| given.pointer("/content/context")).and_then(Value::as_str) {
                return messages(&[text(&format!("The context is: {context}"))]);
            }
            let fields = json!({"context": {"type": "string"}});
            let question = answer::elicitation("What context should the prompt use?", &fields);
            Ok(answer::ask(json!({"user_context": question}), None)?.into())
        }
        name => Err(ErrorData::invalid_params(format!("there is no prompt {name}"), None)),
    }
}

pub(crate) fn complete(request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
    if let Reference::Prompt(prompt) = &request.r#ref
        && !list()?.iter().any(|known| known.name == prompt.name)
    {
        return Err(ErrorData::invalid_params(format!("there is no prompt {}", prompt.name), None));
    }
    let fitting = WORDS.iter().filter(|word| word.starts_with(&request.argument.value)).map(ToString::to_string);
    let completion = CompletionInfo::with_all_values(fitting.collect());
    Ok(CompleteResult::new(completion.map_err(|error| ErrorData::internal_error(error, None))?))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn messages(contents: &[Value]) -> Result<GetPromptResponse, ErrorData> {
    let messages: Vec<Value> = contents.iter().map(|content| json!({"role": "user", "content": content})).collect();
    Ok(GetPromptResult::new(typed(json!(messages))?).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_says_its_arguments_or_that_one_is_missing() {
        let request = |arguments: Value| typed(json!({"name": "test_prompt_with_arguments", "arguments": arguments}));
        let Ok(GetPromptResponse::Complete(prompt)) = get(&request(json!({"arg1": "a", "arg2": "b"})).unwrap()) else {
            panic!("both are there")
        };
        let prompt = serde_json::to_value(prompt).unwrap();
        assert_eq!(prompt["messages"][0]["content"]["text"], "Prompt with arguments: arg1='a', arg2='b'");
        let refused = get(&request(json!({"arg1": "a"})).unwrap()).unwrap_err();
        assert!(refused.message.contains("arg2"), "{refused}");
    }

    #[test]
    fn completion_goes_by_what_was_typed() {
        let request = |name: &str, value: &str| {
            let reference = json!({"type": "ref/prompt", "name": name});
            typed(json!({"ref": reference, "argument": {"name": "arg1", "value": value}})).unwrap()
        };
        let completed = complete(&request("test_prompt_with_arguments", "par")).unwrap();
        assert_eq!(completed.completion.values, ["paris", "park", "party"]);
        assert!(complete(&request("none", "par")).is_err());
    }
}
