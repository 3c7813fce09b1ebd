//! The HTTP clients: one for the backend in the pod, one for the APIs of declared tools. Connections are pooled, but
//! live idle for less time than servers keep theirs (node and uvicorn close after 5 s), so that no request is written
//! into a connection that is just being closed. Only a request that never began is tried again.

use std::future::{Ready, ready};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// Client of the backend in the pod.
pub type LoopbackClient = Client<HttpConnector<Loopback>, Full<Bytes>>;
/// Client of the APIs behind declared tools.
pub type ApiClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

const IDLE: Duration = Duration::from_secs(2);
const LOOPBACK_CONNECT: Duration = Duration::from_secs(2);
const API_CONNECT: Duration = Duration::from_secs(10);

/// Both clients, made when first needed: most front doors need one.
#[derive(Debug, Default)]
pub struct Clients {
    loopback: OnceLock<LoopbackClient>,
    api: OnceLock<ApiClient>,
}

impl Clients {
    /// The client of the backend.
    pub fn loopback(&self) -> LoopbackClient {
        let make = || {
            let mut connector = HttpConnector::new_with_resolver(Loopback);
            connector.set_nodelay(true);
            connector.set_connect_timeout(Some(LOOPBACK_CONNECT));
            builder().build(connector)
        };
        self.loopback.get_or_init(make).clone()
    }

    /// The client of APIs, with TLS.
    pub fn api(&self) -> Result<ApiClient, String> {
        if let Some(client) = self.api.get() {
            return Ok(client.clone());
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(API_CONNECT));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(self.api.get_or_init(|| builder().build(https)).clone())
    }
}

fn builder() -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new()).timer(TokioTimer::new());
    builder
}

/// Resolves every name to loopback: IPv4 first, IPv6 for servers that bind `localhost` and got `::1` alone.
#[derive(Clone, Copy, Debug)]
pub struct Loopback;

/// The loopback addresses, in the order in which they are tried.
pub const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

impl tower::Service<Name> for Loopback {
    type Response = std::array::IntoIter<SocketAddr, 2>;
    type Error = std::convert::Infallible;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Name) -> Self::Future {
        ready(Ok(LOOPBACK.map(|address| SocketAddr::new(address, 0)).into_iter()))
    }
}
