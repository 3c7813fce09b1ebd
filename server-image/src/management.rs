//! The management listener: probes, metrics, and `/status` for the operator. It has its own socket, so that probes are
//! answered while the public one is busy.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use tokio::runtime::Handle;

use crate::door::Door;
use crate::headers;
use crate::health;

/// All routes.
pub fn router(door: Arc<Door>) -> Router {
    Router::new()
        .route("/health", get(async || json(health::alive())))
        .route("/health/ready", get(async |State(door): State<Arc<Door>>| json(health::ready(&door))))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .with_state(door)
}

fn json((status, text): (StatusCode, &'static str)) -> impl IntoResponse {
    (status, [(CONTENT_TYPE, "application/json")], text)
}

async fn metrics(State(door): State<Arc<Door>>, headers: HeaderMap) -> Response {
    let open_metrics = headers::asks(&headers, "application/openmetrics-text");
    door.metrics.tasks(Handle::current().metrics().num_alive_tasks());
    match door.metrics.text(open_metrics) {
        Ok((media_type, text)) => ([(CONTENT_TYPE, media_type)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn status(State(door): State<Arc<Door>>, headers: HeaderMap) -> Response {
    let presented = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let presented = presented.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default().trim();
    if door.admits(presented) {
        Json(door.status()).into_response()
    } else {
        (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response()
    }
}
