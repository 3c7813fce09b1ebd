//! The management listener.

use std::sync::Arc;

use http::{Request, StatusCode};
use mooring_contract::DoorStatus;
use tower::ServiceExt as _;

use super::front::{Front, http_config, text};
use crate::management::router;

async fn get(front: &Front, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String, String) {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(axum::body::Body::empty()).unwrap();
    let response = router(Arc::clone(&front.door)).oneshot(request).await.unwrap();
    let media_type = response.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, media_type.unwrap_or_default(), String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn status_needs_the_token() {
    let front = Front::new(&http_config(9));
    for header in ["", "Bearer ", "Bearer wrong", "Basic status-token-of-the-test", "status-token-of-the-test"] {
        assert_eq!(get(&front, "/status", &[("authorization", header)]).await.0, 401, "{header}");
    }
    assert_eq!(get(&front, "/status", &[]).await.0, 401);
    let (status, _, body) = get(&front, "/status", &[("authorization", "Bearer status-token-of-the-test")]).await;
    assert_eq!(status, 200);
    let status: DoorStatus = serde_json::from_str(&body).unwrap();
    assert_eq!(status, front.door.status());
    assert!(!status.ready && status.config_error.is_none() && status.keys_revision.len() == 16);
    // Without a token, nobody reads it.
    front.session.swap(&[("status-token", " \n")]);
    front.reloader().reload();
    assert_eq!(get(&front, "/status", &[("authorization", "Bearer ")]).await.0, 401);
}

#[tokio::test]
async fn metrics_come_in_both_formats_and_name_nobody() {
    let front = Front::new(&http_config(9));
    drop(front.ask(front.post(r#"{"jsonrpc":"2.0","id":1,"method":"secret/method"}"#)).await);
    drop(front.ask(front.bare("GET", "/weather/secret-path")).await);
    let (status, media_type, classic) = get(&front, "/metrics", &[]).await;
    assert_eq!((status.as_u16(), media_type.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    let accept = [("accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.1")];
    let (_, media_type, open) = get(&front, "/metrics", &accept).await;
    assert!(media_type.starts_with("application/openmetrics-text"));
    assert!(open.ends_with("# EOF\n"));
    for text in [&classic, &open] {
        for name in ["weather", "demo", "secret", "mcp.example.com", front.key.id()] {
            assert!(!text.contains(name), "{name} in {text}");
        }
    }
    let mut lines: Vec<_> = classic.lines().filter(|line| !line.starts_with('#')).collect();
    lines.sort_unstable();
    insta::assert_snapshot!(lines.join("\n"));
}

#[tokio::test]
async fn probes_are_answered() {
    let front = Front::new(&http_config(9));
    assert_eq!(get(&front, "/health", &[]).await.2, r#"{"status":"alive"}"#);
    assert_eq!(get(&front, "/health/ready", &[]).await.0, 503);
    assert_eq!(get(&front, "/mcp", &[]).await.0, 404);
    assert_eq!(text(front.ask(front.bare("GET", "/status")).await).await.0, 404);
}
