//! The older transport on both sides, where bytes pass; and what holds on every way alike.

use std::sync::Arc;

use bytes::Bytes;

use super::super::backend::Backend;
use super::super::eventually;
use super::super::front::{Front, collect, http_config, text};
use super::{Client, INITIALIZE, INITIALIZED, Older, initialize, sse_config, streamable, with_session};
use crate::body::full;
use crate::commit::event_stream;
use crate::door::Phase;

#[tokio::test]
async fn an_older_client_and_an_older_server_talk_as_they_like() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let mut client = Client::open(&front).await;
    assert!(client.endpoint.starts_with("/weather/messages?s="), "{}", client.endpoint);
    client.ask(INITIALIZE).await;
    assert_eq!(client.post(INITIALIZED).await, 202);
    let odd = "{ \"jsonrpc\":\"2.0\" ,\"id\":12345678901234567890123,\"method\":\"x/y\"}\n";
    client.ask(odd).await;
    assert_eq!(backend.last().body(), odd);
    assert_eq!(backend.last().uri(), "/backend/message?sessionId=0");
    let stream = older.streams.lock().unwrap()[&0].clone();
    stream.send(Bytes::from_static(b"id: 1\r\nevent: other\r\ndata: x\r\n\r\n")).unwrap();
    let event = client.events.next().await.unwrap().unwrap();
    assert_eq!((event.name.as_str(), event.id.as_deref()), ("other", Some("1")), "all bytes pass");
    let request = client.request(INITIALIZE);
    drop(client);
    eventually("the server's stream is closed", || backend.open() == 0).await;
    assert_eq!(text(front.ask(request).await).await.0, 404);
}

type Headers = &'static [(&'static str, &'static str)];

/// What is not read in one way alone reaches no server, by this transport either.
#[tokio::test]
async fn what_an_older_server_is_sent_is_judged() {
    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let client = Client::open(&front).await;
    let ping = |id: usize| format!(r#"{{"id":{id},"method":"ping"}}"#);
    let of = |messages: &[&str]| format!("[{}]", messages.join(","));
    let with = |message: &str, headers: Headers| {
        let mut request = client.request(message);
        for (name, value) in headers {
            request.headers_mut().append(*name, (*value).parse().unwrap());
        }
        request
    };
    let (one, two) = (ping(1), ping(2));
    let modern = r#"{"jsonrpc":"2.0","id":"m","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    let many = |number: usize| format!("[{}]", (0..number).map(ping).collect::<Vec<_>>().join(","));
    let initialize = r#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}"#;
    let named = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"t","Name":"u"}}"#;
    let refused: [(String, Headers, &[&str]); 10] = [
        (of(&[&one, r#"{"jsonrpc":"2.0","id":2,"method":"a","method":"b"}"#]), &[], &["\"id\":1", "\"id\":2"]),
        (of(&[&one, named]), &[], &["\"id\":1", "\"id\":\"c\""]),
        (of(&[&one, initialize]), &[], &["\"id\":1", "\"id\":\"i\""]),
        (of(&[&one, modern]), &[], &["\"id\":1", "\"id\":\"m\""]),
        (of(&[&one, "7"]), &[], &["\"id\":1"]),
        (many(101), &[], &["-32600"]),
        ("[]".into(), &[], &["-32600"]),
        (of(&[&one, &two]), &[("mcp-protocol-version", "2025-06-18")], &["\"id\":1", "\"id\":2"]),
        (one.clone(), &[("mcp-protocol-version", "2024-11-05"), ("mcp-protocol-version", "2025-03-26")], &["\"id\":1"]),
        (named.into(), &[], &["-32600"]),
    ];
    let before = backend.calls();
    for (body, headers, words) in refused {
        let (status, answer) = text(front.ask(with(&body, headers)).await).await;
        assert_eq!(status, 400, "{body:.120} {headers:?}: {answer}");
        assert!(words.iter().all(|word| answer.contains(word)), "{body:.120}: {answer}");
    }
    assert_eq!(backend.calls(), before, "none of them reached the server");
    let passing = [of(&[&one, &two]), many(100), modern.to_owned(), one];
    for (number, body) in (1..).zip(&passing) {
        assert_eq!(text(front.ask(with(body, &[])).await).await.0, 202, "{body:.120}");
        assert_eq!((backend.calls(), backend.last().body().as_ref()), (before + number, body.as_bytes()));
    }
    let told = front.door.metrics.text(false).unwrap().1;
    assert!(told.contains("mooring_server_messages_total 104"), "each message counts: {told}");
}

#[tokio::test]
async fn a_backend_without_the_older_transport_is_told() {
    for (first, expected) in [
        ("event: endpoint\ndata: http://evil.example.com/message\n\n", 502),
        ("event: endpoint\ndata: //evil.example.com/message\n\n", 502),
        ("data: {}\n\n", 502),
        ("", 502),
    ] {
        let backend = Backend::start(move |_| async move { event_stream(full(first)) }).await;
        let front = Front::new(&sse_config(backend.port));
        let (status, answer) = text(front.ask(front.post(INITIALIZE)).await).await;
        assert_eq!(status, expected, "{first}: {answer}");
        assert_eq!(text(front.ask(front.bare("GET", "/weather/sse")).await).await.0, expected, "{first}");
        assert_eq!(backend.calls(), 2, "nothing was sent elsewhere");
    }
}

/// A token is in its first event and in no answer, no request to the backend, no metric, no status and no description.
#[tokio::test]
async fn a_token_is_told_to_nobody_but_its_client() {
    let older = Older::default();
    let (behind_older, behind_streamable) = (older.start().await, streamable(Arc::default()).await);
    for (backend, config) in
        [(&behind_older, sse_config(behind_older.port)), (&behind_streamable, http_config(behind_streamable.port))]
    {
        let front = Front::new(&config);
        let mut client = Client::open(&front).await;
        client.ask(INITIALIZE).await;
        let token = client.endpoint.split("s=").nth(1).unwrap().to_owned();
        let mut texts = Vec::new();
        for (method, message) in [("POST", INITIALIZED), ("POST", "{"), ("PUT", ""), ("GET", ""), ("OPTIONS", "")] {
            let mut request = client.request(message);
            *request.method_mut() = method.parse().unwrap();
            let (_, headers, body) = collect(front.ask(request).await).await;
            texts.push(format!("{headers:?} {}", String::from_utf8_lossy(&body)));
        }
        for place in ["/weather/sse?s=", "/weather/messages?s=x&s=", "/weather/messages/", "/weather/mcp?x="] {
            let mut request = client.request("{");
            *request.uri_mut() = format!("{place}{token}").parse().unwrap();
            let (_, headers, body) = collect(front.ask(request).await).await;
            texts.push(format!("{headers:?} {}", String::from_utf8_lossy(&body)));
        }
        texts.push(format!("{:?}", backend.seen()));
        texts.push(serde_json::to_string(&front.door.status()).unwrap());
        texts.push(front.door.metrics.text(true).unwrap().1);
        texts.push(format!("{:?}", front.door));
        let found = texts.iter().find(|text| text.contains(&token));
        assert!(found.is_none(), "{found:?}");
    }
}

/// A request that its client gives up is not answered any more, and nothing waits for it.
#[tokio::test]
async fn a_request_that_is_given_up_holds_nothing() {
    let give_up = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2.0}}"#;
    let hold = r#"{"jsonrpc":"2.0","id":2,"method":"hold"}"#;
    let backend = streamable(Arc::default()).await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    client.ask(INITIALIZE).await;
    assert_eq!(client.post(hold).await, 202);
    eventually("the call runs", || backend.open() == 1).await;
    assert_eq!(client.post(&give_up.replace("2.0}", "3}")).await, 202);
    assert_eq!(backend.open(), 1, "another request's");
    assert_eq!(client.post(give_up).await, 202);
    eventually("the call is given up", || backend.open() == 0).await;
    front.door.enter(Phase::Stopping);
    assert_eq!(client.next().await, None);

    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let session = initialize(&front).await;
    let giving_up = async {
        eventually("the call runs", || older.heard("hold") == 1).await;
        assert_eq!(text(front.ask(with_session(front.post(give_up), &session)).await).await.0, 202);
    };
    let (response, ()) = tokio::join!(front.ask(with_session(front.post(hold), &session)), giving_up);
    assert_eq!(response.status(), 502);
    let mut client = Client::open(&front).await;
    assert_eq!(client.post(hold).await, 202);
    assert_eq!(client.post(give_up).await, 202);
    front.door.enter(Phase::Stopping);
    assert_eq!(client.next().await, None);
}

/// Some clients number all of their requests alike: each is answered, one that is given up takes no other with it, and a
/// stop waits for all of them.
#[tokio::test]
async fn older_clients_may_number_all_of_their_requests_alike() {
    let hold = r#"{"jsonrpc":"2.0","id":1,"method":"hold"}"#;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let give_up = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let answered = r#"{"id":1,"jsonrpc":"2.0","result":{"asked":"ping"}}"#;

    let backend = streamable(Arc::default()).await;
    let front = Front::new(&http_config(backend.port));
    let mut client = Client::open(&front).await;
    client.ask(INITIALIZE).await;
    assert_eq!((client.post(hold).await, client.post(hold).await), (202, 202));
    eventually("both run", || backend.open() == 2).await;
    assert_eq!(client.post(ping).await, 202);
    assert_eq!(client.next().await.unwrap(), answered);
    for left in [1, 0] {
        assert_eq!(client.post(give_up).await, 202);
        eventually("one is given up", || backend.open() == left).await;
    }

    let older = Older::default();
    let backend = older.start().await;
    let front = Front::new(&sse_config(backend.port));
    let mut client = Client::open(&front).await;
    assert_eq!((client.post(hold).await, client.post(ping).await), (202, 202));
    assert_eq!(client.next().await.unwrap(), answered);
    front.door.enter(Phase::Stopping);
    older.say(0, r#"{"id":1,"result":"at last"}"#);
    assert_eq!(client.next().await.unwrap(), r#"{"id":1,"result":"at last"}"#);
    assert_eq!(client.next().await, None);
}
