//! `GET /health` and `GET /health/ready`: for probes, so without key and Host. They say nothing but alive and ready.

use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use crate::body::Body;
use crate::door::Door;
use crate::refusal::{Refusal, Waiting, json};
use crate::route;
use crate::rules::Rules;

/// The answer, if the request asks for health.
pub fn answer(door: &Door, rules: Option<&Rules>, parts: &Parts) -> Option<Response<Body>> {
    let question = route::health(rules.map(|rules| &rules.paths), parts.uri.path())?;
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Some(Refusal::MethodNotAllowed { allow: "GET, HEAD" }.into_response(&Waiting::Nobody));
    }
    let (status, text) = if question == "/health" { alive() } else { ready(door) };
    let mut response = json(status, text.to_owned());
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}

/// Liveness does not depend on the backend: restarting the front door does not heal it.
pub fn alive() -> (StatusCode, &'static str) {
    (StatusCode::OK, r#"{"status":"alive"}"#)
}

/// Ready once the backend answered a handshake and as long as it can be reached.
pub fn ready(door: &Door) -> (StatusCode, &'static str) {
    if door.is_ready() {
        (StatusCode::OK, r#"{"status":"ready","checks":{}}"#)
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"not_ready","checks":{}}"#)
    }
}
