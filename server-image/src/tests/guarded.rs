//! Host and Origin, case by case as attackers have tried them, over a socket: what is answered, and that the backend was
//! called by nobody who was refused.

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::backend::{Backend, endless};
use super::front::{Front, http_config};
use crate::refusal::json as json_answer;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const GOOD: &str = "Host: mcp.example.com";

/// A backend that, like the reference server, lets every page read its answers.
async fn open_backend() -> Backend {
    Backend::start(|_| async {
        let mut response = json_answer(StatusCode::OK, "{}".into());
        for (name, value) in [("access-control-allow-origin", "*"), ("access-control-expose-headers", "*")] {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    })
    .await
}

fn guarded(port: u16, limits: &Value) -> Front {
    let mut config = http_config(port);
    config["limits"] = limits.clone();
    config["security"]["hosts"] = json!(["mcp.example.com", "weather", "weather.demo.svc.cluster.local"]);
    config["security"]["allowedHosts"] = json!(["10.0.0.5:8443", "mcp.internal:*", "[2001:db8::1]:443"]);
    Front::new(&config)
}

/// Request line without version, header lines, expected status. Every request has a valid key and a JSON body.
const CASES: &[(&str, &[&str], u16)] = &[
    // The names that are ours, in every spelling that means the same.
    ("POST /weather/mcp", &["Host: mcp.example.com"], 200),
    ("POST /weather/mcp", &["host: MCP.Example.COM:8443"], 200),
    ("POST /weather/mcp", &["Host: weather"], 200),
    ("POST /weather/mcp", &["Host: weather.demo.svc.cluster.local:80"], 200),
    ("POST /weather/mcp", &["Host: 10.0.0.5:8443"], 200),
    ("POST /weather/mcp", &["Host: mcp.internal"], 200),
    ("POST /weather/mcp", &["Host: mcp.internal:12345"], 200),
    ("POST /weather/mcp", &["Host: [2001:DB8:0::1]:443"], 200),
    ("POST /weather/mcp", &["Host: localhost:24080"], 200),
    ("POST /weather/mcp", &["Host: 127.0.0.1"], 200),
    ("POST /weather/mcp", &["Host: [::1]:24080"], 200),
    ("POST http://mcp.example.com/weather/mcp", &["Host: mcp.example.com"], 200),
    // DNS rebinding.
    ("POST /weather/mcp", &["Host: evil.example.com"], 421),
    ("POST /weather/mcp", &["Host: evil.example.com", "Origin: http://evil.example.com"], 421),
    ("POST /weather/mcp", &["Host: evil.example.com:80"], 421),
    ("POST /weather/mcp", &["Host: mcp.example.com."], 421),
    ("POST /weather/mcp", &["Host: localhost."], 421),
    ("POST /weather/mcp", &["Host: [2001:db8::1]"], 421),
    ("POST /weather/mcp", &["Host: [2001:db8::2]:443"], 421),
    ("POST /weather/mcp", &["Host: [::ffff:127.0.0.1]"], 421),
    ("POST /weather/mcp", &["Host: 10.0.0.5"], 421),
    ("POST /weather/mcp", &["Host: 10.0.0.5:80"], 421),
    ("POST /weather/mcp", &["Host: 0.0.0.0:24080"], 421),
    ("POST http://evil.example.com/weather/mcp", &["Host: evil.example.com"], 421),
    // Prefix and suffix tricks.
    ("POST /weather/mcp", &["Host: mcp.example.com.evil.com"], 421),
    ("POST /weather/mcp", &["Host: evilmcp.example.com"], 421),
    ("POST /weather/mcp", &["Host: mcp.internal.evil.com:80"], 421),
    ("POST /weather/mcp", &["Host: mcp.internal:80.evil.com"], 400),
    ("POST /weather/mcp", &["Host: mcp.example.com:80.evil.com"], 400),
    ("POST /weather/mcp", &["Host: mcp.internal:*"], 400),
    // Malformed, missing, ambiguous.
    ("POST /weather/mcp", &[], 400),
    ("POST /weather/mcp", &["Host:"], 400),
    ("POST /weather/mcp", &["Host: user@mcp.example.com"], 400),
    ("POST /weather/mcp", &["Host: mcp.example.com@evil.com"], 400),
    ("POST /weather/mcp", &["Host: mcp.example.com/"], 400),
    ("POST /weather/mcp", &["Host: http://mcp.example.com"], 400),
    ("POST /weather/mcp", &["Host: mcp.example.com:"], 400),
    ("POST /weather/mcp", &["Host: mcp.example.com:99999"], 400),
    ("POST /weather/mcp", &["Host: mcp%2eexample.com"], 400),
    ("POST /weather/mcp", &["Host: ::1"], 400),
    ("POST /weather/mcp", &["Host: [::1"], 400),
    ("POST /weather/mcp", &["Host: mcp.example.com, evil.example.com"], 400),
    ("POST /weather/mcp", &["Host: mcp.example.com", "Host: mcp.example.com"], 400),
    ("POST /weather/mcp", &["Host: mcp.example.com", "Host: evil.example.com"], 400),
    ("POST http://evil.example.com/weather/mcp", &[GOOD], 400),
    ("POST http://mcp.example.com/weather/mcp", &["Host: evil.example.com"], 400),
    ("POST http://user@mcp.example.com/weather/mcp", &[GOOD], 400),
    // What others say of the Host counts for nothing.
    ("POST /weather/mcp", &["Host: evil.example.com", "X-Forwarded-Host: mcp.example.com"], 421),
    ("POST /weather/mcp", &["Host: evil.example.com", "Forwarded: host=mcp.example.com"], 421),
    ("POST /weather/mcp", &["Host: evil.example.com", "mcp-init-host: mcp.example.com"], 421),
    // Pages.
    ("POST /weather/mcp", &[GOOD, "Origin: https://app.example.com"], 200),
    ("POST /weather/mcp", &[GOOD, "Origin: https://mcp.example.com"], 200),
    ("POST /weather/mcp", &[GOOD, "Origin: https://evil.example.com"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: http://app.example.com"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: https://app.example.com:444"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: https://app.example.com."], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: https://app.example.com.evil.com"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: https://evil.com#https://app.example.com"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: null"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: *"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin:"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: https://app.example.com", "Origin: https://evil.example.com"], 403),
    // A form of a foreign page needs no preflight; one of an allowed page is still no JSON.
    ("POST /weather/mcp", &[GOOD, "Origin: https://evil.example.com", "Content-Type: text/plain"], 403),
    ("POST /weather/mcp", &[GOOD, "Origin: https://app.example.com", "Content-Type: text/plain"], 415),
    ("POST /weather/mcp", &[GOOD, "Content-Type: text/plain"], 415),
    // The same gate stands before every path and method.
    ("GET /weather", &["Host: evil.example.com"], 421),
    ("GET /weather/mcp", &[GOOD, "Origin: https://evil.example.com"], 403),
    ("DELETE /weather/mcp", &[GOOD, "Origin: https://evil.example.com"], 403),
    ("GET /.well-known/oauth-protected-resource", &["Host: evil.example.com"], 421),
    ("POST /weather/nothing", &["Host: evil.example.com"], 421),
    ("POST /weather/nothing", &[GOOD, "Origin: https://evil.example.com"], 403),
    // Preflights.
    ("OPTIONS /weather/mcp", &[GOOD, "Origin: https://app.example.com", "Access-Control-Request-Method: POST"], 204),
    ("OPTIONS /weather/mcp", &[GOOD, "Origin: https://evil.example.com", "Access-Control-Request-Method: POST"], 403),
    ("OPTIONS /weather/mcp", &[GOOD, "Origin: null", "Access-Control-Request-Method: POST"], 403),
    (
        "OPTIONS /weather/mcp",
        &["Host: evil.example.com", "Origin: http://evil.example.com", "Access-Control-Request-Method: POST"],
        421,
    ),
];

#[tokio::test]
async fn every_case_is_answered_and_no_refused_one_is_forwarded() {
    let backend = open_backend().await;
    let front = guarded(backend.port, &json!({}));
    let address = front.listen().await;
    let mut served = 0;
    for (target, lines, expected) in CASES {
        let has_type = lines.iter().any(|line| line.starts_with("Content-Type"));
        let content_type = if has_type { "" } else { "Content-Type: application/json\r\n" };
        let lines: String = lines.iter().flat_map(|line| [*line, "\r\n"]).collect();
        let request = format!(
            "{target} HTTP/1.1\r\n{lines}{content_type}x-api-key: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{PING}",
            front.key.expose(),
            PING.len()
        );
        let answer = front.raw(address, request.as_bytes()).await;
        assert_eq!(answer.split(' ').nth(1), Some(&*expected.to_string()), "{request}\n{answer}");
        served += usize::from(*expected == 200);
        assert_eq!(backend.calls(), served, "{request}");
        // A page that was refused reads nothing, and the backend's word for it counts for nothing.
        let readable = answer.contains("access-control-");
        let page = lines.contains("Origin: https://app.example.com\r\n");
        let may = page && !matches!(expected, 403 | 421);
        assert_eq!(readable, may, "{request}\n{answer}");
        assert!(!answer.contains("access-control-allow-origin: *"), "{answer}");
    }
}

#[tokio::test]
async fn http_2_is_held_to_its_authority() {
    let backend = open_backend().await;
    let front = guarded(backend.port, &json!({}));
    let stream = TcpStream::connect(front.listen().await).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    front.run(async move {
        let _ = connection.await;
    });
    let mut served = 0;
    for (authority, host, origin, expected) in [
        ("mcp.example.com", None, None, 200),
        ("MCP.example.com:8443", None, None, 200),
        ("[::1]:24080", None, None, 200),
        ("mcp.example.com", Some("mcp.example.com"), None, 200),
        ("mcp.example.com", None, Some("https://mcp.example.com"), 200),
        ("mcp.example.com", None, Some("https://evil.example.com"), 403),
        ("evil.example.com", None, None, 421),
        ("evil.example.com", None, Some("http://evil.example.com"), 421),
        ("mcp.example.com.", None, None, 421),
        ("user@mcp.example.com", None, None, 400),
        ("evil.example.com", Some("mcp.example.com"), None, 400),
        ("mcp.example.com", Some("evil.example.com"), None, 400),
        ("mcp.example.com", Some("mcp.example.com:443"), None, 400),
    ] {
        let mut request = Request::post(format!("http://{authority}/weather/mcp"))
            .version(Version::HTTP_2)
            .header("x-api-key", front.key.expose())
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(PING)))
            .unwrap();
        for (name, value) in [("host", host), ("origin", origin)] {
            if let Some(value) = value {
                request.headers_mut().insert(name, value.parse().unwrap());
            }
        }
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), expected, "{authority} {host:?} {origin:?}");
        let _ = response.into_body().collect().await.unwrap();
        served += usize::from(expected == 200);
        assert_eq!(backend.calls(), served, "{authority} {host:?} {origin:?}");
    }
}

/// Without a key too, and whatever becomes of the request.
#[tokio::test]
async fn a_page_that_may_read_can_read_refusals_and_failures() {
    let backend = Backend::start(|request| async move {
        if request.uri().query() == Some("silence") {
            return std::future::pending().await;
        }
        let mut response = json_answer(StatusCode::TEMPORARY_REDIRECT, String::new());
        response.headers_mut().insert("location", HeaderValue::from_static("http://evil.example.com/mcp"));
        response
    })
    .await;
    let limits = json!({"bodyBytes": 4096, "callTimeoutMs": 1000, "streamsPerPrincipal": 1});
    let listening = Backend::start(|_| async { endless("data: 1\n\n") }).await;
    let (away, failing) = (guarded(9, &limits), guarded(backend.port, &limits));
    let taken = guarded(listening.port, &limits);
    let _stream = taken.ask(taken.bare("GET", "/weather/mcp")).await;
    let large = format!("\"{}\"", "a".repeat(8 * 1024));
    for (case, expected) in [
        ("malformed", 400),
        ("key", 401),
        ("path", 404),
        ("method", 405),
        ("size", 413),
        ("type", 415),
        ("streams", 429),
        ("redirect", 502),
        ("away", 503),
        ("connections", 503),
        ("silence", 504),
    ] {
        let front = match case {
            "redirect" | "silence" => &failing,
            "streams" => &taken,
            _ => &away,
        };
        let mut request = match case {
            "malformed" => front.post("{"),
            "size" => front.post(&large),
            "method" => front.bare("PUT", "/weather/mcp"),
            "streams" => front.bare("GET", "/weather/mcp"),
            _ => front.post(PING),
        };
        match case {
            "key" => drop(request.headers_mut().remove("authorization")),
            "type" => drop(request.headers_mut().remove("content-type")),
            "path" => *request.uri_mut() = Uri::from_static("/weather/sse-of-old"),
            "silence" => *request.uri_mut() = Uri::from_static("/weather/mcp?silence"),
            _ => {}
        }
        request.headers_mut().insert("origin", HeaderValue::from_static("https://app.example.com"));
        let response = front.ask_over(request, case == "connections").await;
        assert_eq!(response.status(), expected, "{case}");
        assert_eq!(response.headers().contains_key("retry-after"), matches!(expected, 429 | 503), "{case}");
        assert_eq!(response.headers()["access-control-allow-origin"], "https://app.example.com", "{case}");
        assert!(response.headers().get_all("vary").iter().any(|value| value == "Origin"), "{case}");
        let exposed = response.headers()["access-control-expose-headers"].to_str().unwrap();
        assert!(exposed.contains("WWW-Authenticate") && exposed.contains("Retry-After"), "{exposed}");
    }
}

/// Whose page calls is not looked at before it is a request at all.
#[tokio::test]
async fn no_page_reads_why_it_was_no_request() {
    let front = guarded(9, &json!({"uriBytes": 256, "headerBytes": 1024}));
    let address = front.listen().await;
    let long = "a".repeat(1024);
    for (target, line, expected) in [
        (format!("/weather/mcp?{long}"), "X: a".to_owned(), 414),
        ("/weather/mcp".into(), format!("X: {long}"), 431),
        ("/weather/mcp".into(), "X : a".into(), 400),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\n{GOOD}\r\nOrigin: https://app.example.com\r\n{line}\r\n\r\n");
        let answer = front.raw(address, head.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{answer}");
        assert!(!answer.contains("access-control-"), "{answer}");
    }
}
