//! What the front door refuses, through Traefik and at the Service, and that the backend never learns of it.

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use mooring_tests::mcp::{Answer, Target};
use serde_json::{Value, json};

use crate::room::Room;
use crate::specs::{self, KEY};

const ORIGIN: &str = "https://app.example.com";

fn call() -> String {
    json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "record", "arguments": {}}})
        .to_string()
}

/// What the recorder of a pod was sent so far.
pub(crate) async fn seen(room: &Room, pod: &Pod) -> Result<Vec<Value>> {
    let address = room.pod_port(pod, 8000).await?;
    let target = Target { address, host: "localhost".into(), path: "/seen".into(), key: None, headers: Vec::new() };
    Ok(serde_json::from_slice(&target.send("GET", "").await?.body)?)
}

fn refused(answer: &Answer, status: StatusCode, what: &str) -> Result<()> {
    ensure!(answer.status == status, "{what}: {} instead of {status}: {}", answer.status, answer.text());
    let message = answer.message().with_context(|| what.to_owned())?;
    ensure!(message["jsonrpc"] == "2.0" && message["error"]["message"].is_string(), "{what}: {message}");
    Ok(())
}

pub(crate) async fn what_is_refused_never_reaches_the_backend(room: Room) -> Result<()> {
    room.apply(specs::recorder_program()).await?;
    let mut spec = specs::recorder(&room, "recorder", "recorded");
    spec["origins"] = json!([ORIGIN]);
    spec["limits"] = json!({"bodyBytes": 2048});
    spec["auth"]["keys"] = json!([{"name": KEY}, {"name": "old", "expires": "2020-01-01T00:00:00Z"}]);
    room.serve("recorder", &spec).await?;
    let through_traefik = room.entrance("recorder", KEY).await?;
    let at_the_service = room.service("recorder", "/mcp", KEY).await?;
    let expired = room.key("recorder", "old").await?;
    let wrong = format!("{}x", through_traefik.key.as_deref().unwrap_or_default());

    for (way, target) in [("through Traefik", &through_traefik), ("at the Service", &at_the_service)] {
        let mut bodies = Vec::new();
        for key in [None, Some(wrong.as_str()), Some("no key at all"), Some(expired.as_str())] {
            let answer = target.with_key(key).send("POST", call()).await?;
            refused(&answer, StatusCode::UNAUTHORIZED, &format!("{way}, key {key:?}"))?;
            ensure!(answer.headers["content-type"] == "application/json", "{:?}", answer.headers);
            bodies.push(answer.text());
        }
        let api_key = target.with_key(None).with_header("x-api-key", &expired).send("POST", call()).await?;
        refused(&api_key, StatusCode::UNAUTHORIZED, &format!("{way}, x-api-key"))?;
        bodies.push(api_key.text());
        bodies.dedup();
        ensure!(bodies.len() == 1, "{way}: refusals differ: {bodies:?}");
        ensure!(bodies[0].contains("pass a Bearer token in Authorization, or an API key"), "{way}: {}", bodies[0]);

        let foreign = target.with_header("origin", "https://evil.example.com").send("POST", call()).await?;
        refused(&foreign, StatusCode::FORBIDDEN, &format!("{way}, Origin"))?;
        let large = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": "x".repeat(2048)}).to_string();
        refused(&target.send("POST", large).await?, StatusCode::PAYLOAD_TOO_LARGE, &format!("{way}, body"))?;
        refused(&target.send("POST", "{").await?, StatusCode::BAD_REQUEST, &format!("{way}, JSON"))?;
        let twice = r#"{"jsonrpc":"2.0","id":5,"method":"ping","method":"tools/call"}"#;
        refused(&target.send("POST", twice).await?, StatusCode::BAD_REQUEST, &format!("{way}, method twice"))?;
    }
    for host in ["evil.example.com", "recorder.other-namespace", "10.96.0.1"] {
        let answer = at_the_service.with_host(host).send("POST", call()).await?;
        refused(&answer, StatusCode::MISDIRECTED_REQUEST, host)?;
    }
    let pods = room.pods("recorder").await?;
    let pod = pods.first().context("no pod")?;
    let seen_before = seen(&room, pod).await?;
    ensure!(seen_before.is_empty(), "the backend was called: {seen_before:?}");

    // The good call is the proof that the recorder would have seen the others.
    let page = through_traefik.with_header("origin", ORIGIN).with_header("cookie", "a=b");
    let answer = page.send("POST", call()).await?;
    ensure!(answer.status == StatusCode::OK, "{}: {}", answer.status, answer.text());
    ensure!(answer.headers["access-control-allow-origin"] == ORIGIN, "{:?}", answer.headers);
    let by_api_key =
        through_traefik.with_key(None).with_header("x-api-key", through_traefik.key.as_deref().unwrap_or(""));
    ensure!(by_api_key.send("POST", call()).await?.status == StatusCode::OK, "x-api-key opens it, too");
    let seen = seen(&room, pod).await?;
    ensure!(seen.len() == 2, "two calls were let through: {seen:?}");
    for request in &seen {
        let headers = request["headers"].as_object().context("headers")?;
        ensure!(headers.get("host").and_then(Value::as_str).is_some_and(|host| host.ends_with(":8000")), "{headers:?}");
        for gone in ["authorization", "x-api-key", "origin"] {
            ensure!(!headers.contains_key(gone), "{gone} reached the backend: {headers:?}");
        }
    }

    let preflight = through_traefik
        .with_key(None)
        .with_header("origin", ORIGIN)
        .with_header("access-control-request-method", "POST")
        .with_header("access-control-request-headers", "x-api-key, mcp-protocol-version");
    let answer = preflight.send("OPTIONS", "").await?;
    ensure!(answer.status.is_success(), "{}", answer.status);
    let allowed = answer.headers["access-control-allow-headers"].to_str()?.to_lowercase();
    ensure!(allowed.contains("x-api-key") && allowed.contains("authorization"), "{allowed}");

    // An expired key is no error: the server is Ready, and the status says so.
    let server = room.server("recorder").await?;
    let keys = server.pointer("/status/keys").and_then(Value::as_array).context("no keys in the status")?;
    let old = keys.iter().find(|key| key["name"] == "old").context("no old")?;
    ensure!(old["expired"] == true, "{old}");
    Ok(())
}
