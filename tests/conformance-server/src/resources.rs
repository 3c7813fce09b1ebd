//! The resources and the one template.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceTemplate};
use serde_json::json;

use crate::answer::{IMAGE, typed};

pub(crate) fn list() -> Result<Vec<Resource>, ErrorData> {
    typed(json!([
        {"uri": "test://static-text", "name": "static-text", "description": "A text", "mimeType": "text/plain"},
        {"uri": "test://static-binary", "name": "static-binary", "description": "An image", "mimeType": "image/png"},
        {"uri": "test://watched-resource", "name": "watched-resource", "description": "A text that can be watched",
            "mimeType": "text/plain"},
    ]))
}

pub(crate) fn templates() -> Result<Vec<ResourceTemplate>, ErrorData> {
    typed(json!([{
        "uriTemplate": "test://template/{id}/data", "name": "template", "description": "Data of an id",
        "mimeType": "application/json",
    }]))
}

pub(crate) fn read(uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let contents = match uri {
        "test://static-text" => {
            let text = "This is the content of the static text resource.";
            json!({"uri": uri, "mimeType": "text/plain", "text": text})
        }
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": IMAGE}),
        "test://watched-resource" => json!({"uri": uri, "mimeType": "text/plain", "text": "Watched resource content."}),
        _ => {
            let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
            let Some(id) = id.filter(|id| !id.is_empty() && !id.contains('/')) else {
                return Err(ErrorData::resource_not_found("there is no such resource", Some(json!({"uri": uri}))));
            };
            let text = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string();
            json!({"uri": uri, "mimeType": "application/json", "text": text})
        }
    };
    Ok(ReadResourceResult::new(typed(json!([contents]))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_can_be_read_and_nothing_else() {
        for resource in list().unwrap() {
            assert!(read(&resource.uri).is_ok(), "{}", resource.uri);
        }
        assert!(read("test://template/123/data").is_ok());
        for uri in ["test://none", "test://template//data", "test://template/1/2/data"] {
            assert!(read(uri).is_err(), "{uri}");
        }
    }
}
