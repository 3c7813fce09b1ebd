//! Where there are no sessions: what is said of them makes no difference.

use http::{HeaderValue, Request, StatusCode};
use serde_json::{Value, json};

use super::fleet::{Fleet, INITIALIZE, Memory, SESSION, answer, initialize, pod, reconfigure, request};
use crate::body::Body;
use crate::refusal::json as json_answer;
use crate::tests::backend::Backend;
use crate::tests::front::{Front, collect, http_config, text};

/// A request of 2026-07-28 that names a session.
fn modern(front: &Front, session: &HeaderValue) -> Request<Body> {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}});
    let mut request = front.post(&discover.to_string());
    let headers = request.headers_mut();
    headers.insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
    headers.insert("mcp-method", HeaderValue::from_static("server/discover"));
    headers.insert(SESSION, session.clone());
    request
}

#[tokio::test]
async fn the_modern_era_has_no_sessions_and_is_answered_where_it_arrives() {
    let (one, two) = (Memory::default().serve().await, Memory::default().serve().await);
    let fleet = Fleet::of(&[&one, &two], |_| {}).await;
    let token = fleet.initialize(0).await;
    let of_the_first = one.calls();
    for (number, session) in (1..).zip([&HeaderValue::from_static("whatever"), &token]) {
        let (_, headers, body) = collect(fleet.pods[1].ask(modern(&fleet.pods[1], session)).await).await;
        assert!(body.ends_with(br#"{"of":"the backend"}"#) && !headers.contains_key(SESSION));
        assert!(!two.last().headers().contains_key(SESSION));
        assert_eq!((one.calls(), two.calls(), fleet.forwards(1)), (of_the_first, number, 0));
    }
    // The same token in the other era is passed on.
    assert_eq!((fleet.call(1, &token).await.0, two.calls(), fleet.forwards(1)), (200, 2, 1));
}

#[tokio::test]
async fn declared_tools_answer_whatever_session_is_named() {
    let backend = Memory::default().serve().await;
    let of_http = http_config(backend.port);
    let mut of_another = of_http.clone();
    of_another["server"]["uid"] = "another".into();
    let mut tools = of_http.clone();
    tools["source"] = json!({"tools": [{"name": "a", "http": {"url": "http://127.0.0.1:9/"}}]});
    let front = pod(0, 1, &tools);
    assert!(front.door.sessions.sealing().is_some(), "it could seal, and open");
    let named = [
        HeaderValue::from_static("garbage"),
        HeaderValue::from_static("0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10"),
        initialize(&pod(0, 1, &of_another)).await,
        // From when the server was another one.
        initialize(&pod(0, 1, &of_http)).await,
        initialize(&pod(1, 1, &of_http)).await,
    ];
    for session in &named {
        for message in [INITIALIZE, r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#] {
            let mut request = front.post(message);
            request.headers_mut().insert(SESSION, session.clone());
            let (status, headers, body) = collect(front.ask(request).await).await;
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((status.as_u16(), body["result"].is_object()), (200, true), "{session:?} {body}");
            assert!(!headers.contains_key(SESSION));
        }
        assert_eq!(text(front.ask(modern(&front, session)).await).await.0, 200, "{session:?}");
        for method in ["GET", "DELETE"] {
            let refused = front.ask(request(&front, method, Some(session))).await;
            let allow = refused.headers()["allow"].as_bytes().to_owned();
            assert_eq!((refused.status().as_u16(), &allow[..]), (405, &b"POST, OPTIONS"[..]), "{method} {session:?}");
        }
    }
    assert_eq!(front.door.status().sessions, 0);
}

#[tokio::test]
async fn a_server_that_gives_no_id_gets_no_token() {
    let backend =
        Backend::start(async |_| json_answer(StatusCode::OK, r#"{"jsonrpc":"2.0","id":0,"result":{}}"#.into())).await;
    let mut config = http_config(backend.port);
    config["sessions"] = json!({"maxPerPod": 1});
    let front = pod(0, 1, &config);
    assert!(front.door.sessions.sealing().is_some(), "it could seal");
    let later = ["POST", "GET", "DELETE"].map(|method| request(&front, method, None));
    let begins = [front.post(INITIALIZE), front.post(INITIALIZE)];
    for (number, request) in (1..).zip(begins.into_iter().chain(later)) {
        let (status, headers, body) = collect(front.ask(request).await).await;
        assert_eq!((status.as_u16(), headers.contains_key(SESSION)), (200, false), "{number}: {body:?}");
        assert!(!backend.last().headers().contains_key(SESSION));
        assert_eq!((backend.calls(), front.door.status().sessions), (number, 0));
    }
}

#[tokio::test]
async fn a_stateless_server_has_no_sessions() {
    let backend = Memory::default().serve().await;
    let fleet = Fleet::of(&[&backend], |config| config["sessions"] = json!({"mode": "Stateless"})).await;
    let front = &fleet.pods[0];
    let (status, headers, _) = collect(front.ask(front.post(INITIALIZE)).await).await;
    assert_eq!((status, headers.contains_key(SESSION)), (StatusCode::OK, false));
    let id = HeaderValue::from_static("0b6f4d5e-8f0e-4f43-9e58-000000000000");
    answer(front, "POST", Some(&id)).await;
    assert!(!backend.last().headers().contains_key(SESSION));
    for method in ["GET", "DELETE"] {
        let refused = front.ask(request(front, method, Some(&id))).await;
        assert_eq!((refused.status().as_u16(), refused.headers()["allow"].as_bytes()), (405, &b"POST, OPTIONS"[..]));
    }
    assert_eq!(text(front.ask(front.bare("GET", "/weather/sse")).await).await.0, 404);
    assert_eq!(front.door.status().sessions, 0);
}

#[tokio::test]
async fn a_server_that_becomes_stateless_passes_nothing_on() {
    let (one, two) = (Memory::default().serve().await, Memory::default().serve().await);
    let fleet = Fleet::of(&[&one, &two], |_| {}).await;
    let token = fleet.initialize(0).await;
    let set = |mode: &str| {
        for (front, backend) in fleet.pods.iter().zip([&one, &two]) {
            let mut config = http_config(backend.port);
            config["sessions"] = json!({"mode": mode});
            reconfigure(front, &config);
        }
    };
    set("Stateless");
    assert_eq!(fleet.call(1, &token).await, (404, r#"{"of":"the backend"}"#.into()));
    assert!(!two.last().headers().contains_key(SESSION));
    for method in ["GET", "DELETE"] {
        assert_eq!(answer(&fleet.pods[1], method, Some(&token)).await.0, 405, "{method}");
    }
    assert_eq!((one.calls(), two.calls(), fleet.forwards(1)), (1, 1, 0));
    set("Sticky");
    assert_eq!((fleet.call(1, &token).await.0, two.calls(), fleet.forwards(1)), (200, 1, 1), "the token is good");
}
