//! The small HTTP API behind the tools that are served on standard streams: it tells whether a call that was cancelled has reached it, and has
//! ended here, too.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use mooring_tests::process::PATIENCE;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How far the call that never ends by itself has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endless {
    Awaited,
    Begun,
    Gone,
}

/// The API. It ends when this handle is dropped.
pub(crate) struct Api {
    port: u16,
    endless: watch::Sender<Endless>,
    _connections: JoinSet<()>,
}

/// Says that the call has gone, however it went.
struct Going(watch::Sender<Endless>);

impl Drop for Going {
    fn drop(&mut self) {
        self.0.send_replace(Endless::Gone);
    }
}

impl Api {
    /// Begins to listen.
    pub(crate) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let endless = watch::Sender::new(Endless::Awaited);
        let mut connections = JoinSet::new();
        let state = endless.clone();
        connections.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = state.clone();
                let service = service_fn(move |request| answer(state.clone(), request));
                connections
                    .spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { port, endless, _connections: connections })
    }

    /// The declared tools: `forecast`, `endless`, and `begun`, which is answered once a call of `endless` is here.
    pub(crate) fn tools(&self) -> Value {
        let tool = |name: &str, schema: Value, query: &str| {
            let url = format!("http://127.0.0.1:{}/{name}{query}", self.port);
            json!({"name": name, "inputSchema": schema, "http": {"url": url}})
        };
        let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        let nothing = json!({"type": "object"});
        json!([
            tool("forecast", city, "?city={city}"),
            tool("endless", nothing.clone(), ""),
            tool("begun", nothing, "")
        ])
    }

    /// Waits until the call of `endless` has gone.
    pub(crate) async fn gone(&self) -> Result<()> {
        let mut endless = self.endless.subscribe();
        let gone = endless.wait_for(|endless| *endless == Endless::Gone);
        tokio::time::timeout(PATIENCE, gone).await.context("the call that was cancelled goes on at the API")??;
        Ok(())
    }
}

async fn answer(
    endless: watch::Sender<Endless>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = match request.uri().path() {
        "/endless" => {
            endless.send_replace(Endless::Begun);
            let _going = Going(endless);
            std::future::pending().await
        }
        "/begun" => {
            let begun = endless.subscribe().wait_for(|endless| *endless != Endless::Awaited).await.is_ok();
            json!({"begun": begun})
        }
        _ => json!({"asked": request.uri().query()}),
    };
    let mut response = Response::new(Full::new(Bytes::from(text.to_string())));
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}
