//! The HTTP side: the endpoint, a count of what came to it, and the early end of an answer that a tool asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use futures::StreamExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::handler::Handler;
use crate::shared::Shared;

/// Ends the answer to one request while its tool goes on, so that the client must come back for the rest
/// (SEP-1699). Every request carries one.
#[derive(Clone)]
pub(crate) struct HangUp(pub(crate) CancellationToken);

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let service: StreamableHttpService<Handler, LocalSessionManager> = StreamableHttpService::new(
        move || Ok(Handler::new(&shared)),
        Arc::default(),
        StreamableHttpServerConfig::default(),
    );
    let calls = Arc::<AtomicU64>::default();
    Router::new()
        .route_service("/mcp", service)
        .layer(from_fn_with_state(Arc::clone(&calls), pass))
        .route("/calls", get(async move || calls.load(Ordering::Relaxed).to_string()))
}

async fn pass(State(calls): State<Arc<AtomicU64>>, mut request: Request, next: Next) -> Response {
    calls.fetch_add(1, Ordering::Relaxed);
    let hang_up = CancellationToken::new();
    request.extensions_mut().insert(HangUp(hang_up.clone()));
    let response = next.run(request).await;
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(hang_up.cancelled_owned())))
}
