//! The HTTP client of the APIs behind declared tools. Connections are pooled, but live idle for less time than servers
//! keep theirs (node and uvicorn close after 5 s), so that no request is written into a connection that is just being
//! closed. Only a request that never began is tried again.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// Client of the APIs behind declared tools.
pub type ApiClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

const IDLE: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(10);

/// The client, made when first needed: most front doors need none.
#[derive(Debug, Default)]
pub struct Clients {
    api: OnceLock<ApiClient>,
}

impl Clients {
    /// The client, with TLS.
    pub fn api(&self) -> Result<ApiClient, String> {
        if let Some(client) = self.api.get() {
            return Ok(client.clone());
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let make = || {
            let mut builder = Client::builder(TokioExecutor::new());
            builder.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new()).timer(TokioTimer::new()).build(https)
        };
        Ok(self.api.get_or_init(make).clone())
    }
}
