//! A proxy on loopback that adds a key and changes nothing else, for clients that cannot present one: the conformance
//! suite has no option for a header. `Host` stays as the client wrote it, and every request goes over a connection of
//! its own, which ends when either side leaves.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A running shim. It ends when this handle is dropped.
pub struct KeyShim {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl KeyShim {
    /// Listens on loopback and leads to `target`, with this key in `Authorization` where there is one.
    pub async fn start(target: SocketAddr, key: Option<&str>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let key = key.map(|key| format!("Bearer {key}").parse()).transpose().context("the key is no header value")?;
        Ok(Self { address, task: tokio::spawn(accept(listener, target, key)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for KeyShim {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, key: Option<http::HeaderValue>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let key = key.clone();
        connections.spawn(async move {
            let service = service_fn(|request| pass(target, key.clone(), request));
            // How a connection ends is for the client to see.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(
    target: SocketAddr,
    key: Option<http::HeaderValue>,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>()?;
    if let Some(key) = key {
        request.headers_mut().insert(http::header::AUTHORIZATION, key);
    }
    let stream = TcpStream::connect(target).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer, or with the client that no longer wants it.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}
