//! The relay over loopback: bytes, headers, streams, faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify, mpsc};

use super::backend::{Backend, endless, feed};
use super::front::{Front, collect, http_config, next, text};
use super::sessions::fleet::{Fleet, SESSION, request};
use super::{eventually, pass};
use crate::body::{Body, full, gathered};
use crate::clock;
use crate::commit::event_stream;
use crate::refusal::json;
use crate::stream::SILENCE;

const CALL: &str = r#"{"jsonrpc":"2.0","id":"q-1","method":"tools/call","params":{"name":"t"}}"#;

#[tokio::test]
async fn bytes_and_headers_pass() {
    let answer = "{ \"jsonrpc\":\"2.0\",\n\"id\": 12345678901234567890123, \"result\":{\"x\":1e2,\"y\":\"\\u00e9é\"} }";
    let backend = Backend::start(move |_| async move {
        let mut response = Response::new(full(answer));
        let headers = response.headers_mut();
        for (name, value) in [
            ("content-type", "application/json"),
            ("mcp-session-id", "s-1"),
            ("access-control-allow-origin", "*"),
            ("access-control-expose-headers", "x"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("x-kept", "1"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let sent =
        " {\"jsonrpc\":\"2.0\" ,\"id\":12345678901234567890123,\"method\":\"x/y\",\"future\":[1.0,1e2,\"é\\u00e9\"]}\n";
    let mut request = front.post(sent);
    *request.uri_mut() = "/weather/mcp?trace=a%2Fb&x".parse().unwrap();
    request.headers_mut().insert("x-request-id", HeaderValue::from_static("mine-1"));
    request.headers_mut().insert("origin", HeaderValue::from_static("https://app.example.com"));
    let (status, headers, body) = collect(front.ask(request).await).await;
    assert_eq!((status, &body[..]), (StatusCode::OK, answer.as_bytes()));
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.retain(|line| !line.starts_with("date:"));
    insta::assert_snapshot!(lines.join("\n"));
    let seen = backend.last();
    assert_eq!(seen.uri(), "/backend/mcp?trace=a%2Fb&x");
    assert_eq!(seen.body(), sent.as_bytes());
    assert_eq!(seen.headers()["host"], format!("localhost:{}", backend.port));
    assert_eq!(seen.headers()["x-request-id"], "mine-1");
    assert_eq!(seen.headers()["x-forwarded-for"], "10.0.0.9");
    assert_eq!(seen.headers()["x-forwarded-host"], "mcp.example.com");
    for gone in ["authorization", "x-api-key", "origin"] {
        assert!(!seen.headers().contains_key(gone), "{gone}");
    }
}

/// Whom the backend lets in, and what it can do, is told in its own words.
#[tokio::test]
async fn refusals_of_the_backend_pass_byte_for_byte() {
    type Refused = (&'static str, &'static str, u16, &'static [(&'static str, &'static str)], &'static str);
    const INSUFFICIENT: &str = r#"Bearer realm="tools", scope="files:read  files:write", error="insufficient_scope", error_description="é, more""#;
    let cases: [Refused; 6] = [
        (
            "POST",
            "/weather/mcp",
            401,
            &[("www-authenticate", r#"Bearer realm="of the backend", error="invalid_token", scope="a b""#)],
            "{ \"error\" : \"invalid_token\" }",
        ),
        ("POST", "/weather/mcp", 401, &[("www-authenticate", "Basic"), ("www-authenticate", "Bearer realm=x")], ""),
        ("POST", "/weather/mcp", 403, &[("www-authenticate", INSUFFICIENT)], "not for you\n"),
        ("GET", "/weather/mcp", 401, &[("www-authenticate", "Bearer")], "who?"),
        ("GET", "/weather/mcp", 405, &[("allow", "POST,  DELETE")], "Method Not Allowed"),
        ("DELETE", "/weather/mcp", 405, &[("allow", "GET, POST")], ""),
    ];
    for (method, path, status, headers, body) in cases {
        let backend = Backend::start(move |_| async move {
            let mut response = Response::new(full(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            for (name, value) in headers {
                response.headers_mut().append(*name, HeaderValue::from_str(value).unwrap());
            }
            response
        })
        .await;
        let front = Front::new(&http_config(backend.port));
        let request = if method == "POST" { front.post(CALL) } else { front.bare(method, path) };
        let (told, mut passed, bytes) = collect(front.ask(request).await).await;
        assert_eq!((told.as_u16(), &bytes[..]), (status, body.as_bytes()), "{method} {headers:?}");
        for name in ["www-authenticate", "allow"] {
            let expected: Vec<_> = headers.iter().filter(|(of, _)| *of == name).map(|(_, value)| *value).collect();
            let values: Vec<_> =
                passed.get_all(name).iter().map(|value| std::str::from_utf8(value.as_bytes()).unwrap()).collect();
            assert_eq!(values, expected, "{method} {status}");
        }
        assert!(passed.remove("content-type").is_none(), "it said none: {passed:?}");
        assert_eq!(backend.calls(), 1, "nothing is tried again");
    }
}

#[tokio::test]
async fn a_request_without_an_id_gets_one_that_both_sides_see() {
    let backend = Backend::start(|_| async { json(StatusCode::OK, "{}".into()) }).await;
    let front = Front::new(&http_config(backend.port));
    let mut made = Vec::new();
    for asked in ["", "two words"] {
        let mut request = front.post(CALL);
        if !asked.is_empty() {
            request.headers_mut().insert("x-request-id", HeaderValue::from_static(asked));
        }
        let (_, headers, _) = collect(front.ask(request).await).await;
        assert_eq!(backend.last().headers()["x-request-id"], headers["x-request-id"]);
        assert_eq!(backend.last().headers().get_all("x-request-id").iter().count(), 1);
        made.push(headers["x-request-id"].to_str().unwrap().to_owned());
    }
    assert!(made.iter().all(|id| !id.is_empty() && !id.contains(' ')) && made[0] != made[1], "{made:?}");
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_and_nobody_else() {
    let backend = Backend::start(|_| async { json(StatusCode::OK, "{}".into()) }).await;
    let way = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
    let seen_here = ["127.0.0.1", "http", "mcp.example.com"];
    let seen_by_proxy = ["198.51.100.1, 203.0.113.7, 127.0.0.1", "https", "public.example.com"];
    let front = Front::new(&http_config(backend.port));
    let address = front.listen().await;
    for (proxies, expected) in [
        (vec![], seen_here),
        (vec!["127.0.0.0/8", "fd00::/8"], seen_by_proxy),
        (vec!["127.0.0.1"], seen_by_proxy),
        (vec!["::1", "10.0.0.0/8"], seen_here),
        (vec!["0.0.0.0/0"], seen_by_proxy),
        // What does not compile changes nothing.
        (vec!["127.0.0.1/8"], seen_by_proxy),
    ] {
        let mut config = http_config(backend.port);
        config["security"]["trustedProxies"] = proxies.clone().into();
        front.config.swap(&[("config.json", &config.to_string())]);
        front.reloader().reload();
        let request = format!(
            "POST /weather/mcp HTTP/1.1\r\nHost: mcp.example.com\r\nx-api-key: {}\r\nContent-Type: application/json\r\n\
             X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n\
             X-Forwarded-Host: public.example.com\r\nX-Forwarded-Port: 443\r\nForwarded: for=203.0.113.7\r\n\
             X-Real-IP: 203.0.113.7\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{CALL}",
            front.key.expose(),
            CALL.len()
        );
        let answer = front.raw(address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let seen = backend.last();
        assert_eq!(way.map(|name| seen.headers()[name].to_str().unwrap()), expected, "{proxies:?}");
        for gone in ["x-forwarded-port", "forwarded", "x-real-ip"] {
            assert!(!seen.headers().contains_key(gone), "{gone}");
        }
    }
}

#[tokio::test]
async fn every_method_and_every_spelling_of_the_endpoint_reaches_one_path() {
    let backend = Backend::start(|_| async { json(StatusCode::OK, "{}".into()) }).await;
    let front = Front::new(&http_config(backend.port));
    let requests = [
        ("GET", "/weather/mcp"),
        ("DELETE", "/weather/mcp"),
        ("GET", "/weather"),
        ("DELETE", "/weather/"),
        ("GET", "/weather/mcp/"),
    ];
    for (method, path) in requests {
        assert_eq!(collect(front.ask(front.bare(method, path)).await).await.0, 200, "{method} {path}");
        assert_eq!((backend.last().method().as_str(), backend.last().uri().path()), (method, "/backend/mcp"));
    }
    let (status, headers, _) = collect(front.ask(front.bare("OPTIONS", "/weather/mcp")).await).await;
    assert_eq!((status.as_u16(), &headers["allow"]), (204, &HeaderValue::from_static("GET, POST, DELETE, OPTIONS")));
    assert_eq!(backend.calls(), requests.len());
}

#[tokio::test]
async fn a_batch_passes() {
    let backend = Backend::start(|_| async { json(StatusCode::OK, "[]".into()) }).await;
    let front = Front::new(&http_config(backend.port));
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#;
    assert_eq!(text(front.ask(front.post(batch)).await).await, (200, "[]".into()));
    assert_eq!(backend.last().body(), batch);
}

#[tokio::test]
async fn events_arrive_one_by_one_and_uncompressed() {
    let (sender, body) = feed();
    let body = Arc::new(Mutex::new(Some(body)));
    let backend = Backend::start(move |_| {
        let body = Arc::clone(&body);
        async move {
            let mut response = Response::new(body.lock().await.take().unwrap());
            let headers = response.headers_mut();
            headers.insert("content-type", HeaderValue::from_static("Text/Event-Stream; charset=utf-8"));
            response
        }
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let mut request = front.post(CALL);
    request.headers_mut().insert("accept-encoding", HeaderValue::from_static("gzip, br"));
    let mut response = front.ask(request).await;
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    assert_eq!(response.headers()["content-type"], "Text/Event-Stream; charset=utf-8");
    assert!(!response.headers().contains_key("content-encoding"));
    for event in ["data: 1\n\n", ": \n\n", "id: 2\r\ndata: é\r\n\r\n"] {
        sender.send(event.into()).unwrap();
        assert_eq!(next(&mut response).await.unwrap(), event);
    }
    drop(sender);
    assert_eq!(next(&mut response).await, None);
    assert_eq!(backend.last().headers()["accept-encoding"], "identity");
}

/// With a comment it is longer than its server says, and what is beyond that would be taken for the next answer.
#[tokio::test]
async fn a_stream_that_gets_comments_has_no_length() {
    const EVENTS: [&str; 2] = ["data: 1\n\n", "data: 2\n\n"];
    let goes_on = Arc::new(Notify::new());
    let waits = Arc::clone(&goes_on);
    let backend = Backend::start(move |request| {
        let waits = Arc::clone(&waits);
        async move {
            if request.body().windows(12).any(|bytes| bytes == b"\"initialize\"") {
                let mut response = json(StatusCode::OK, "{}".into());
                response
                    .headers_mut()
                    .insert(SESSION, HeaderValue::from_static("0b6f4d5e-8f0e-4f43-9e58-000000000000"));
                return response;
            }
            let (sender, body) = feed();
            sender.send(EVENTS[0].into()).unwrap();
            tokio_util::task::TaskTracker::new().spawn(async move {
                waits.notified().await;
                sender.send(EVENTS[1].into()).unwrap();
            });
            let mut response = event_stream(body);
            response.headers_mut().insert("content-length", EVENTS.concat().len().into());
            response
        }
    })
    .await;
    let fleet = Fleet::of(&[&backend, &backend], |config| config["limits"]["callTimeoutMs"] = 60_000.into()).await;
    let session = fleet.initialize(0).await;
    for (number, method) in [(0, "POST"), (0, "GET"), (1, "POST"), (1, "GET")] {
        let front = &fleet.pods[number];
        let mut response = front.ask(request(front, method, Some(&session))).await;
        assert!(!response.headers().contains_key("content-length"), "{method}: {:?}", response.headers());
        assert_eq!(next(&mut response).await.unwrap(), EVENTS[0]);
        if number > 0 {
            continue; // the connection between pods would be taken for dead when time leaps
        }
        let (comment, ()) = tokio::join!(next(&mut response), pass(SILENCE));
        assert_eq!(comment.unwrap(), ": keep-alive\n\n", "{method}");
        goes_on.notify_one();
        assert_eq!(text(response).await, (200, EVENTS[1].into()), "{method}");
    }
}

/// Asked for `identity`, a server may still compress. Between the events of such a stream nothing can be written.
#[tokio::test]
async fn a_compressed_stream_passes_as_it_is() {
    let pieces: [&[u8]; 2] = [b"\x1f\x8b\x08\x00compressed\n\n", b"more\n\n"];
    let (sender, body) = feed();
    let body = Arc::new(Mutex::new(Some(body)));
    let backend = Backend::start(move |_| {
        let body = Arc::clone(&body);
        async move { compressed(event_stream(body.lock().await.take().unwrap())) }
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    sender.send(pieces[0].into()).unwrap();
    let response = front.ask(front.bare("GET", "/weather/mcp")).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let says_more = async {
        pass(SILENCE * 2).await;
        sender.send(pieces[1].into()).unwrap();
        drop(sender);
    };
    let (bytes, ()) = tokio::join!(response.into_body().collect(), says_more);
    assert_eq!(bytes.unwrap().to_bytes(), pieces.concat());
}

/// It cannot be a part of the stream of events that its client has then been promised.
#[tokio::test]
async fn a_compressed_answer_that_is_late_becomes_an_error() {
    for is_stream in [false, true] {
        let answers = Arc::new(Notify::new());
        let waits = Arc::clone(&answers);
        let backend = Backend::start(move |_| {
            let waits = Arc::clone(&waits);
            async move {
                waits.notified().await;
                let body = full(&b"\x1f\x8b\x08\x00compressed"[..]);
                compressed(if is_stream {
                    event_stream(body)
                } else {
                    json(StatusCode::OK, String::new()).map(|_| body)
                })
            }
        })
        .await;
        let mut config = http_config(backend.port);
        config["limits"]["callTimeoutMs"] = 60_000.into();
        let front = Front::new(&config);
        let (response, ()) = tokio::join!(front.ask(front.post(CALL)), async {
            eventually("asked", || backend.calls() == 1).await;
            pass(SILENCE).await;
            answers.notify_one();
        });
        assert!(!response.headers().contains_key("content-encoding"));
        let (status, said) = text(response).await;
        assert!(status == 200 && said.starts_with(": keep-alive\n\nevent: message\ndata: {"), "{said}");
        assert!(said.contains("\"id\":\"q-1\"") && said.contains("\"code\":-32603"), "{said}");
        assert!(said.contains("with a Content-Encoding") && !said.contains("compressed"), "{said}");
    }
}

fn compressed(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
    response
}

#[tokio::test]
async fn redirects_within_the_backend_are_followed() {
    let backend = Backend::start(|request| async move {
        let mut response = json(StatusCode::OK, "{}".into());
        let (status, location) = match request.uri().path() {
            "/backend/mcp" => {
                let host = request.headers()["host"].to_str().unwrap();
                (StatusCode::TEMPORARY_REDIRECT, format!("http://{host}/backend/mcp/"))
            }
            _ => return response,
        };
        *response.status_mut() = status;
        response.headers_mut().insert("location", HeaderValue::try_from(location).unwrap());
        response
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    assert_eq!(text(front.ask(front.post(CALL)).await).await, (200, "{}".into()));
    assert_eq!((backend.calls(), backend.last().uri().path()), (2, "/backend/mcp/"));
    assert_eq!(backend.last().body(), CALL);
}

/// Servers write their own address from what they are told of the client's, as Starlette does for `/mcp/`.
#[tokio::test]
async fn redirects_within_the_backend_are_followed_behind_tls() {
    let backend = Backend::start(|request| async move {
        let told = |name: &str| request.headers()[name].to_str().unwrap();
        let (scheme, public) = (told("x-forwarded-proto"), told("x-forwarded-host"));
        let location = match request.uri().query() {
            Some("host") => format!("{scheme}://{}/backend/mcp/", told("host")),
            Some("public") => format!("{scheme}://{public}/backend/mcp/"),
            Some("port") => format!("{scheme}://{public}:443/backend/mcp/"),
            Some("plain") => format!("http://{public}/backend/mcp/"),
            Some("relative") => "mcp/".to_owned(),
            Some("elsewhere") => format!("{scheme}://evil.example.com/backend/mcp/"),
            _ => return json(StatusCode::OK, "{}".into()),
        };
        let mut response = json(StatusCode::TEMPORARY_REDIRECT, String::new());
        response.headers_mut().insert("location", HeaderValue::try_from(location).unwrap());
        response
    })
    .await;
    let mut config = http_config(backend.port);
    config["security"]["trustedProxies"] = vec!["10.0.0.9"].into();
    let front = Front::new(&config);
    for (query, status) in
        [("host", 200), ("public", 200), ("port", 200), ("plain", 200), ("relative", 200), ("elsewhere", 502)]
    {
        let mut request = front.post(CALL);
        *request.uri_mut() = format!("/weather/mcp?{query}").parse().unwrap();
        for (name, value) in [("x-forwarded-proto", "https"), ("x-forwarded-host", "public.example.com")] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        let before = backend.calls();
        assert_eq!(text(front.ask(request).await).await.0, status, "{query}");
        let followed = (backend.calls() - before, backend.last().uri().path() == "/backend/mcp/");
        assert_eq!(followed, if status == 200 { (2, true) } else { (1, false) }, "{query}");
    }
}

/// A client meets no redirect: it is followed where that is safe, and is a failure of the server else.
#[tokio::test]
async fn every_redirect_ends_here() {
    for (status, method, to, hops, expected) in [
        (307, "POST", "/elsewhere", 1, 200),
        (308, "POST", "/elsewhere", 2, 200),
        (307, "POST", "/elsewhere", 9, 502),
        (301, "POST", "/elsewhere", 1, 502),
        (302, "POST", "/elsewhere", 1, 502),
        (303, "POST", "/elsewhere", 1, 502),
        (301, "GET", "/elsewhere", 1, 200),
        (302, "GET", "/elsewhere", 1, 200),
        (303, "GET", "/elsewhere", 1, 200),
        (303, "DELETE", "/elsewhere", 1, 502),
        (300, "GET", "/elsewhere", 1, 502),
        (305, "GET", "/elsewhere", 1, 502),
        (307, "POST", "", 1, 502),
        (302, "GET", "", 1, 502),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let backend = Backend::start(move |_| {
            let redirects = counted.fetch_add(1, Ordering::SeqCst) < hops;
            async move {
                let mut response = json(StatusCode::OK, "{}".into());
                if redirects {
                    *response.status_mut() = StatusCode::from_u16(status).unwrap();
                    if !to.is_empty() {
                        response.headers_mut().insert("location", HeaderValue::from_static(to));
                    }
                }
                response
            }
        })
        .await;
        let front = Front::new(&http_config(backend.port));
        let request = if method == "POST" { front.post(CALL) } else { front.bare(method, "/weather/mcp") };
        let (answered, headers, _) = collect(front.ask(request).await).await;
        assert_eq!(answered, expected, "{status} {method} {to:?} {hops}");
        assert!(!headers.contains_key("location"), "{status} {method} {to:?} {hops}");
    }
}

#[tokio::test]
async fn a_session_with_two_ids_is_a_failure_of_the_server() {
    let backend = Backend::start(|_| async move {
        let mut response = json(StatusCode::OK, "{}".into());
        for id in ["one", "two"] {
            response.headers_mut().append("mcp-session-id", HeaderValue::from_static(id));
        }
        response
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let (status, headers, body) = collect(front.ask(front.post(CALL)).await).await;
    assert_eq!(status, 502, "{}", String::from_utf8_lossy(&body));
    assert!(!headers.contains_key("mcp-session-id"));
}

#[tokio::test]
async fn redirects_elsewhere_are_not_followed() {
    let backend = Backend::start(|_| async move {
        let mut response = json(StatusCode::TEMPORARY_REDIRECT, String::new());
        response.headers_mut().insert("location", HeaderValue::from_static("http://evil.example.com/mcp"));
        response
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let (status, headers, body) = collect(front.ask(front.post(CALL)).await).await;
    assert_eq!(status, 502);
    assert!(!headers.contains_key("location"));
    assert!(String::from_utf8_lossy(&body).contains("\"id\":\"q-1\""));
}

#[tokio::test]
async fn faults_of_the_backend_are_told() {
    // Nothing listens.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let front = Front::new(&http_config(port));
    let (status, headers, body) = collect(front.ask(front.post(CALL)).await).await;
    assert_eq!((status.as_u16(), &headers["retry-after"]), (503, &HeaderValue::from_static("1")));
    assert!(String::from_utf8_lossy(&body).contains("\"id\":\"q-1\""));

    // It takes the request and breaks off; it answers halfway and breaks off.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let front = Front::new(&http_config(port));
    front.run(async move {
        for answer in ["", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{\"half\":"]
        {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut piece = [0; 4096];
            assert!(stream.read(&mut piece).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        std::future::pending::<()>().await;
    });
    assert_eq!(text(front.ask(front.post(CALL)).await).await.0, 502);
    let (status, said) = text(front.ask(front.post(CALL)).await).await;
    assert!(status == 502 && said.contains("\"id\":\"q-1\""), "a truncated answer is none: {status} {said}");

    // It never answers.
    let backend = Backend::start(|_| std::future::pending()).await;
    let mut config = http_config(backend.port);
    config["limits"]["callTimeoutMs"] = 1000.into();
    let front = Front::new(&config);
    assert_eq!(text(front.ask(front.post(CALL)).await).await.0, 504);
    eventually("the exchange is given up", || backend.open() == 0).await;
}

#[tokio::test]
async fn a_stream_ends_with_the_call_timeout_and_a_listening_one_does_not() {
    let backend = Backend::start(|_| async { endless("data: 1\n\n") }).await;
    let mut config = http_config(backend.port);
    config["limits"]["callTimeoutMs"] = 1000.into();
    let front = Front::new(&config);
    let (status, body) = text(front.ask(front.post(CALL)).await).await;
    assert_eq!((status, body.as_str()), (200, "data: 1\n\n"));
    let mut listening = front.ask(front.post(r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}"#)).await;
    assert_eq!(next(&mut listening).await.unwrap(), "data: 1\n\n");
    let more = tokio::time::timeout(Duration::from_millis(1500), next(&mut listening)).await;
    assert!(more.is_err(), "still open: {more:?}");
}

/// What its client has not taken waits at the server; and there is no pause in which the time that it has could be noticed.
#[tokio::test]
async fn a_line_without_end_is_held_by_nobody_and_ends_with_the_call_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = http_config(listener.local_addr().unwrap().port());
    config["limits"]["callTimeoutMs"] = 1000.into();
    let front = Front::new(&config);
    let (sent, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, over) = (Arc::clone(&sent), Arc::clone(&is_over));
    front.run(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ").await.unwrap();
        while let Ok(length) = stream.write(&[b'x'; 16 * 1024]).await {
            counted.fetch_add(length, Ordering::SeqCst);
        }
        over.store(true, Ordering::SeqCst);
    });
    let mut answer = front.ask(front.post(CALL)).await;
    let (mut taken, mut most) = (0, 0);
    let slowly = async {
        while let Some(piece) = next(&mut answer).await {
            taken += piece.len();
            most = most.max(sent.load(Ordering::SeqCst).saturating_sub(taken));
            tokio::time::sleep(Duration::from_millis(10)).await; // the server is always ahead
        }
    };
    tokio::time::timeout(Duration::from_secs(10), slowly).await.expect("the call timeout ends it");
    assert!(most < 16 * 1024 * 1024, "more than the sockets hold: {most} bytes");
    eventually("the exchange is given up", || is_over.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_before_the_backend_would_close_it() {
    let backend = Backend::start(|_| async { json(StatusCode::OK, "{}".into()) }).await;
    let front = Front::new(&http_config(backend.port));
    assert_eq!(text(front.ask(front.post(CALL)).await).await.0, 200);
    assert_eq!(backend.connected(), 1);
    let begin = clock::instant();
    eventually("the connection is closed by the front door", || backend.connected() == 0).await;
    let idle = clock::instant() - begin;
    assert!(idle < Duration::from_secs(5), "node and uvicorn would have closed it: {idle:?}");
}

#[tokio::test]
async fn a_request_that_began_is_never_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = Front::new(&http_config(listener.local_addr().unwrap().port()));
    let (sender, mut received) = mpsc::unbounded_channel();
    front.run(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut piece = [0; 4096];
            sender.send(stream.read(&mut piece).await.unwrap()).unwrap();
        }
    });
    assert_eq!(text(front.ask(front.post(CALL)).await).await.0, 502);
    assert!(received.recv().await.unwrap() > 0);
    assert!(received.try_recv().is_err());
}

#[tokio::test]
async fn connections_to_the_backend_are_reused() {
    let backend = Backend::start(|_| async { json(StatusCode::OK, "{}".into()) }).await;
    let front = Front::new(&http_config(backend.port));
    for _ in 0..20 {
        assert_eq!(text(front.ask(front.post(CALL)).await).await.0, 200);
    }
    assert_eq!((backend.calls(), backend.connections()), (20, 1));
}

#[tokio::test]
async fn a_body_without_message_is_passed_too() {
    let backend = Backend::start(|_| async {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::ACCEPTED;
        response
    })
    .await;
    let front = Front::new(&http_config(backend.port));
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(text(front.ask(front.post(notification)).await).await, (202, String::new()));
    let response = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
    assert_eq!(text(front.ask(front.post(response)).await).await, (202, String::new()));
    assert_eq!(backend.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_is_kept_alive_and_its_timeout_is_told() {
    let backend = Backend::start(|request| async move {
        tokio::time::sleep(Duration::from_secs(if request.uri().query().is_some() { 1000 } else { 40 })).await;
        let mut response = json(StatusCode::OK, r#"{"jsonrpc":"2.0","id":"q-1","result":{}}"#.into());
        response.headers_mut().insert("access-control-allow-origin", HeaderValue::from_static("*"));
        response
    })
    .await;
    let mut config = http_config(backend.port);
    config["limits"]["callTimeoutMs"] = 50_000.into();
    let front = Front::new(&config);
    let (status, headers, answer) = collect(front.ask(front.post(CALL)).await).await;
    assert_eq!((status.as_u16(), &headers["content-type"]), (200, &HeaderValue::from_static("text/event-stream")));
    let mut request = front.post(CALL);
    *request.uri_mut() = "/weather/mcp?never".parse().unwrap();
    let (status, never) = text(front.ask(request).await).await;
    assert_eq!(status, 200);
    insta::assert_snapshot!(format!("{}---\n{never}", String::from_utf8_lossy(&answer)));
    eventually("the exchange is given up", || backend.open() == 0).await;
    // Other methods wait for the backend's own answer.
    let list = CALL.replace("tools/call", "tools/list");
    let (_, headers, _) = collect(front.ask(front.post(&list)).await).await;
    assert_eq!(headers["content-type"], "application/json");
}

/// A short answer leaves in one piece, whatever pieces it came in; a longer one is not held.
#[tokio::test]
async fn the_beginning_of_an_answer_is_gathered() {
    let (sender, body) = feed();
    sender.send("data: 1\n\n".into()).unwrap();
    sender.send("data: 2\n\n".into()).unwrap();
    drop(sender);
    let short = gathered(body).await;
    assert_eq!(http_body::Body::size_hint(&short).exact(), Some(18));
    assert_eq!(short.collect().await.unwrap().to_bytes(), "data: 1\n\ndata: 2\n\n");

    let (sender, body) = feed();
    sender.send("data: 1\n\n".into()).unwrap();
    let mut long = Response::new(gathered(body).await);
    assert_eq!(next(&mut long).await.as_deref(), Some("data: 1\n\n"));
    sender.send("data: 2\n\n".into()).unwrap();
    assert_eq!(next(&mut long).await.as_deref(), Some("data: 2\n\n"));
    drop(sender);
    assert_eq!(next(&mut long).await, None);
}

/// A head without anything said behind it is held for longer: the connection that it would leave on may be about to break.
#[tokio::test(start_paused = true)]
async fn a_head_waits_for_what_follows_it() {
    let milliseconds = std::time::Duration::from_millis;
    // What is there at once, and how long the head is held when nothing comes after it.
    for (at_once, held) in [
        ("", 500),
        (": hello\n\n", 500),
        ("id: 1_0\ndata: \n\n", 500),
        ("id: 1_0\r\nretry: 1000\r\ndata:\r\n\r\n", 500),
        ("event: message\n", 500),
        ("data: 0\n\n", 100),
        ("id: 1_0\ndata: \n\nid: 2_0\ndata: 0\n\n", 100),
        ("data: ", 100), // the data may be behind it
        ("{", 100),
        ("[]\n", 100),
    ] {
        for end in [Some(50), Some(90), Some(300), Some(501), None] {
            let (begun, (sender, body)) = (crate::clock::instant(), feed());
            if !at_once.is_empty() {
                sender.send(at_once.into()).unwrap();
            }
            let says = async move {
                tokio::time::sleep(milliseconds(end.unwrap_or(10_000))).await;
                sender.send("data: 1\n\n".into()).unwrap();
            };
            let gathers = async {
                let answer = gathered(body).await;
                (Response::new(answer), begun.elapsed())
            };
            let ((mut answer, took), ()) = tokio::join!(gathers, says);
            let over = end.filter(|end| *end < held);
            assert_eq!(took, milliseconds(over.unwrap_or(held)), "{at_once:?}, more after {end:?} ms");
            let size = http_body::Body::size_hint(answer.body()).exact();
            assert_eq!(size, over.map(|_| at_once.len() as u64 + 9), "{at_once:?}, more after {end:?} ms");
            if over.is_none() && !at_once.is_empty() {
                assert_eq!(next(&mut answer).await.as_deref(), Some(at_once));
            }
            let whole = if over.is_some() { format!("{at_once}data: 1\n\n") } else { "data: 1\n\n".to_owned() };
            assert_eq!(next(&mut answer).await.as_deref(), Some(&*whole));
        }
    }
}

/// What is said late is passed on a moment later, should more follow.
#[tokio::test(start_paused = true)]
async fn what_is_said_late_does_not_wait_long() {
    let milliseconds = std::time::Duration::from_millis;
    let (begun, (sender, body)) = (crate::clock::instant(), feed());
    let says = async {
        tokio::time::sleep(milliseconds(200)).await;
        sender.send("data: 1\n\n".into()).unwrap();
    };
    let (answer, ()) = tokio::join!(gathered(body), says);
    assert_eq!(begun.elapsed(), milliseconds(210));
    assert_eq!(next(&mut Response::new(answer)).await.as_deref(), Some("data: 1\n\n"));
}
