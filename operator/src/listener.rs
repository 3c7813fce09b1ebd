//! The operator's own listener: `/livez`, `/readyz`, `/metrics`. Nothing else, and nothing that needs a credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::metrics::Metrics;

/// How far the operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It asks for the API server.
    Starting,
    /// It waits for its CustomResourceDefinition.
    Undefined,
    /// Another operator leads: this one is ready to follow.
    Waiting,
    /// It leads, and reads what there is.
    Syncing,
    /// It works.
    Working,
    /// It stops.
    Stopping,
}

impl Phase {
    const fn text(self) -> &'static str {
        match self {
            Self::Starting => "waiting for the API server",
            Self::Undefined => {
                "waiting for the CustomResourceDefinition mcpservers.mooring.dev: install it with the chart, or with `mooring crd | kubectl apply -f -`"
            }
            Self::Waiting => "ready: another operator leads",
            Self::Syncing => "reading the cluster",
            Self::Working => "ready",
            Self::Stopping => "stopping",
        }
    }
}

/// How far the operator is, for all to see.
#[derive(Clone, Debug, Default)]
pub struct Progress(Arc<AtomicU8>);

impl Progress {
    /// The operator got further.
    pub fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    /// How far it is.
    pub fn get(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Undefined,
            2 => Phase::Waiting,
            3 => Phase::Syncing,
            4 => Phase::Working,
            _ => Phase::Stopping,
        }
    }
}

/// The routes.
pub fn router(progress: Progress, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/livez", get(|| async { "alive" }))
        .route("/readyz", get(readyz).with_state(progress))
        .route("/metrics", get(text).with_state(metrics))
}

async fn readyz(State(progress): State<Progress>) -> (StatusCode, &'static str) {
    let phase = progress.get();
    match phase {
        Phase::Waiting | Phase::Working => (StatusCode::OK, phase.text()),
        Phase::Starting | Phase::Undefined | Phase::Syncing | Phase::Stopping => {
            (StatusCode::SERVICE_UNAVAILABLE, phase.text())
        }
    }
}

async fn text(State(metrics): State<Arc<Metrics>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let open_metrics = accept.contains("application/openmetrics-text");
    let content_type = if open_metrics {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain; version=0.0.4; charset=utf-8"
    };
    match metrics.text(open_metrics) {
        Ok(text) => ([(header::CONTENT_TYPE, content_type)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(router: &Router, path: &str, accept: &str) -> (StatusCode, String) {
        let request = http::Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn ready_means_that_it_works_or_waits_for_the_lease() {
        let progress = Progress::default();
        let router = router(progress.clone(), Arc::default());
        for (phase, expected) in [
            (Phase::Starting, 503),
            (Phase::Waiting, 200),
            (Phase::Syncing, 503),
            (Phase::Working, 200),
            (Phase::Stopping, 503),
        ] {
            progress.set(phase);
            assert_eq!(ask(&router, "/readyz", "*/*").await.0, expected, "{phase:?}");
            assert_eq!(ask(&router, "/livez", "*/*").await.0, 200);
        }
    }

    #[tokio::test]
    async fn metrics_come_in_the_format_that_is_asked_for() {
        let router = router(Progress::default(), Arc::default());
        assert!(ask(&router, "/metrics", "application/openmetrics-text;version=1.0.0").await.1.ends_with("# EOF\n"));
        assert!(!ask(&router, "/metrics", "text/plain").await.1.contains("# EOF"));
    }
}
