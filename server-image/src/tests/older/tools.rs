//! Clients of the older transport before declared tools; and what holds for their sessions whatever is behind.

use http::HeaderValue;
use serde_json::{Value, json};

use super::super::eventually;
use super::super::front::{Front, http_config, key, record, text};
use super::{Client, INITIALIZE, INITIALIZED};

fn tools_config() -> Value {
    let mut config = http_config(9);
    config["source"] = json!({"tools": [
        {"name": "t", "inputSchema": {"type": "object"}, "http": {"method": "GET", "url": "http://127.0.0.1:9/", "timeoutMs": 1000}},
    ]});
    config
}

#[tokio::test]
async fn declared_tools_are_served_to_older_clients() {
    let front = Front::new(&tools_config());
    let mut client = Client::open(&front).await;
    let prefix = "/weather/messages?s=";
    assert!(client.endpoint.starts_with(prefix) && client.endpoint.len() == prefix.len() + 36, "{}", client.endpoint);
    let answer = client.ask(INITIALIZE).await;
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(0), &json!("2024-11-05")));
    assert_eq!(client.post(INITIALIZED).await, 202);
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#).await;
    assert_eq!((&answer["id"], &answer["result"]["tools"][0]["name"]), (&json!("l"), &json!("t")));
    let answer = client.ask(r#"{"jsonrpc":"2.0","id":2,"method":"no/such"}"#).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(2), &json!(-32601)));
    // The newest revision has no such transport; its clients fall back from this answer.
    let discover = r#"{"jsonrpc":"2.0","id":3,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let answer = client.ask(discover).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(3), &json!(-32600)));
    assert_eq!(answer["error"]["data"]["supported"][0], "2025-11-25");
    // What is no message is refused where it was sent.
    assert_eq!(client.post("{").await, 400);
    assert_eq!(client.post(r#"{"id":1,"method":"a","method":"b"}"#).await, 400);
    assert_eq!(client.post(&format!(r#"{{"id":1,"method":"a","x":"{}"}}"#, "x".repeat(5000))).await, 413);
}

#[tokio::test]
async fn a_session_belongs_to_its_principal_and_ends_with_its_stream() {
    let front = Front::new(&tools_config());
    let (other, rotated) = (key(2), key(3));
    let of = |subject: &str, key| record(key, None).replace("\"subject\":\"s\"", &format!("\"subject\":\"{subject}\""));
    front.keys.swap(&[
        (front.key.id(), &of("alice", &front.key)),
        (other.id(), &of("bob", &other)),
        (rotated.id(), &of("alice", &rotated)),
    ]);
    front.reloader().reload();
    let mut client = Client::open(&front).await;
    let with = |key: &str| {
        let mut request = client.request(INITIALIZE);
        request.headers_mut().insert("authorization", HeaderValue::try_from(format!("Bearer {key}")).unwrap());
        request
    };
    assert_eq!(text(front.ask(with(other.expose())).await).await.0, 404, "another principal");
    assert_eq!(text(front.ask(with("nobody")).await).await.0, 401);
    assert_eq!(text(front.ask(with(rotated.expose())).await).await.0, 202, "the same after a rotation");
    assert!(client.next().await.unwrap().contains("serverInfo"));
    for wrong in ["/weather/messages", "/weather/messages?s=", "/weather/messages?s=wrong", "/messages?s=x"] {
        let mut request = client.request(INITIALIZE);
        *request.uri_mut() = wrong.parse().unwrap();
        assert_eq!(text(front.ask(request).await).await.0, 404, "{wrong}");
    }
    let twice = format!("{0}&s={1}", client.endpoint, client.endpoint.split("s=").nth(1).unwrap());
    let mut request = client.request(INITIALIZE);
    *request.uri_mut() = twice.parse().unwrap();
    assert_eq!(text(front.ask(request).await).await.0, 404, "two tokens");
    for (method, path, expected) in [
        ("POST", "/weather/sse", 405),
        ("DELETE", "/weather/sse", 405),
        ("HEAD", "/weather/sse", 405),
        ("GET", "/weather/messages", 405),
        ("OPTIONS", "/weather/sse", 204),
        ("OPTIONS", "/weather/messages", 204),
    ] {
        assert_eq!(text(front.ask(front.bare(method, path)).await).await.0, expected, "{method} {path}");
    }
    let mut request = front.bare("GET", "/weather/sse");
    request.headers_mut().insert("accept", HeaderValue::from_static("application/json"));
    assert_eq!(text(front.ask(request).await).await.0, 406);

    let request = client.request(INITIALIZE);
    drop(client);
    assert_eq!(text(front.ask(request).await).await.0, 404, "the stream has ended");
    eventually("nothing is left", || front.door.calls.is_empty() && front.door.sse.sessions() == 0).await;
}

#[tokio::test]
async fn a_revoked_key_ends_the_stream() {
    let front = Front::new(&tools_config());
    let mut client = Client::open(&front).await;
    front.watch();
    front.keys.swap(&[]);
    assert_eq!(client.next().await, None);
}
