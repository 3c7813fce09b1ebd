//! Stands between a client and a server on loopback, passes on what comes, and writes down each request and what was answered. It judges nothing.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// One request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// HTTP method.
    pub method: Method,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; null where that is no JSON.
    pub message: Value,
    /// What was answered; absent while nothing is, and where the connection broke.
    pub status: Option<StatusCode>,
}

impl Seen {
    /// The method of the JSON-RPC message; empty where there is none.
    pub fn rpc(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// A header's value; empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A listener on a port of its own that leads to one address at a time. It ends when this handle is dropped.
pub struct Tap {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tap {
    /// Begins to listen.
    pub async fn start(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        // Each request has a connection of its own, so that none is written into one that is just being closed.
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        let target = Arc::new(Mutex::new(target));
        let pass = Pass { target: Arc::clone(&target), client, seen: Arc::clone(&seen) };
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let pass = pass.clone();
                let service = service_fn(move |request| pass.clone().on(request));
                let connection = hyper::server::conn::http1::Builder::new();
                connections.spawn(connection.serve_connection(TokioIo::new(stream), service));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, target, seen, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads to another address from the next request on.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// What came so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Clone)]
struct Pass {
    target: Arc<Mutex<SocketAddr>>,
    client: Client<HttpConnector, Full<Bytes>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Pass {
    async fn on(self, request: Request<Incoming>) -> Result<Response<Incoming>> {
        let (mut head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let message = serde_json::from_slice(&body).unwrap_or_default();
        let index = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(Seen { method: head.method.clone(), headers: head.headers.clone(), message, status: None });
            seen.len() - 1
        };
        let path = head.uri.path_and_query().context("a request has a path")?.clone();
        let target = *self.target.lock().unwrap_or_else(PoisonError::into_inner);
        head.uri = Uri::builder().scheme("http").authority(target.to_string()).path_and_query(path).build()?;
        let mut response = self.client.request(Request::from_parts(head, Full::new(body))).await?;
        if let Some(seen) = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get_mut(index) {
            seen.status = Some(response.status());
        }
        for of_one_connection in [CONNECTION, TRANSFER_ENCODING] {
            response.headers_mut().remove(of_one_connection);
        }
        Ok(response)
    }
}
