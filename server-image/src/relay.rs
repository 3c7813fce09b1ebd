//! The `http` backend: one exchange with the MCP server in the same pod. Bytes go both ways as they are; only headers
//! that belong to a connection, to the client's credential or to CORS are taken away. It decides nothing about policy.

use bytes::Bytes;
use http::header::{HOST, LOCATION};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use mooring_contract::config::HttpBackend;

use crate::body::{Body, BodyError};
use crate::headers::{self, Seen, to_backend, to_client};
use crate::location::{self, Inside, Public};
use crate::log::cause;
use crate::loopback::{Failure, FromBackend, Loopback, Writing};
use crate::refusal::Refusal;

/// Redirects within the backend that are followed (`/mcp` to `/mcp/`), before it counts as a loop.
const REDIRECTS: usize = 3;

/// The way to an MCP server on loopback.
#[derive(Debug)]
pub struct Relay {
    /// Port on loopback.
    pub port: u16,
    path: String,
    target: PathAndQuery,
    host: HeaderValue,
    loopback: Loopback,
}

/// What is sent.
#[derive(Debug)]
pub struct Outgoing {
    /// GET, POST or DELETE.
    pub method: Method,
    /// The client's query, passed on.
    pub query: Option<String>,
    /// The client's headers, as they came.
    pub headers: HeaderMap,
    /// The client's body, as it came.
    pub body: Bytes,
}

impl Relay {
    /// The relay to `backend`.
    pub fn new(backend: &HttpBackend) -> Result<Self, String> {
        let target: PathAndQuery = backend.path.parse().map_err(|_| format!("source.http.path: {:?}", backend.path))?;
        if target.query().is_some() || !backend.path.starts_with('/') {
            return Err(format!("source.http.path: {:?} must begin with / and have no query", backend.path));
        }
        let host = format!("localhost:{}", backend.port);
        Ok(Self {
            port: backend.port,
            path: backend.path.clone(),
            target,
            host: HeaderValue::try_from(host).map_err(|error| error.to_string())?,
            loopback: Loopback::new(backend.port),
        })
    }

    /// What it leads to.
    pub fn target(&self) -> (u16, &str) {
        (self.port, &self.path)
    }

    /// One exchange for a client.
    pub async fn exchange(&self, outgoing: &Outgoing, seen: &Seen) -> Result<Response<Body>, Refusal> {
        let target = match &outgoing.query {
            None => self.target.clone(),
            Some(query) => parsed(&format!("{}?{query}", self.path))?,
        };
        self.exchange_with(target, outgoing, seen).await
    }

    /// One exchange for a client, at another path and query of the backend.
    pub async fn exchange_at(&self, target: &str, outgoing: &Outgoing, seen: &Seen) -> Result<Response<Body>, Refusal> {
        self.exchange_with(parsed(target)?, outgoing, seen).await
    }

    async fn exchange_with(
        &self,
        target: PathAndQuery,
        outgoing: &Outgoing,
        seen: &Seen,
    ) -> Result<Response<Body>, Refusal> {
        let Outgoing { method, headers, body, .. } = outgoing;
        let head = |writing: &mut Writing| {
            to_backend(headers, &self.host, seen, |name, value| writing.header(name, value));
        };
        let mut response = self.send(method, target, head, body, Some(headers::public(headers, seen))).await?;
        to_client(response.headers_mut());
        Ok(response.map(|body| body.map_err(BodyError::from).boxed_unsync()))
    }

    /// One exchange of the front door's own.
    pub async fn own(&self, method: Method, headers: HeaderMap, body: Bytes) -> Result<Response<FromBackend>, Refusal> {
        self.own_with(self.target.clone(), method, headers, body).await
    }

    /// One exchange of the front door's own, at another path and query of the backend.
    pub async fn own_at(
        &self,
        target: &str,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<FromBackend>, Refusal> {
        self.own_with(parsed(target)?, method, headers, body).await
    }

    async fn own_with(
        &self,
        target: PathAndQuery,
        method: Method,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<FromBackend>, Refusal> {
        headers.insert(HOST, self.host.clone());
        let head =
            |writing: &mut Writing| headers.iter().for_each(|(name, value)| writing.header(name, value.as_bytes()));
        self.send(&method, target, head, &body, None).await
    }

    /// The target that a reference in the backend's answer to a GET means, if it leads to the backend itself. `public` is
    /// what the backend was told of its client.
    pub fn resolve(&self, reference: &str, public: Option<Public<'_>>) -> Option<String> {
        let inside = Inside { port: self.port, public };
        location::target(reference, &self.target, &inside).map(|target| target.to_string())
    }

    /// Sends headers as `head` writes them, once for each redirect that is followed.
    async fn send(
        &self,
        method: &Method,
        mut target: PathAndQuery,
        head: impl Fn(&mut Writing),
        body: &Bytes,
        public: Option<Public<'_>>,
    ) -> Result<Response<FromBackend>, Refusal> {
        let inside = Inside { port: self.port, public };
        for _ in 0..=REDIRECTS {
            let mut writing = Writing::new(method, &target);
            head(&mut writing);
            let response = self.loopback.exchange(&writing.body(body.clone())).await.map_err(|failure| {
                tracing::info!(error = %failure, cause = cause(&failure), "exchange with the backend failed");
                match failure {
                    Failure::Away(_) => Refusal::BackendAway,
                    Failure::Broken(_) => Refusal::BackendBroken,
                }
            })?;
            match redirect(method, &target, &response, &inside) {
                None => return Ok(response),
                Some(next) => target = next?,
            }
        }
        Err(Refusal::BackendRedirects)
    }
}

/// Where a redirect leads, if it is one: to another target of the backend, or nowhere.
fn redirect(
    method: &Method,
    target: &PathAndQuery,
    response: &Response<FromBackend>,
    inside: &Inside<'_>,
) -> Option<Result<PathAndQuery, Refusal>> {
    let keeps_method = match response.status() {
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => *method != Method::POST,
        StatusCode::SEE_OTHER => *method == Method::GET,
        StatusCode::NOT_MODIFIED => return None, // it leads nowhere
        other if other.is_redirection() => false,
        _ => return None,
    };
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    let next = location.and_then(|location| location::target(location, target, inside));
    Some(next.filter(|_| keeps_method).ok_or(Refusal::BackendRedirects))
}

/// The target of a request, in origin form.
fn parsed(target: &str) -> Result<PathAndQuery, Refusal> {
    target.parse().map_err(|_| Refusal::NotMessage("the query cannot be passed on".into()))
}
