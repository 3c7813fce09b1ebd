//! What one pod makes of session ids.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::fleet::{
    CALL, Fleet, INITIALIZE, Memory, SESSION, address, another_caller, answer, initialize, pod, request, token, uid,
};
use crate::accept::{self, Rim};
use crate::clock;
use crate::door::{Answered, Door, Phase};
use crate::metrics::Listener;
use crate::pipeline;
use crate::refusal::json;
use crate::session::keys::tests::entry;
use crate::session::pod::Pod;
use crate::session::registry::Whose;
use crate::tests::backend::Backend;
use crate::tests::eventually;
use crate::tests::front::{Front, collect, http_config, next, text};
use crate::who::Subject;
use crate::wire::lost;

/// What a client is told that names no session.
fn is_unknown((status, body): &(u16, String)) -> bool {
    let message: Value = serde_json::from_str(body).unwrap_or_default();
    *status == 404 && message["error"]["code"] == -32001 && message["error"]["message"] == "Session not found"
}

#[tokio::test]
async fn the_client_gets_a_token_and_the_backend_its_own_id() {
    let memory = Memory::default();
    let backend = memory.serve().await;
    let front = pod(0, 1, &http_config(backend.port));
    for query in ["", "?stream"] {
        let mut request = front.post(INITIALIZE);
        *request.uri_mut() = format!("/weather/mcp{query}").parse().unwrap();
        let (status, headers, body) = collect(front.ask(request).await).await;
        assert_eq!((status, body.starts_with(b"data:")), (StatusCode::OK, query == "?stream"));
        let token = token(&headers);
        assert_eq!(answer(&front, "POST", Some(&token)).await.0, 200);
        assert_eq!(backend.last().headers()[SESSION].len(), 36);
        // The backend repeats its id; the client sees its own.
        let (_, headers, _) = collect(front.ask(self::request(&front, "POST", Some(&token))).await).await;
        assert_eq!(super::fleet::token(&headers), token);
        let mut stream = front.ask(self::request(&front, "GET", Some(&token))).await;
        assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
    }
    assert_eq!(front.door.status().sessions, 2);
    assert_eq!(front.door.status().session_keys.current.as_deref(), Some("01010101"));
}

#[tokio::test]
async fn what_names_no_session_of_the_caller_is_404_however_it_is_asked() {
    let memory = Memory::default();
    let backend = memory.serve().await;
    let front = pod(0, 1, &http_config(backend.port));
    let as_bob = another_caller(&front);
    let good = initialize(&front).await;
    assert!(!backend.last().headers().contains_key(SESSION));
    let raw = HeaderValue::from_static("0b6f4d5e-8f0e-4f43-9e58-000000000000");
    let mut flipped = good.as_bytes().to_vec();
    flipped[60] ^= 1;
    let mut other = http_config(backend.port);
    other["server"]["uid"] = "another".into();
    let foreign = initialize(&pod(0, 1, &other)).await;
    let bad = [raw, HeaderValue::from_bytes(&flipped).unwrap(), foreign, HeaderValue::from_static("x")];
    let calls = backend.calls();
    for method in ["POST", "GET", "DELETE"] {
        for token in &bad {
            let answer = answer(&front, method, Some(token)).await;
            assert!(is_unknown(&answer), "{method} {token:?} {answer:?}");
            assert!(!answer.1.contains(token.to_str().unwrap()) || token == "x");
        }
        let answer = text(front.ask(as_bob(request(&front, method, Some(&good)))).await).await;
        assert!(is_unknown(&answer), "{method} of another caller: {answer:?}");
        let mut twice = self::request(&front, method, Some(&good));
        twice.headers_mut().append(SESSION, good.clone());
        assert_eq!(text(front.ask(twice).await).await.0, 400, "{method}");
    }
    assert_eq!(backend.calls(), calls, "the backend has seen none of it");
    // Without an id the backend answers as it likes.
    assert_eq!(answer(&front, "POST", None).await, (404, r#"{"of":"the backend"}"#.into()));
    assert_eq!(answer(&front, "GET", None).await.0, 404);
    // A new session begins whatever old one is named.
    for token in bad.iter().chain([&good]) {
        let mut request = front.post(INITIALIZE);
        request.headers_mut().insert(SESSION, token.clone());
        let (status, headers, _) = collect(front.ask(request).await).await;
        assert_eq!(status, 200);
        assert_ne!(super::fleet::token(&headers), good);
        assert!(!backend.last().headers().contains_key(SESSION));
    }
}

#[tokio::test]
async fn a_token_lives_no_longer_than_it_may() {
    let backend = Memory::default().serve().await;
    let mut config = http_config(backend.port);
    config["sessions"] = serde_json::json!({"maxAgeMs": 0});
    let front = pod(0, 1, &config);
    let token = initialize(&front).await;
    for method in ["POST", "GET", "DELETE"] {
        assert!(is_unknown(&answer(&front, method, Some(&token)).await), "{method}");
    }
}

#[tokio::test]
async fn the_end_of_a_session_is_the_backends_word() {
    for (deleted, ends) in [(200, true), (202, true), (204, true), (405, false)] {
        let deleted = StatusCode::from_u16(deleted).unwrap();
        let memory = Memory { deleted: Some(deleted), ..Memory::default() };
        let backend = memory.serve().await;
        let front = pod(0, 1, &http_config(backend.port));
        let token = initialize(&front).await;
        assert_eq!(answer(&front, "DELETE", Some(&token)).await.0, deleted.as_u16());
        assert_eq!(front.door.status().sessions, u64::from(!ends), "{deleted}");
        let calls = backend.calls();
        let call = answer(&front, "POST", Some(&token)).await;
        assert_eq!((is_unknown(&call), backend.calls() == calls), (ends, ends), "{deleted} {call:?}");
    }
}

#[tokio::test]
async fn a_backend_that_has_forgotten_is_heard_whatever_its_words() {
    // What it says, whether its own words reach the client, and whether it is asked again.
    for (said, own) in [(404, true), (400, false)] {
        let memory = Memory { unknown: Some(StatusCode::from_u16(said).unwrap()), ..Memory::default() };
        let backend = memory.serve().await;
        let front = pod(0, 1, &http_config(backend.port));
        for method in ["POST", "GET", "DELETE"] {
            let token = initialize(&front).await;
            memory.forget();
            let calls = backend.calls();
            let told = answer(&front, method, Some(&token)).await;
            assert_eq!((told.0, is_unknown(&told)), (404, !own), "{method} {said} {told:?}");
            assert_eq!(backend.calls() - calls, if own { 1 } else { 2 });
            // A server that has no stream says 404 to GET, too.
            let kept = u64::from(own && method == "GET");
            assert_eq!(front.door.status().sessions, kept, "{method} {said}");
            assert_eq!(answer(&front, "POST", Some(&token)).await.0, 404);
            assert_eq!(front.door.status().sessions, 0);
        }
    }
    // Of a session that is there, 400 means what it says.
    let backend = Memory::default().serve().await;
    let front = pod(0, 1, &http_config(backend.port));
    let token = initialize(&front).await;
    let mut wrong = request(&front, "POST", Some(&token));
    *wrong.body_mut() = crate::body::full(CALL.replace("tools/call", "wrong"));
    assert_eq!(text(front.ask(wrong).await).await, (400, r#"{"of":"the backend"}"#.into()));
    assert_eq!(answer(&front, "POST", Some(&token)).await.0, 200);
}

#[tokio::test]
async fn a_400_for_what_else_is_wrong_with_a_request_does_not_end_its_session() {
    let memory = Memory { unknown: Some(StatusCode::BAD_REQUEST), ..Memory::default() };
    let remembers = memory.clone();
    // It refuses revisions that it does not know, and wants to be told for whom it works.
    let backend = Backend::start(move |request| {
        let known = request.headers().get("mcp-protocol-version").is_none_or(|version| version == "2025-11-25");
        let told = request.headers().contains_key("x-tenant") && request.uri().query() == Some("region=north");
        let answer =
            if known && told { remembers.answer(&request) } else { json(StatusCode::BAD_REQUEST, "{}".into()) };
        async move { answer }
    })
    .await;
    let front = pod(0, 1, &http_config(backend.port));
    let ask = async |version: &'static str, body: &str, token: Option<&HeaderValue>| {
        let mut request = front.post(body);
        *request.uri_mut() = "/weather/mcp?region=north".parse().unwrap();
        let headers = request.headers_mut();
        headers.insert("x-tenant", HeaderValue::from_static("a"));
        headers.insert("mcp-protocol-version", HeaderValue::from_static(version));
        if let Some(token) = token {
            headers.insert(SESSION, token.clone());
        }
        collect(front.ask(request).await).await
    };
    let token = token(&ask("2025-11-25", INITIALIZE, None).await.1);
    for (version, body) in [("1999-01-01", CALL.to_owned()), ("2025-11-25", CALL.replace("tools/call", "wrong"))] {
        assert_eq!(ask(version, &body, Some(&token)).await.0, 400, "{version} {body}");
        assert_eq!(ask("2025-11-25", CALL, Some(&token)).await.0, 200, "it lives on");
    }
    memory.forget();
    assert_eq!(ask("2025-11-25", CALL, Some(&token)).await.0, 404);
}

#[tokio::test]
async fn a_front_door_that_is_started_anew_knows_its_sessions() {
    let backend = Memory::default().serve().await;
    let token = initialize(&pod(0, 1, &http_config(backend.port))).await;
    let front = pod(0, 1, &http_config(backend.port));
    assert_eq!(front.door.status().sessions, 0);
    assert_eq!(answer(&front, "POST", Some(&token)).await.0, 200);
    assert_eq!(front.door.status().sessions, 1);
}

#[tokio::test]
async fn an_id_that_the_backend_gives_again_is_not_the_callers_who_had_it_before() {
    let memory = Memory::default();
    let backend = memory.serve().await;
    let front = pod(0, 1, &http_config(backend.port));
    let as_bob = another_caller(&front);
    let before = initialize(&front).await;
    memory.forget();
    memory.begun.store(0, Ordering::SeqCst);
    let (_, headers, _) = collect(front.ask(as_bob(front.post(INITIALIZE))).await).await;
    let now = token(&headers);
    assert!(is_unknown(&answer(&front, "POST", Some(&before)).await));
    assert_eq!(text(front.ask(as_bob(request(&front, "POST", Some(&now)))).await).await.0, 200);
}

#[tokio::test]
async fn a_session_whose_id_is_too_long_is_ended() {
    let backend = Backend::start(async |request| {
        let mut response = json(StatusCode::OK, r#"{"jsonrpc":"2.0","id":0,"result":{}}"#.into());
        if request.method() == "POST" {
            response.headers_mut().insert(SESSION, "x".repeat(2049).parse().unwrap());
        }
        response
    })
    .await;
    let front = pod(0, 1, &http_config(backend.port));
    assert_eq!(text(front.ask(front.post(INITIALIZE)).await).await.0, 502);
    eventually("the backend is told", || backend.calls() == 2).await;
    let told = backend.last();
    assert_eq!((told.method().as_str(), told.headers()[SESSION].len()), ("DELETE", 2049));
    assert_eq!(front.door.status().sessions, 0);
}

#[tokio::test]
async fn there_are_only_so_many_sessions_and_none_is_thrown_out() {
    let backend = Memory::default().serve().await;
    let mut config = http_config(backend.port);
    config["sessions"] = serde_json::json!({"maxPerPod": 2});
    let front = pod(0, 1, &config);
    let tokens = [initialize(&front).await, initialize(&front).await];
    let full = front.ask(front.post(INITIALIZE)).await;
    assert_eq!((full.status().as_u16(), full.headers().contains_key("retry-after")), (503, true));
    for token in &tokens {
        assert_eq!(answer(&front, "POST", Some(token)).await.0, 200);
    }
    assert_eq!(answer(&front, "DELETE", Some(&tokens[0])).await.0, 200);
    initialize(&front).await;
}

/// A pod whose sessions end when nobody has used them for a moment.
async fn expiring(memory: &Memory) -> (Backend, Front) {
    let backend = memory.serve().await;
    let mut config = http_config(backend.port);
    config["sessions"] = serde_json::json!({"idleTimeoutMs": 200});
    let front = pod(0, 1, &config);
    front.run(crate::session::expire(front.door.clone()));
    (backend, front)
}

#[tokio::test]
async fn an_idle_session_ends_at_the_backend_too() {
    let memory = Memory::default();
    let (backend, front) = expiring(&memory).await;
    let (idle, used) = (initialize(&front).await, initialize(&front).await);
    let mut stream = front.ask(request(&front, "GET", Some(&used))).await;
    assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
    eventually("one session is over", || memory.alive() == 1).await;
    assert_eq!((backend.last().method().as_str(), front.door.status().sessions), ("DELETE", 1));
    assert!(is_unknown(&answer(&front, "POST", Some(&idle)).await));
    assert_eq!(answer(&front, "POST", Some(&used)).await.0, 200);
    drop(stream);
    eventually("the other is over, too", || memory.alive() == 0).await;
}

#[tokio::test]
async fn who_is_gone_without_a_word_uses_no_session() {
    const PATIENCE: Duration = Duration::from_secs(3);
    let memory = Memory::default();
    let (backend, front) = expiring(&memory).await;
    let token = initialize(&front).await;
    let (stream, mut client) = lost::tests::connected().await;
    lost::notice(&stream, PATIENCE).unwrap();
    let (door, limits) = (Arc::clone(&front.door), Arc::clone(&front.door));
    let rim = Rim {
        listener: Listener::PUBLIC,
        limits: Arc::new(move || limits.wire_limits()),
        metrics: Arc::clone(&door.metrics),
    };
    let handler = move |arrival, request| pipeline::answer(Arc::clone(&door), arrival, request);
    front.run(accept::connection(stream, [10, 0, 0, 9].into(), false, rim, front.door.phases(), handler));
    let request = format!(
        "GET /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nx-api-key: {}\r\nAccept: text/event-stream\r\n\
         mcp-session-id: {}\r\n\r\n",
        front.key.expose(),
        token.to_str().unwrap()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut heard, mut piece) = (Vec::new(), [0; 1024]);
    while !heard.windows(7).any(|bytes| bytes == b"data: 1") {
        let read = client.read(&mut piece).await.unwrap();
        assert!(read > 0, "it ended");
        heard.extend_from_slice(&piece[..read]);
    }
    let gone = clock::instant();
    lost::tests::unplug(&client);
    eventually("its session is over", || memory.alive() == 0).await;
    assert!(gone.elapsed() > PATIENCE / 2, "an open stream is use");
    assert_eq!((backend.last().method().as_str(), front.door.status().sessions), ("DELETE", 0));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_idle_however_often_keys_change() {
    let mut config = http_config(1);
    config["sessions"] = serde_json::json!({"idleTimeoutMs": 60_000});
    let front = pod(0, 1, &config);
    front.run(crate::session::expire(front.door.clone()));
    let (door, seat) = (&front.door, front.door.sessions.seats.add(&front.door.metrics));
    let whose = Whose::of(Subject::Anonymous, crate::clock::wall());
    drop(door.sessions.owned.begin("x".into(), whose, seat));
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        door.enforce(None, door.keys());
    }
    assert_eq!(door.status().sessions, 0);
}

#[tokio::test]
async fn keys_rotate_under_a_session() {
    let backend = Memory::default().serve().await;
    let front = pod(0, 1, &http_config(backend.port));
    let token = initialize(&front).await;
    let slots: [&[(&str, u8)]; 4] = [
        &[("current", 1), ("next", 2)],
        &[("previous", 1), ("current", 2)],
        // The Secret was deleted and is not back yet.
        &[],
        &[("previous", 2), ("current", 3)],
    ];
    let mut opens = Vec::new();
    for slots in slots {
        let entries: Vec<_> = slots.iter().map(|(slot, number)| (*slot, entry(*number))).collect();
        let entries: Vec<_> = entries.iter().map(|(slot, text)| (*slot, text.as_str())).collect();
        front.session.swap(&entries);
        front.reloader().reload();
        opens.push(answer(&front, "POST", Some(&token)).await.0);
        assert_eq!(answer(&front, "POST", Some(&initialize(&front).await)).await.0, 200, "a new one");
    }
    assert_eq!(opens, [200, 200, 200, 404]);
}

#[tokio::test]
async fn without_a_pod_ids_pass_as_they_are() {
    let backend = Memory::default().serve().await;
    let front = Front::with(Door::new(1), &http_config(backend.port), &[("current", &entry(1))]);
    let (_, headers, _) = collect(front.ask(front.post(INITIALIZE)).await).await;
    let raw = headers[SESSION].clone();
    assert_eq!(raw.len(), 36);
    assert_eq!(answer(&front, "POST", Some(&raw)).await.0, 200);
    assert!(front.door.status().session_keys.is_empty());
}

#[tokio::test]
async fn a_pod_without_keys_waits_for_them() {
    let memory = Memory::default();
    let backend = memory.serve().await;
    let front = keyless(&http_config(backend.port));
    front.door.set_answered(Answered { reachable: true, ..Answered::default() });
    memory.alive.lock().unwrap().insert("raw".into());
    let raw = HeaderValue::from_static("raw");
    let refused = [
        front.post(INITIALIZE),
        request(&front, "POST", Some(&raw)),
        request(&front, "GET", Some(&raw)),
        request(&front, "DELETE", Some(&raw)),
        front.bare("GET", "/weather/sse"),
        front.bare("POST", "/weather/messages?s=raw"),
    ];
    for request in refused {
        let (status, headers, body) = collect(front.ask(request).await).await;
        assert_eq!((status.as_u16(), headers.contains_key("retry-after")), (503, true), "{body:?}");
    }
    assert_eq!((backend.calls(), front.door.is_ready()), (0, false));
    assert_eq!(answer(&front, "POST", None).await, (404, r#"{"of":"the backend"}"#.into()), "who names none is served");
    front.session.swap(&[("current", &entry(1))]);
    front.reloader().reload();
    assert!(front.door.is_ready());
    assert_eq!(answer(&front, "POST", Some(&initialize(&front).await)).await.0, 200);
}

#[tokio::test]
async fn a_pod_without_keys_serves_what_needs_none() {
    let backend = Memory::default().serve().await;
    let (mut stateless, mut tools) = (http_config(backend.port), http_config(backend.port));
    stateless["sessions"] = serde_json::json!({"mode": "Stateless"});
    tools["source"] = serde_json::json!({"tools": [{"name": "a", "http": {"url": "http://127.0.0.1:9/"}}]});
    for config in [stateless, tools] {
        let front = keyless(&config);
        front.door.set_answered(Answered { reachable: true, ..Answered::default() });
        let (status, headers, body) = collect(front.ask(front.post(INITIALIZE)).await).await;
        assert_eq!((status.as_u16(), headers.contains_key(SESSION)), (200, false), "{body:?}");
        assert!(front.door.is_ready());
    }
}

/// A front door of a pod whose Secret is not there.
fn keyless(config: &Value) -> Front {
    Front::with(Door::new(1).in_pod(Pod { uid: uid(0), address: address(0) }, 1), config, &[])
}

#[tokio::test]
async fn a_draining_pod_begins_no_session_and_serves_those_that_it_has() {
    let memory = Memory::default();
    let (one, two) = (memory.serve().await, Memory::default().serve().await);
    let fleet = Fleet::of(&[&one, &two], |config| config["limits"]["callTimeoutMs"] = 60_000.into()).await;
    let token = fleet.initialize(0).await;
    fleet.pods[0].door.enter(Phase::Leaving);
    fleet.initialize(0).await;
    fleet.pods[0].door.enter(Phase::Draining);
    let refused = fleet.pods[0].ask(fleet.pods[0].post(INITIALIZE)).await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    assert_eq!(text(fleet.pods[0].ask(fleet.pods[0].bare("GET", "/weather/sse")).await).await.0, 503);
    for number in [0, 1, 1, 0] {
        assert_eq!(fleet.call(number, &token).await.0, 200);
    }
    let mut stream = fleet.pods[1].ask(request(&fleet.pods[1], "GET", Some(&token))).await;
    assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
    // A call that runs may end; what comes after it finds nobody.
    let mut slow = request(&fleet.pods[1], "POST", Some(&token));
    *slow.body_mut() = crate::body::full(CALL.replace("tools/call", "slow"));
    let running = fleet.pods[1].ask(slow);
    let stopping = async {
        eventually("the call runs", || one.open() == 2).await;
        fleet.pods[0].door.enter(Phase::Stopping);
        let rest = stream.into_body().collect().await.unwrap();
        assert_eq!(rest.to_bytes(), "", "it ends cleanly");
        assert_eq!(fleet.call(1, &token).await.0, 404);
        memory.go.notify_one();
    };
    let (answer, ()) = tokio::join!(running, stopping);
    assert_eq!(text(answer).await.0, 200);
}

#[tokio::test]
async fn a_stream_of_another_pod_ends_cleanly_with_the_pod_that_passes_it_on() {
    let (one, two) = (Memory::default().serve().await, Memory::default().serve().await);
    let fleet = Fleet::of(&[&one, &two], |_| {}).await;
    let token = fleet.initialize(0).await;
    let mut stream = fleet.pods[1].ask(request(&fleet.pods[1], "GET", Some(&token))).await;
    assert_eq!(next(&mut stream).await.unwrap(), "data: 1\n\n");
    fleet.pods[1].door.enter(Phase::Stopping);
    assert_eq!(stream.into_body().collect().await.unwrap().to_bytes(), "");
    eventually("the backend knows that nobody reads any more", || one.open() == 0).await;
    assert_eq!(fleet.call(0, &token).await.0, 200, "its session lives on");
}
