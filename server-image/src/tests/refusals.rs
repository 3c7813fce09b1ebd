//! What is refused never reaches the backend, and looks the same whatever the reason of a 401.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request};

use super::backend::Backend;
use super::front::{Front, collect, http_config, key, record, text};
use crate::body::{empty, full};
use crate::clock;
use crate::refusal::json;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

async fn backend() -> Backend {
    Backend::start(|_| async { json(http::StatusCode::OK, "{}".into()) }).await
}

/// A browser takes it for nothing else, and keeps it from the pages of other sites.
fn assert_own(headers: &HeaderMap) {
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
}

/// A change of a good request (a header replaced, or taken away by ""), and the status that it gets.
type Change<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, u16);

#[tokio::test]
async fn a_refused_request_never_reaches_the_backend() {
    let backend = backend().await;
    let front = Front::new(&http_config(backend.port));
    let bearer = format!("Bearer {}", front.key.expose());
    let other = format!("Bearer {}", key(2).expose());
    let long = "x".repeat(5000);
    let good: [(&str, &str); 3] =
        [("host", "mcp.example.com"), ("authorization", &bearer), ("content-type", "application/json")];
    let cases: &[Change] = &[
        ("POST", "/weather/mcp", &[("host", "evil.example.com")], PING, 421),
        ("POST", "/weather/mcp", &[("host", "mcp.example.com.")], PING, 421),
        ("POST", "/weather/mcp", &[("host", "mcp.example.com:80.evil.com")], PING, 400),
        ("POST", "/weather/mcp", &[("host", "")], PING, 400),
        ("POST", "/weather/mcp", &[("origin", "https://evil.example.com")], PING, 403),
        ("POST", "/weather/mcp", &[("origin", "null")], PING, 403),
        (
            "OPTIONS",
            "/weather/mcp",
            &[("origin", "https://evil.example.com"), ("access-control-request-method", "POST")],
            "",
            403,
        ),
        ("POST", "/weather/mcp", &[("authorization", "")], PING, 401),
        ("POST", "/weather/mcp", &[("authorization", &other)], PING, 401),
        ("POST", "/weather/mcp", &[("authorization", "Basic dXNlcjpwYXNz")], PING, 401),
        ("POST", "/weather/mcp", &[("x-api-key", "other")], PING, 401),
        ("GET", "/weather/mcp", &[("authorization", "")], "", 401),
        ("DELETE", "/weather/mcp", &[("authorization", "")], "", 401),
        ("OPTIONS", "/weather/mcp", &[("authorization", "")], "", 401),
        ("HEAD", "/weather/mcp", &[("authorization", "")], "", 401),
        ("TRACE", "/weather/mcp", &[("authorization", "")], "", 401),
        ("POST", "/weather", &[("authorization", "")], PING, 401),
        ("POST", "/weather/nothing", &[("authorization", "")], PING, 404),
        ("POST", "/weather/nothing", &[], PING, 404),
        ("POST", "/mcp", &[], PING, 404),
        ("POST", "//weather/mcp", &[], PING, 404),
        ("POST", "/weather//mcp", &[], PING, 404),
        ("POST", "/weather/%6dcp", &[], PING, 404),
        ("POST", "/weather/mcp/..", &[], PING, 404),
        ("POST", "/weather/mcp;x", &[], PING, 404),
        ("POST", "/weather/sse", &[], PING, 405),
        ("GET", "/weather/sse", &[("authorization", "")], "", 401),
        ("GET", "/weather/sse", &[("host", "evil.example.com")], "", 421),
        ("GET", "/weather/sse", &[("origin", "https://evil.example.com")], "", 403),
        ("POST", "/weather/messages", &[("authorization", "")], PING, 401),
        ("POST", "/weather/messages?s=x", &[], PING, 404),
        ("POST", "/weather/messages", &[], PING, 404),
        ("GET", "/metrics", &[], "", 404),
        ("GET", "/status", &[], "", 404),
        ("GET", "/.well-known/oauth-protected-resource", &[("authorization", "")], "", 404),
        ("GET", "/weather/.well-known/openid-configuration", &[], "", 404),
        ("PUT", "/weather/mcp", &[], PING, 405),
        ("TRACE", "/weather/mcp", &[], "", 405),
        ("HEAD", "/weather/mcp", &[], "", 405),
        ("POST", "/health", &[], PING, 405),
        ("POST", "/weather/mcp", &[("content-type", "text/plain")], PING, 415),
        ("POST", "/weather/mcp", &[("content-type", "")], PING, 415),
        ("POST", "/weather/mcp", &[("content-encoding", "gzip")], PING, 415),
        ("POST", "/weather/mcp", &[], &long, 413),
        ("POST", "/weather/mcp", &[], "{", 400),
        ("POST", "/weather/mcp", &[], "", 400),
        ("POST", "/weather/mcp", &[], r#"{"id":1,"method":"a","method":"b"}"#, 400),
        ("POST", "/weather/mcp", &[], r#"{"id":1,"method":"a","Method":"b"}"#, 400),
    ];
    for (method, path, changes, body, expected) in cases {
        let mut request = Request::builder().method(*method).uri(*path).body(full((*body).to_owned())).unwrap();
        for (name, value) in good.iter().chain(*changes) {
            let name = HeaderName::try_from(*name).unwrap();
            match *value {
                "" => drop(request.headers_mut().remove(name)),
                value => drop(request.headers_mut().insert(name, HeaderValue::try_from(value).unwrap())),
            }
        }
        let response = front.ask(request).await;
        assert_own(response.headers());
        let (status, answer) = text(response).await;
        assert_eq!(status, *expected, "{method} {path} {changes:?} {body:.40}: {answer}");
        assert!(!answer.contains('<'), "no HTML: {answer}");
        assert_eq!(backend.calls(), 0, "{method} {path} {changes:?}");
    }
    assert_eq!(collect(front.ask(front.post(PING)).await).await.0, 200);
    assert_eq!(backend.calls(), 1);
}

/// What is not read here must not be read behind it either.
#[tokio::test]
async fn only_what_is_declared_as_json_is_read_and_reaches_the_backend() {
    const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let backend = backend().await;
    let front = Front::new(&http_config(backend.port));
    let cases: &[(&[&str], u16)] = &[
        (&["application/json"], 200),
        (&["application/json;charset=utf-8"], 200),
        (&["application/json ; charset=\"UTF-8\""], 200),
        (&["APPLICATION/JSON"], 200),
        (&[], 415),
        (&[""], 415),
        (&["text/plain"], 415),
        (&["text/plain;application/json"], 415),
        (&["text/plain, application/json"], 415),
        (&["application/json, text/plain"], 415),
        (&["application/json+x"], 415),
        (&["application/x+json"], 415),
        (&["application/json", "text/plain"], 415),
        (&["text/plain", "application/json"], 415),
        (&["application/json", "application/json"], 415),
    ];
    let mut served = 0;
    for (types, expected) in cases {
        let mut request = front.post(CALL);
        request.headers_mut().remove("content-type");
        for value in *types {
            request.headers_mut().append("content-type", HeaderValue::from_static(value));
        }
        let (status, answer) = text(front.ask(request).await).await;
        assert_eq!(status, *expected, "{types:?}: {answer}");
        served += usize::from(status == 200);
        assert_eq!(backend.calls(), served, "{types:?}");
    }
}

/// Those that are read in one way only, whatever is wrong with them, are the backend's to answer, byte by byte as they came.
#[tokio::test]
async fn a_message_that_has_no_one_reading_never_reaches_the_backend() {
    let backend = backend().await;
    let mut config = http_config(backend.port);
    config["limits"]["bodyBytes"] = 65_536.into();
    let front = Front::new(&config);
    let nested = format!(r#"{{"id":1,"method":"m","params":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    let unclosed = format!(r#"{{"id":1,"method":"m","params":{}"#, r#"{"a":"#.repeat(10_000));
    let cases: &[(&str, u16)] = &[
        // Keys in another case, and keys that are there twice.
        (r#"{"id":1,"METHOD":"tools/call"}"#, 400),
        (r#"{"id":1,"method":"ping","METHOD":"tools/call"}"#, 400),
        (r#"{"ID":1,"method":"ping"}"#, 400),
        (r#"{"id":1,"method":"tools/call","Params":{"name":"a"}}"#, 400),
        (r#"{"id":1,"method":"tools/call","params":{"Name":"a"}}"#, 400),
        (r#"{"id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#, 400),
        (r#"{"id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#, 400),
        (r#"{"id":1,"method":"tools/call","params":{"name":"a","n\u0061me":"b"}}"#, 400),
        (r#"{"id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}"#, 400),
        (r#"{"id":1,"id":1,"method":"ping"}"#, 400),
        (r#"{"id":1,"method":"ping","id":2}"#, 400),
        // Wrong kinds.
        (r#"{"id":true,"method":"ping"}"#, 400),
        (r#"{"id":[1],"method":"ping"}"#, 400),
        (r#"{"id":{},"method":"ping"}"#, 400),
        (r#"{"id":1,"method":7}"#, 400),
        (r#"{"id":1,"method":["ping"]}"#, 400),
        (r#"{"id":1,"method":{"ping":1}}"#, 400),
        (r#"{"id":1,"method":null}"#, 400),
        (r#"{"id":1,"method":true}"#, 400),
        (r#""ping""#, 400),
        ("1", 400),
        ("null", 400),
        // Several values, and less than one.
        (r#"{"id":1,"method":"ping"}{"id":2,"method":"ping"}"#, 400),
        (r#"{"id":1,"method":"ping"} {}"#, 400),
        ("{}{}", 400),
        (r#"{"id":1,"method":"pi"#, 400),
        (r#"{"id":1,"method":"ping""#, 400),
        (r#"{"id":1,"method":"ping","params":{"#, 400),
        (&nested, 400),
        (&unclosed, 400),
        // An id of any size has one reading. No `params`, and such as name nothing, are the backend's to judge.
        (r#"{"id":123456789012345678901234567890,"method":"ping"}"#, 200),
        (r#"{"id":1.5e3,"method":"ping"}"#, 200),
        (r#"{"id":null,"method":"ping"}"#, 200),
        (r#"{"id":1,"method":"tools/call","params":null}"#, 200),
        (r#"{"id":1,"method":"tools/call","params":[]}"#, 200),
        (r#"{"id":1,"method":"tools/call","params":["a"]}"#, 200),
        (r#"{"id":1,"method":"tools/call","params":1}"#, 200),
    ];
    let mut served = 0;
    for (body, expected) in cases {
        let (status, answer) = text(front.ask(front.post(body)).await).await;
        assert_eq!(status, *expected, "{body:.100}: {answer}");
        served += usize::from(status == 200);
        assert_eq!(backend.calls(), served, "{body:.100}");
        assert!(status != 200 || backend.last().body() == body, "{body:.100}");
        // Of a modern request it must be clear what it is about.
        let mut modern = front.post(body);
        modern.headers_mut().insert("mcp-protocol-version", HeaderValue::from_static("2026-07-28"));
        let (status, answer) = text(front.ask(modern).await).await;
        let notifies = body.contains(r#""id":null"#);
        assert_eq!(status == 200, notifies, "{body:.100}: {answer}");
        served += usize::from(notifies);
        assert_eq!(backend.calls(), served, "{body:.100}");
    }
    assert_eq!(text(front.ask(front.post(PING)).await).await.0, 200);
}

/// No pattern is tried on it that would go over it again and again.
#[tokio::test]
async fn a_uri_with_many_commas_passes_at_once() {
    let backend = backend().await;
    let mut config = http_config(backend.port);
    config["limits"]["bodyBytes"] = 65_536.into();
    let front = Front::new(&config);
    let uri = format!("file:///{}", ",".repeat(10_000));
    let read = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":"{uri}"}}}}"#);
    let mut quickest = Duration::MAX;
    for number in 1..=20 {
        let begin = clock::instant();
        assert_eq!(text(front.ask(front.post(&read)).await).await.0, 200);
        quickest = quickest.min(begin.elapsed());
        assert_eq!((backend.calls(), backend.last().body().as_ref()), (number, read.as_bytes()));
    }
    assert!(quickest < Duration::from_millis(10), "{quickest:?}");
}

#[tokio::test]
async fn every_401_is_the_same() {
    let front = Front::new(&http_config(9));
    let expired = key(3);
    let past = "2026-01-02T00:00:00Z".parse().unwrap();
    front.keys.swap(&[(front.key.id(), &record(&front.key, None)), (expired.id(), &record(&expired, Some(past)))]);
    front.reloader().reload();
    let unknown = key(4);
    let mut answers = Vec::new();
    for credential in ["", "x", expired.expose(), unknown.expose(), "mk_short_x"] {
        let mut request = front.post(PING);
        request.headers_mut().remove("authorization");
        if !credential.is_empty() {
            request.headers_mut().insert("x-api-key", HeaderValue::try_from(credential).unwrap());
        }
        let (status, mut headers, body) = collect(front.ask(request).await).await;
        assert_eq!(status, 401);
        assert_eq!(headers["www-authenticate"], "Bearer");
        assert_eq!(headers["content-type"], "application/json");
        headers.remove("x-request-id");
        answers.push((headers, body));
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    insta::assert_snapshot!(String::from_utf8(answers[0].1.to_vec()).unwrap());
}

#[tokio::test]
async fn anonymous_is_served_but_a_wrong_key_is_not() {
    let backend = backend().await;
    let mut config = http_config(backend.port);
    config["security"]["anonymous"] = true.into();
    let front = Front::new(&config);
    let mut request = front.post(PING);
    request.headers_mut().remove("authorization");
    assert_eq!(text(front.ask(request).await).await.0, 200);
    let mut request = front.post(PING);
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer wrong"));
    assert_eq!(text(front.ask(request).await).await.0, 401);
    assert_eq!(backend.calls(), 1);
}

#[tokio::test]
async fn a_preflight_needs_no_key() {
    let front = Front::new(&http_config(9));
    let request = Request::options("/weather/mcp")
        .header("host", "mcp.example.com")
        .header("origin", "https://app.example.com")
        .header("access-control-request-method", "POST")
        .body(empty())
        .unwrap();
    let (status, headers, _) = collect(front.ask(request).await).await;
    assert_eq!(status, 204);
    assert_eq!(headers["access-control-allow-origin"], "https://app.example.com");
}

#[tokio::test]
async fn people_and_probes_are_answered_without_a_key() {
    let front = Front::new(&http_config(9));
    let request = |path: &str| Request::get(path).header("host", "mcp.example.com").body(empty()).unwrap();
    let response = front.ask(request("/weather")).await;
    assert_own(response.headers());
    let (status, hint) = text(response).await;
    assert_eq!(status, 200);
    assert!(hint.contains("/weather/mcp"), "{hint}");
    let probe = |path: &str| Request::get(path).body(empty()).unwrap();
    assert_eq!(text(front.ask(probe("/health")).await).await, (200, r#"{"status":"alive"}"#.into()));
    let not_ready = (503, r#"{"status":"not_ready","checks":{}}"#.into());
    assert_eq!(text(front.ask(probe("/health/ready")).await).await, not_ready);
}

#[tokio::test]
async fn without_a_configuration_nothing_is_served_but_health() {
    let front = Front::unchecked(&serde_json::json!({}));
    assert_eq!(text(front.ask(front.post(PING)).await).await.0, 503);
    let probe = Request::get("/health").body(empty()).unwrap();
    assert_eq!(text(front.ask(probe).await).await.0, 200);
    assert!(front.door.status().config_error.is_some());
}
