//! Canaries: a credential is in no answer, no metric, no status and nothing that reaches the backend, wherever the client
//! put it. The test of the process looks into its log.

use http::HeaderValue;
use serde_json::json;

use super::backend::Backend;
use super::front::{Front, collect, http_config, key};
use crate::body::full;
use crate::refusal::json as json_answer;

#[tokio::test]
async fn no_credential_leaves_the_front_door() {
    let backend = Backend::start(|_| async { json_answer(http::StatusCode::OK, "{}".into()) }).await;
    let front = Front::new(&http_config(backend.port));
    let unknown = key(8);
    let api_secret = "api-secret-canary-0123456789";
    let mut texts = Vec::new();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for canary in [front.key.expose(), unknown.expose()] {
        for place in ["authorization", "x-api-key", "both", "query", "path", "host", "origin", "body", "request-id"] {
            let mut request = front.post(ping);
            let header = |text: &str| HeaderValue::try_from(text).unwrap();
            let headers = request.headers_mut();
            match place {
                "authorization" => drop(headers.insert("authorization", header(&format!("Bearer {canary}")))),
                "x-api-key" => {
                    headers.remove("authorization");
                    headers.insert("x-api-key", header(canary));
                }
                "both" => drop(headers.insert("x-api-key", header(canary))),
                "host" => drop(headers.insert("host", header(canary))),
                "origin" => drop(headers.insert("origin", header(canary))),
                "query" => *request.uri_mut() = format!("/weather/mcp?_key={canary}").parse().unwrap(),
                "path" => *request.uri_mut() = format!("/weather/{canary}").parse().unwrap(),
                "body" => *request.body_mut() = full(format!("{{\"id\":1,\"method\":7,\"x\":\"{canary}\"}}")),
                _ => {}
            }
            let (_, headers, body) = collect(front.ask(request).await).await;
            texts.push(format!("{headers:?} {}", String::from_utf8_lossy(&body)));
        }
    }
    // Where the query is the one of a stream that the front door opens itself.
    let mut config = http_config(backend.port);
    config["source"]["http"]["transport"] = "sse".into();
    let older = Front::new(&config);
    for canary in [front.key.expose(), unknown.expose()] {
        drop(older.ask(older.bare("GET", &format!("/weather/sse?_key={canary}&a=%2F"))).await);
        let mut request = older.post(&ping.replace("ping", "initialize"));
        *request.uri_mut() = format!("/weather/mcp?b&_key={canary}").parse().unwrap();
        drop(older.ask(request).await);
    }
    let targets: Vec<_> = backend.seen().iter().map(|request| request.uri().to_string()).collect();
    assert_eq!(targets[targets.len() - 2..], ["/backend/mcp?a=%2F", "/backend/mcp?b"]);
    for request in backend.seen() {
        texts.push(format!("{request:?}"));
    }
    // A declared tool whose API is away, with a secret header.
    let mut config = http_config(9);
    config["source"] = json!({"tools": [{
        "name": "t",
        "inputSchema": {"type": "object"},
        "http": {"method": "GET", "url": "http://127.0.0.1:9/", "timeoutMs": 1000,
                 "headers": [{"name": "x-api-token", "value": api_secret}]},
    }]});
    let tools = Front::new(&config);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let (_, _, body) = collect(tools.ask(tools.post(call)).await).await;
    texts.push(String::from_utf8_lossy(&body).into_owned());
    for door in [&front.door, &tools.door] {
        texts.push(serde_json::to_string(&door.status()).unwrap());
        texts.push(door.metrics.text(true).unwrap().1);
        texts.push(format!("{door:?}"));
    }
    for canary in [front.key.expose(), unknown.expose(), api_secret, "status-token-of-the-test"] {
        let found = texts.iter().find(|text| text.contains(canary));
        assert!(found.is_none(), "{canary} in {found:?}");
    }
}
