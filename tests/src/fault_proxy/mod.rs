//! A proxy between the operator and the API server that does to requests what networks, API servers and crashes do: plain HTTP/1.1 on loopback in
//! front, TLS behind. It records every request, and breaks those that a rule names.
//!
//! It never drops or reorders single events of a healthy watch, because no API server does: a fault that it shows can happen.

mod flow;
mod request;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use flow::{Flow, Stream};
pub use request::Request;

type Body = UnsyncBoxBody<Bytes, anyhow::Error>;
type Matcher = Arc<dyn Fn(&Request) -> bool + Send + Sync>;
type Kill = Arc<dyn Fn() + Send + Sync>;

/// What is done to a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The operator is killed and the request never reaches the API server.
    KillBefore,
    /// The API server does what is asked, and the operator is killed before it learns of it.
    KillAfter,
    /// The API server does what is asked, and the connection is closed without an answer.
    LoseAnswer,
    /// The connection is closed and the request never reaches the API server.
    Reset,
    /// No answer ever comes.
    Hang,
    /// The request is answered with a status and never reaches the API server.
    Answer(Refusal),
    /// A watch begins with an event that says 410, inside a 200, as API servers do.
    WatchGone,
}

/// An answer of an API server that refuses.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `reason` of the Status object.
    pub reason: &'static str,
    /// Seconds of `Retry-After`.
    pub retry_after: Option<u32>,
}

impl Refusal {
    /// With the reason that an API server gives with this status.
    pub fn new(code: u16) -> Self {
        let reason = match code {
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            409 => "Conflict",
            410 => "Expired",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        Self { code, reason, retry_after: (code == 429).then_some(1) }
    }

    fn status(&self) -> Bytes {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": self.reason, "code": self.code,
            "message": format!("made by the fault proxy: {}", self.reason),
        });
        status.to_string().into()
    }
}

/// One request as the proxy saw it.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was asked.
    pub request: Request,
    /// When it came.
    pub at: Instant,
    /// What was answered; absent while it is in flight, and where no answer was given.
    pub code: Option<u16>,
}

struct Rule {
    matches: Matcher,
    skip: usize,
    times: usize,
    fault: Fault,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    records: Vec<Record>,
    streams: Vec<Arc<Stream>>,
    held: Vec<(u64, Matcher)>,
    kill: Option<Kill>,
    fired: usize,
    holds: u64,
}

struct Shared {
    state: Mutex<State>,
    client: Client<hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>, Full<Bytes>>,
    upstream: http::Uri,
    token: Option<HeaderValue>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running proxy. It ends when this handle is dropped.
pub struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy to the cluster of a kubeconfig. With a token, every request is made as the token's owner, else as
    /// the kubeconfig's user.
    pub async fn start(kubeconfig: &Path, token: Option<&str>) -> Result<Self> {
        let mut config =
            kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default())
                .await?;
        if token.is_some() {
            config.auth_info = kube::config::AuthInfo::default();
        }
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose()?;
        let client = Client::builder(TokioExecutor::new()).build(config.rustls_https_connector()?);
        let upstream = config.cluster_url;
        let shared = Arc::new(Shared { state: Mutex::default(), client, upstream, token });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { shared, address, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Writes a kubeconfig that leads here, without any credential.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<()> {
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "proxy"}}],
        });
        std::fs::write(path, text.to_string()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Says how the operator is killed, for [`Fault::KillBefore`] and [`Fault::KillAfter`].
    pub fn victim(&self, kill: impl Fn() + Send + Sync + 'static) {
        self.shared.state().kill = Some(Arc::new(kill));
    }

    /// Does `fault` to `times` requests that match, after `skip` of them passed. The first rule that takes a request decides.
    pub fn inject(
        &self,
        fault: Fault,
        skip: usize,
        times: usize,
        matches: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) {
        self.shared.state().rules.push(Rule { matches: Arc::new(matches), skip, times, fault });
    }

    /// Forgets every rule and returns how many requests were broken since the last call.
    pub fn clear(&self) -> usize {
        let mut state = self.shared.state();
        state.rules.clear();
        std::mem::take(&mut state.fired)
    }

    /// How many requests were broken since the last [`FaultProxy::clear`].
    pub fn fired(&self) -> usize {
        self.shared.state().fired
    }

    /// Delays every event of matching watches, those that begin now too, until the handle is dropped. Nothing is lost.
    pub fn hold(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Hold {
        let mut state = self.shared.state();
        state.holds += 1;
        let (id, matches): (u64, Matcher) = (state.holds, Arc::new(matches));
        state.set(&matches, Flow::Held);
        state.held.push((id, Arc::clone(&matches)));
        Hold { shared: Arc::clone(&self.shared), id, matches }
    }

    /// Lets running watches that match go silent for ever, without an end; new ones work. Returns how many.
    pub fn hang(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> usize {
        let matches: Matcher = Arc::new(matches);
        self.shared.state().set(&matches, Flow::Hung)
    }

    /// Breaks the connections of running watches that match. Returns how many.
    pub fn cut(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> usize {
        let matches: Matcher = Arc::new(matches);
        self.shared.state().set(&matches, Flow::Cut)
    }

    /// Ends running watches that match, as an API server does after some minutes. Returns how many.
    pub fn end(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> usize {
        let matches: Matcher = Arc::new(matches);
        self.shared.state().set(&matches, Flow::Ended)
    }

    /// How many requests came so far; a mark for [`FaultProxy::since`].
    pub fn mark(&self) -> usize {
        self.shared.state().records.len()
    }

    /// Every request since a mark.
    pub fn since(&self, mark: usize) -> Vec<Record> {
        self.shared.state().records.iter().skip(mark).cloned().collect()
    }

    /// The counted writes since a mark, as `verb target`.
    pub fn writes(&self, mark: usize) -> Vec<String> {
        let records = self.since(mark);
        records
            .iter()
            .map(|r| &r.request)
            .filter(|r| r.is_counted())
            .map(|r| format!("{} {}", r.verb, r.target()))
            .collect()
    }

    /// For how long no request but watches, Leases and Events was begun or in flight.
    pub fn idle(&self) -> Duration {
        let state = self.shared.state();
        let quiet = |record: &&Record| {
            record.request.verb != "watch" && !["leases", "events"].contains(&record.request.resource.as_str())
        };
        state.records.iter().rev().find(quiet).map_or(Duration::MAX, |last| last.at.elapsed())
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches that wait; see [`FaultProxy::hold`].
pub struct Hold {
    shared: Arc<Shared>,
    id: u64,
    matches: Matcher,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.held.retain(|(id, _)| *id != self.id);
        state.set(&self.matches, Flow::Open);
    }
}

impl State {
    fn set(&mut self, matches: &Matcher, flow: Flow) -> usize {
        self.streams.retain(|stream| stream.is_running());
        self.streams.iter().filter(|stream| matches(&stream.request) && stream.set(flow)).count()
    }

    /// The fault for this request, if a rule takes it.
    fn judge(&mut self, request: &Request) -> Option<Fault> {
        for rule in self.rules.iter_mut().filter(|rule| rule.times > 0) {
            if !(rule.matches)(request) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            return Some(rule.fault.clone());
        }
        None
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| serve(&shared, request));
            // A connection that ends with an error is what some faults are; others are the operator's to notice.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(shared: &Shared, request: http::Request<Incoming>) -> Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let understood = Request::new(&parts.method, &parts.uri, body.clone());
    let (index, fault) = {
        let mut state = shared.state();
        let fault = state.judge(&understood);
        state.records.push(Record { request: understood.clone(), at: Instant::now(), code: None });
        (state.records.len() - 1, fault)
    };
    // Counted once it is done: whoever starts a new operator then does not see it killed.
    let fired = || shared.state().fired += 1;
    let answered = |code: StatusCode| {
        if let Some(record) = shared.state().records.get_mut(index) {
            record.code = Some(code.as_u16());
        }
    };
    match fault {
        Some(Fault::KillBefore) => {
            kill(shared);
            fired();
            return Err(anyhow!("killed before"));
        }
        Some(Fault::Reset) => {
            fired();
            return Err(anyhow!("reset"));
        }
        Some(Fault::Hang) => {
            fired();
            std::future::pending::<()>().await;
        }
        Some(Fault::Answer(refusal)) => {
            fired();
            let mut answer = Response::builder().status(refusal.code).header(header::CONTENT_TYPE, "application/json");
            if let Some(seconds) = refusal.retry_after {
                answer = answer.header(header::RETRY_AFTER, seconds);
            }
            answered(StatusCode::from_u16(refusal.code)?);
            return Ok(answer.body(whole(refusal.status()))?);
        }
        Some(Fault::WatchGone) => {
            fired();
            let event = [br#"{"type":"ERROR","object":"#.as_slice(), &Refusal::new(410).status(), b"}\n"].concat();
            answered(StatusCode::OK);
            return Ok(Response::builder()
                .header(header::CONTENT_TYPE, "application/json")
                .body(whole(event.into()))?);
        }
        Some(Fault::KillAfter | Fault::LoseAnswer) | None => {}
    }
    let response = shared.client.request(forwarded(shared, parts, body)?).await?;
    match fault {
        Some(Fault::KillAfter) => {
            response.into_body().collect().await?; // committed
            kill(shared);
            fired();
            return Err(anyhow!("killed after"));
        }
        Some(Fault::LoseAnswer) => {
            response.into_body().collect().await?;
            fired();
            return Err(anyhow!("answer lost"));
        }
        _ => {}
    }
    answered(response.status());
    let watch = understood.verb == "watch" && response.status().is_success();
    Ok(response
        .map(|body| if watch { watched(shared, understood, body) } else { body.map_err(Into::into).boxed_unsync() }))
}

/// Puts a watch under the control of the handle.
fn watched(shared: &Shared, request: Request, body: Incoming) -> Body {
    let mut state = shared.state();
    let held = state.held.iter().any(|(_, matches)| matches(&request));
    let (stream, body) = flow::body(request, body, if held { Flow::Held } else { Flow::Open });
    state.streams.push(stream);
    body
}

fn forwarded(shared: &Shared, parts: http::request::Parts, body: Bytes) -> Result<http::Request<Full<Bytes>>> {
    let mut uri = shared.upstream.clone().into_parts();
    uri.path_and_query = parts.uri.path_and_query().cloned();
    let mut request = http::Request::new(Full::new(body));
    *request.method_mut() = parts.method;
    *request.uri_mut() = http::Uri::from_parts(uri)?;
    *request.headers_mut() = parts.headers;
    for hop in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        request.headers_mut().remove(hop);
    }
    if let Some(token) = &shared.token {
        request.headers_mut().insert(header::AUTHORIZATION, token.clone());
    }
    Ok(request)
}

fn kill(shared: &Shared) {
    let kill = shared.state().kill.clone();
    if let Some(kill) = kill {
        kill();
    }
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}
