//! Sessions of a client that speaks the least, each request on a connection of its own and by another way in than the one
//! before it: two replicas of a proxy, or pods.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use http::StatusCode;
use serde_json::{Value, json};

use crate::mcp::{Streaming, Target, initialization, text_of};
use crate::wait::until;

/// Calls of one session.
const CALLS: usize = 10;
/// Requests of a whole session that name it: `initialized`, the calls, its stream, DELETE, and one after that.
const NAMING: usize = CALLS + 4;
/// Longest name of a session that a client may be given.
const NAME_MAXIMUM: usize = 128;
/// How long one event may be waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, or a session of it, that is reached by several addresses in turn.
#[derive(Clone, Debug)]
pub struct Ways {
    target: Target,
    addresses: Arc<[SocketAddr]>,
    turn: Arc<AtomicUsize>,
}

/// A tool that is called.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: Value,
    /// What it says.
    pub says: &'static str,
}

impl Tool {
    /// `echo` of server-everything.
    pub fn echo() -> Self {
        Self { name: "echo", arguments: json!({"message": "hello"}), says: "Echo: hello" }
    }

    /// `add` of the FastMCP server.
    pub fn add() -> Self {
        Self { name: "add", arguments: json!({"a": 2, "b": 3}), says: "5" }
    }

    /// Calls it once.
    pub async fn call(&self, session: &Target) -> Result<()> {
        self.heard(&session.call(self.name, self.arguments.clone()).await?)
    }

    fn heard(&self, said: &str) -> Result<()> {
        ensure!(said == self.says, "{} says {said}", self.name);
        Ok(())
    }
}

impl Ways {
    /// The target by these addresses.
    pub fn new(target: &Target, addresses: &[SocketAddr]) -> Self {
        Self { target: target.clone(), addresses: addresses.into(), turn: Arc::default() }
    }

    /// The same ways to another target, a session or a path, whose requests take turns by themselves. Each begins with
    /// another way than the one before it.
    #[must_use]
    pub fn of(&self, target: Target) -> Self {
        let turn = Arc::new(AtomicUsize::new(self.turn.fetch_add(1, Ordering::Relaxed)));
        Self { target, addresses: Arc::clone(&self.addresses), turn }
    }

    /// The target at the address whose turn it is.
    pub fn next(&self) -> Target {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Target { address: self.addresses[turn % self.addresses.len()], ..self.target.clone() }
    }

    /// Begins a session.
    pub async fn begin(&self) -> Result<Self> {
        let target = self.next().initialize().await?;
        let name = target.headers.iter().find(|(name, _)| name == "mcp-session-id").map(|(_, value)| value.len());
        ensure!(name.is_some_and(|length| length <= NAME_MAXIMUM), "a name of {name:?} characters");
        let session = self.of(target);
        session.next().initialized().await?;
        Ok(session)
    }

    /// Ends the session, and sees that it is over.
    pub async fn end(&self) -> Result<()> {
        let end = self.next().send("DELETE", "").await?;
        ensure!(end.status.is_success(), "DELETE: {} {}", end.status, end.text());
        self.is_over().await.context("after its end")
    }

    /// An error unless clients are told that the session is over.
    pub async fn is_over(&self) -> Result<()> {
        let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string();
        let answer = self.next().send("POST", ping).await?.expect(StatusCode::NOT_FOUND)?;
        ensure!(answer.text().contains("-32001"), "404 with {}", answer.text());
        Ok(())
    }

    /// One session from its begin to its end: `initialize`, calls, its own stream, DELETE, and what comes after that.
    pub async fn whole(&self, tool: &Tool) -> Result<()> {
        let session = self.begin().await.context("its begin")?;
        for number in 1..=CALLS {
            tool.call(&session.next()).await.with_context(|| format!("call {number}"))?;
        }
        let stream = session.next().open("GET", "").await.context("its stream")?;
        ensure!(stream.status == StatusCode::OK, "GET: {}", stream.status);
        drop(stream);
        session.end().await.context("its end")
    }

    /// The same over HTTP+SSE, the transport of 2024-11-05: a stream by one way, the messages by all.
    pub async fn older(&self, tool: &Tool) -> Result<()> {
        let path = self.target.path.replace("/mcp", "/sse");
        let mut stream = Target { path, ..self.next() }.open("GET", "").await?;
        ensure!(stream.status == StatusCode::OK, "GET: {}", stream.status);
        let endpoint = tokio::time::timeout(PATIENCE, stream.text()).await??.context("no address for messages")?;
        let messages = self.of(Target { path: endpoint, ..self.target.clone() });
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialization()});
        messages.post(&initialize).await?;
        answer(&mut stream, 0).await?;
        messages.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        for id in 1..=CALLS {
            let params = json!({"name": tool.name, "arguments": tool.arguments});
            messages.post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})).await?;
            tool.heard(&text_of(&answer(&mut stream, id).await?)?)?;
        }
        drop(stream);
        until("the session to end with its stream", PATIENCE, || messages.is_over()).await
    }

    async fn post(&self, message: &Value) -> Result<()> {
        self.next().send("POST", message.to_string()).await?.expect(StatusCode::ACCEPTED)?;
        Ok(())
    }
}

/// The result that a stream brings for a request; what the server says by itself is passed over.
async fn answer(stream: &mut Streaming, id: usize) -> Result<Value> {
    let answer = async {
        while let Some(event) = stream.event().await? {
            if event["id"] == id && event.get("method").is_none() {
                return event.get("result").cloned().with_context(|| event.to_string());
            }
        }
        bail!("the stream ended");
    };
    tokio::time::timeout(PATIENCE, answer).await.context("no answer in time")?
}

/// So many sessions, some at once. An error unless all are right.
pub async fn all_right<F>(count: usize, at_once: usize, mut session: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let running = futures::stream::iter((0..count).map(|_| session())).buffer_unordered(at_once);
    let failures: Vec<_> =
        running.filter_map(|ended| async { ended.err() }).map(|error| format!("{error:#}")).collect().await;
    ensure!(
        failures.is_empty(),
        "{} of {count} sessions went wrong: {:?}",
        failures.len(),
        &failures[..failures.len().min(6)]
    );
    Ok(())
}

/// An error unless many of the requests of so many whole sessions were passed on by the pod that they met. With three pods
/// and ways that know nothing of sessions it is two in three.
pub fn were_passed_on(passed_on: f64, sessions: usize) -> Result<()> {
    let requests = f64::from(u32::try_from(sessions * NAMING)?);
    ensure!(passed_on >= 0.4 * requests, "{passed_on} of {requests} requests were passed on: the way keeps sessions");
    Ok(())
}
