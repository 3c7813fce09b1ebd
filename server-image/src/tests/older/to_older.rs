//! Streamable HTTP clients before a server of the older transport: the front door keeps a session for each.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::super::backend::{Backend, endless};
use super::super::eventually;
use super::super::front::{Front, key, record, text};
use super::{INITIALIZE, INITIALIZED, Older, initialize, sse_config, status, with_session};
use crate::handshake;
use crate::sse::event::Events;

#[tokio::test]
async fn a_streamable_client_reaches_an_older_server() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let post = |message: &str| with_session(front.post(message), &session);
    let (status, answer) = text(front.ask(post(r#"{"jsonrpc":"2.0","id":"t","method":"tools/list"}"#)).await).await;
    assert_eq!(status, 200);
    assert!(answer.contains("\"id\":\"t\"") && answer.contains("\"b\""), "{answer}");

    // Progress belongs to the request that brought its token, all else to the client's own stream, as soon as there is
    // one; a request that takes JSON alone is told nothing but its answer.
    older.say(0, r#"{"jsonrpc":"2.0","method":"notifications/early"}"#);
    let mut plain = post(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    plain.headers_mut().insert("accept", HeaderValue::from_static("application/json"));
    assert!(text(front.ask(plain).await).await.1.contains("\"ping\""));
    let hold = r#"{"jsonrpc":"2.0","id":9,"method":"hold","params":{"_meta":{"progressToken":"p"}}}"#;
    let asking = front.ask(post(hold));
    let talking = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        let mut own =
            Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &session)).await.into_body());
        let mut next = async || {
            let event = tokio::time::timeout(Duration::from_secs(10), own.next()).await.expect("an event within 10 s");
            String::from_utf8(event.unwrap().unwrap().data.unwrap()).unwrap()
        };
        assert_eq!(next().await, r#"{"jsonrpc":"2.0","method":"notifications/early"}"#);
        older.say(0, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        older.say(
            0,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
        );
        older.say(
            0,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"q","progress":1}}"#,
        );
        assert_eq!(next().await, r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#);
        assert!(next().await.contains("\"q\""));
        older.say(0, r#"{"jsonrpc":"2.0","id":9,"result":{"big":12345678901234567890123}}"#);
        own
    };
    let (response, _own) = tokio::join!(asking, talking);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (status, answer) = text(response).await;
    assert_eq!(status, 200);
    assert_eq!(
        answer,
        "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"p\",\"progress\":1}}\n\n\
         event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"big\":12345678901234567890123}}\n\n"
    );
    for request in backend.seen() {
        assert!(!request.headers().contains_key("mcp-session-id"), "the session is the front door's own");
        assert!(!request.headers().contains_key("authorization"));
    }
    assert_eq!(text(front.ask(with_session(front.bare("DELETE", "/weather/mcp"), &session)).await).await.0, 204);
    assert_eq!(text(front.ask(post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await).await.0, 404);
    eventually("the server's stream is closed", || backend.open() == 0 && front.door.sse.sessions() == 0).await;
}

/// Some clients number all of their requests alike, and name their progress likewise.
#[tokio::test]
async fn requests_with_one_id_are_told_apart() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let post = |message: &str| with_session(front.post(message), &session);
    for (number, id) in (0..).zip(["7", r#""7""#, r#""\u0037""#, "7e0"]) {
        let call = |name: &str, id: &str| {
            format!(
                r#"{{"method":"hold", "params":{{"_meta":{{"progressToken":{id}}},"big":12345678901234567890123,"name":"{name}"}} ,"id": {id}}}"#
            )
        };
        let asking = async |name| {
            let response = front.ask(post(&call(name, id))).await;
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            text(response).await.1
        };
        let talking = async {
            eventually("both wait", || older.heard("hold") == 2 * number + 2).await;
            let ping = text(front.ask(post(&format!(r#"{{"id":{id},"method":"ping"}}"#))).await).await.1;
            assert_eq!(ping, format!(r#"{{"id":{id},"jsonrpc":"2.0","result":{{"asked":"ping"}}}}"#));
            let told = backend.seen();
            let [.., slow, quick, _ping] = &told[..] else { panic!("{told:?}") };
            assert_eq!(slow.body(), call("slow", id).as_bytes(), "what stands alone passes as it came");
            let ours = serde_json::from_slice::<Value>(quick.body()).unwrap()["id"].to_string();
            assert_ne!(ours, id);
            assert_eq!(quick.body(), call("quick", &ours).as_bytes(), "nothing else is different");
            for (name, id) in [("quick", ours.as_str()), ("slow", id)] {
                older.say(0, &format!(r#"{{"method":"notifications/progress","params":{{"progressToken":{id},"progress":1,"message":"{name}"}}}}"#));
                older.say(0, &format!(r#"{{"result":{{"name":"{name}","id":{ours}}}, "id":{id}}}"#));
            }
            ours
        };
        let second = async {
            eventually("the first waits", || older.heard("hold") > 2 * number).await;
            asking("quick").await
        };
        let (slow, quick, ours) = tokio::join!(asking("slow"), second, talking);
        for (name, answer) in [("slow", slow), ("quick", quick)] {
            let expected = format!(
                "event: message\ndata: {{\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{id},\"progress\":1,\"message\":\"{name}\"}}}}\n\n\
                 event: message\ndata: {{\"result\":{{\"name\":\"{name}\",\"id\":{ours}}}, \"id\":{id}}}\n\n"
            );
            assert_eq!(answer, expected);
        }
    }
    // The client's own `mooring-N` is nobody else's either.
    let name = |number: usize| format!(r#"{{"id":"mooring-{number}","method":"hold"}}"#);
    let names: Vec<_> = (30..60).map(name).collect();
    let calls = futures::future::join_all(names.iter().chain(&names).map(|name| front.ask(post(name))));
    let before = backend.calls();
    let answering = async {
        eventually("all wait", || backend.calls() == before + 60).await;
        for request in &backend.seen()[before..] {
            let message: Value = serde_json::from_slice(request.body()).unwrap();
            older.say(0, &json!({"id": message["id"], "result": {}}).to_string());
        }
    };
    for (response, name) in tokio::join!(calls, answering).0.into_iter().zip(names.iter().chain(&names)) {
        let (status, answer) = text(response).await;
        assert_eq!((status, answer), (200, name.replace(r#""method":"hold""#, r#""result":{}"#)));
    }
}

/// Of requests with one id the latest is given up, as it would be by the server. What is answered although it was given
/// up, or its client has gone, is no answer to a later request with its id.
#[tokio::test]
async fn a_late_answer_belongs_to_no_other_request_with_its_id() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let post = |message: &str| with_session(front.post(message), &session);
    let hold = r#"{"jsonrpc":"2.0","id":7,"method":"hold"}"#;
    let last_id = || serde_json::from_slice::<Value>(backend.last().body()).unwrap()["id"].to_string();
    let answer = |id: &str, result: &str| older.say(0, &format!(r#"{{"id":{id},"result":"{result}"}}"#));
    let calls = async |number| eventually("it waits", || older.heard("hold") == number).await;

    let first = front.ask(post(hold));
    let later = async {
        calls(1).await;
        let giving_up = async {
            calls(2).await;
            let ours = last_id();
            let give_up = r#"{"method":"notifications/cancelled","params":{"reason":"7","requestId":7}}"#;
            assert_eq!(text(front.ask(post(give_up)).await).await.0, 202);
            assert_eq!(backend.last().body(), &give_up.replace("Id\":7", &format!("Id\":{ours}")));
            answer(&ours, "given up");
            answer("7", "first");
        };
        tokio::join!(front.ask(post(hold)), giving_up).0
    };
    let (first, second) = tokio::join!(first, later);
    assert_eq!(text(first).await, (200, r#"{"id":7,"result":"first"}"#.into()));
    assert_eq!(second.status(), 502);

    tokio::select! {
        _ = front.ask(post(hold)) => panic!("there is no answer"),
        () = calls(3) => {}
    }
    let gone = last_id();
    let answering = async {
        calls(4).await;
        answer(&gone, "to who has gone");
        answer(&last_id(), "to the last");
    };
    let (last, ()) = tokio::join!(front.ask(post(hold)), answering);
    assert_eq!(text(last).await, (200, r#"{"id":7,"result":"to the last"}"#.into()));
}

/// A client without a stream of its own is told beside the one request that waits, and can answer in its midst.
#[tokio::test]
async fn what_a_server_asks_in_a_call_is_told_beside_it() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let post = |message: &str| with_session(front.post(message), &session);
    let progress = |number: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":9,"progress":{number}}}}}"#
        )
    };
    let elicit = r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"Which?"}}"#;
    let said = [progress(1), progress(2), progress(3), elicit.to_owned()];
    let hold = r#"{"jsonrpc":"2.0","id":9,"method":"hold","params":{"_meta":{"progressToken":9}}}"#;
    let talking = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        for message in &said {
            older.say(0, message);
        }
    };
    let (response, ()) = tokio::join!(front.ask(post(hold)), talking);
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &HeaderValue::from_static("text/event-stream"))
    );
    let mut events = Events::new(response.into_body());
    let mut next = async || {
        let event = tokio::time::timeout(Duration::from_secs(10), events.next()).await.expect("an event within 10 s");
        event.unwrap().map(|event| String::from_utf8(event.data.unwrap()).unwrap())
    };
    for message in said {
        assert_eq!(next().await, Some(message));
    }
    let accepted = r#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept","content":{"which":"this"}}}"#;
    assert_eq!(text(front.ask(post(accepted)).await).await, (202, String::new()));
    assert_eq!(backend.last().body(), accepted);
    let answer = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;
    older.say(0, answer);
    assert_eq!(next().await.as_deref(), Some(answer));
    assert_eq!(next().await, None);
}

/// Two clients, or one with two sessions, may use the same ids and tokens at the same time.
#[tokio::test]
async fn sessions_have_their_ids_for_themselves() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let sessions = [initialize(&front).await, initialize(&front).await];
    assert_ne!(sessions[0], sessions[1]);
    for round in 1..=3 {
        let hold =
            format!(r#"{{"jsonrpc":"2.0","id":{round},"method":"hold","params":{{"_meta":{{"progressToken":"t"}}}}}}"#);
        let ask = |session| front.ask(with_session(front.post(&hold), session));
        let talking = async {
            eventually("both run", || older.heard("hold") == 2 * round).await;
            for request in backend.seen().iter().rev().take(2) {
                assert_eq!(request.body(), &hold, "another session's ids are no reason to rename");
            }
            // The later one is answered first, and what each is told goes back and forth.
            for number in [1, 0, 0, 1] {
                older.say(
                    number,
                    &format!(r#"{{"method":"notifications/progress","params":{{"progressToken":"t","of":{number}}}}}"#),
                );
            }
            for number in [1, 0] {
                older.say(number, &format!(r#"{{"id":{round},"result":{{"of":{number}}}}}"#));
            }
        };
        let (first, second, ()) = tokio::join!(ask(&sessions[0]), ask(&sessions[1]), talking);
        for (number, response) in [first, second].into_iter().enumerate() {
            let told = format!(
                r#"data: {{"method":"notifications/progress","params":{{"progressToken":"t","of":{number}}}}}"#
            );
            let answer = format!(r#"data: {{"id":{round},"result":{{"of":{number}}}}}"#);
            let expected = [&told, &told, &answer].map(|data| format!("event: message\n{data}\n\n")).concat();
            assert_eq!(text(response).await, (200, expected));
        }
    }
}

#[tokio::test]
async fn what_does_not_belong_to_a_session_is_refused() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let other = key(2);
    front.keys.swap(&[
        (front.key.id(), &record(&front.key, None)),
        (other.id(), &record(&other, None).replace("\"subject\":\"s\"", "\"subject\":\"t\"")),
    ]);
    front.reloader().reload();
    let session = initialize(&front).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let calls = backend.calls();
    assert_eq!(text(front.ask(front.post(ping)).await).await.0, 400, "no session");
    assert_eq!(text(front.ask(with_session(front.post(ping), &HeaderValue::from_static("wrong"))).await).await.0, 404);
    for message in [ping, INITIALIZED, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#] {
        let mut request = with_session(front.post(message), &session);
        request
            .headers_mut()
            .insert("authorization", HeaderValue::try_from(format!("Bearer {}", other.expose())).unwrap());
        assert_eq!(text(front.ask(request).await).await.0, 404, "another's session: {message}");
    }
    for method in ["GET", "DELETE"] {
        let mut request = with_session(front.bare(method, "/weather/mcp"), &session);
        request.headers_mut().insert("x-api-key", HeaderValue::try_from(other.expose()).unwrap());
        assert_eq!(text(front.ask(request).await).await.0, 404, "another's session: {method}");
        assert_eq!(text(front.ask(front.bare(method, "/weather/mcp")).await).await.0, 400, "no session: {method}");
    }
    let batch = format!("[{ping}]");
    assert_eq!(text(front.ask(with_session(front.post(&batch), &session)).await).await.0, 400);
    assert_eq!(backend.calls(), calls, "none of them reached the server");
    assert_eq!(text(front.ask(with_session(front.post(ping), &session)).await).await.0, 200);
}

#[tokio::test]
async fn a_session_ends_with_the_servers_stream() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let mut own = Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &session)).await.into_body());
    let hold = r#"{"jsonrpc":"2.0","id":9,"method":"hold"}"#;
    let hanging_up = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        older.hang_up(0);
    };
    let (response, ()) = tokio::join!(front.ask(with_session(front.post(hold), &session)), hanging_up);
    let (status, answer) = text(response).await;
    assert_eq!(status, 502, "{answer}");
    assert!(answer.contains("\"id\":9"), "{answer}");
    assert_eq!(own.next().await.unwrap(), None);
    assert_eq!(text(front.ask(with_session(front.post(hold), &session)).await).await.0, 404);
    eventually("nothing is left", || backend.open() == 0).await;
}

#[tokio::test]
async fn an_idle_session_ends_and_one_with_a_stream_does_not() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let (idle, listening) = (initialize(&front).await, initialize(&front).await);
    let mut own = Events::new(front.ask(with_session(front.bare("GET", "/weather/mcp"), &listening)).await.into_body());
    tokio::time::pause();
    let silent = tokio::time::timeout(Duration::from_secs(40 * 60), own.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    tokio::time::resume();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(text(front.ask(with_session(front.post(ping), &idle)).await).await.0, 404);
    assert_eq!(text(front.ask(with_session(front.post(ping), &listening)).await).await.0, 200);
}

#[tokio::test]
async fn a_client_that_leaves_during_the_handshake_leaves_no_session() {
    let backend = Backend::start(|request| async move {
        if request.method() == Method::POST {
            return status(StatusCode::ACCEPTED); // and never an answer
        }
        endless("event: endpoint\ndata: message\n\n")
    })
    .await;
    let front = Front::new(&sse_config(backend.port));
    {
        let asking = front.ask(front.post(INITIALIZE));
        let waiting = eventually("it waits for the answer", || backend.calls() == 2);
        tokio::select! {
            _ = asking => panic!("there is no answer"),
            () = waiting => {}
        }
    }
    assert_eq!(backend.last().uri().path(), "/backend/message", "relative to the stream's own path");
    eventually("nothing is left", || backend.open() == 0 && front.door.sse.sessions() == 0).await;
}

#[tokio::test]
async fn the_handshake_speaks_the_older_transport_too() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    front.run(handshake::keep(Arc::clone(&front.door)));
    front.ready().await;
    let told = front.door.status().handshake.unwrap();
    assert_eq!((told.name.as_str(), told.version.as_str(), told.tool_count), ("older", "1", Some(2)));
    assert_eq!(told.protocol_versions, ["2024-11-05"]);
    assert_eq!((older.heard("initialize"), older.heard("notifications/initialized")), (1, 1));
    eventually("its stream is closed", || backend.open() == 0).await;
    // A modern request is refused in its own words, and its client falls back.
    let modern = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let mut request = front.post(modern);
    request.headers_mut().insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
    request.headers_mut().insert("mcp-method", HeaderValue::from_static("server/discover"));
    let (status, answer) = text(front.ask(request).await).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32600)));
    assert_eq!(answer["error"]["data"]["supported"], json!(["2024-11-05"]));
}
