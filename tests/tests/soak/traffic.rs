//! What the clients do: each of them one thing after another, until the time is over.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use http::Method;
use mooring_tests::mcp::Target;
use serde_json::json;
use tokio::time::Instant;

use crate::abort::abort;
use crate::connection::{Connection, MODERN, Version, answers, call, first_event, modern, request};

/// A body beyond the limit that the front door has here.
pub(crate) const BODY_MAXIMUM: usize = 64 * 1024;

/// What a call that is cancelled would have taken, in milliseconds: longer than anybody waits here.
const CANCELLED: u64 = 600_000;

/// One thing that a client does.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A whole session, with calls answered in JSON and as streams, a GET stream, and its end.
    Session(Version),
    /// Many calls at once on one connection; some are given up.
    AtOnce,
    Batch,
    Refused,
    /// The transport of 2024-11-05.
    Older,
    /// Calls and a subscription of 2026-07-28, and a call that is cancelled.
    Modern,
    Abort,
}

/// In this order, by every client; each begins elsewhere.
const ACTS: [Act; 14] = [
    Act::Session(Version::Http1),
    Act::Abort,
    Act::AtOnce,
    Act::Abort,
    Act::Batch,
    Act::Abort,
    Act::Session(Version::Http2),
    Act::Abort,
    Act::Refused,
    Act::Abort,
    Act::Older,
    Act::Abort,
    Act::Modern,
    Act::Abort,
];

/// Clients before one front door.
pub(crate) struct Clients {
    /// The endpoint, with the key.
    pub(crate) target: Target,
    acts: AtomicUsize,
    aborts: AtomicUsize,
}

impl Clients {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, acts: AtomicUsize::new(0), aborts: AtomicUsize::new(0) }
    }

    /// So many of them at once, until then.
    pub(crate) async fn run(&self, count: usize, until: Instant) -> Result<()> {
        let client = async |number: usize| {
            for act in ACTS.iter().cycle().skip(number) {
                if Instant::now() >= until {
                    break;
                }
                self.act(*act).await.with_context(|| format!("{act:?}"))?;
                self.acts.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        };
        try_join_all((0..count).map(client)).await?;
        Ok(())
    }

    /// How many things were done, and how many of them were calls that are broken off.
    pub(crate) fn done(&self) -> (usize, usize) {
        (self.acts.load(Ordering::Relaxed), self.aborts.load(Ordering::Relaxed))
    }

    async fn act(&self, act: Act) -> Result<()> {
        match act {
            Act::Session(version) => self.session(version).await,
            Act::AtOnce => self.at_once().await,
            Act::Batch => self.batch().await,
            Act::Refused => self.refused().await,
            Act::Older => self.older().await,
            Act::Modern => self.modern().await,
            Act::Abort => abort(&self.target.host, self.aborts.fetch_add(1, Ordering::Relaxed)).await,
        }
    }

    async fn session(&self, version: Version) -> Result<()> {
        let mut client = Connection::open(&self.target.host, version).await?;
        client.initialize().await?;
        let mut listener = client.beside(version).await?;
        let listening = listener.send(Method::GET, String::new()).await?;
        for id in 1..4 {
            client.call(id, id % 2 == 0, id).await?;
        }
        first_event(listening).await?;
        let ended = client.send(Method::DELETE, String::new()).await?.status();
        ensure!(ended.is_success(), "the end of a session: {ended}");
        let answer = client.post(&call(9, false, 0)).await?;
        ensure!(answer.status == 404, "a call after the end of its session: {}", answer.status);
        Ok(())
    }

    async fn at_once(&self) -> Result<()> {
        let mut client = Connection::open(&self.target.host, Version::Http2).await?;
        client.initialize().await?;
        let mut left = Vec::new();
        for id in 10..15 {
            left.push(client.send(Method::POST, call(id, true, 20).to_string()).await?);
        }
        let listening = client.send(Method::GET, String::new()).await?;
        client.call(1, true, 5).await?;
        left.truncate(3); // the others are reset amid their answers
        for response in left {
            first_event(response).await?;
        }
        first_event(listening).await?;
        client.call(2, false, 0).await
    }

    async fn batch(&self) -> Result<()> {
        let mut client = Connection::open(&self.target.host, Version::Http1).await?;
        client.revision = "2025-03-26";
        client.initialize().await?;
        let answer =
            client.post(&json!([call(1, false, 0), call(2, false, 0), request(3, "ping", &json!({}))])).await?;
        let message = answer.message()?;
        ensure!(message.as_array().is_some_and(|all| all.len() == 3), "a batch: {} {message}", answer.status);
        answers(&message[0], 1)?;
        answers(&message[1], 2)
    }

    async fn refused(&self) -> Result<()> {
        let message = call(1, false, 0).to_string();
        let cases = [
            (self.target.with_key(Some("nobody's")), message.clone(), 401),
            (self.target.with_key(None), message.clone(), 401),
            (self.target.with_host("elsewhere.example.com"), message.clone(), 421),
            (self.target.with_header("origin", "https://elsewhere.example.com"), message.clone(), 403),
            (Target { path: "/elsewhere".into(), ..self.target.clone() }, message.clone(), 404),
            (self.target.clone(), "{".into(), 400),
            (self.target.clone(), "x".repeat(BODY_MAXIMUM + 1), 413),
        ];
        for (target, body, expected) in cases {
            let answer = target.send("POST", body).await?;
            ensure!(answer.status == expected, "{} in place of {expected}: {}", answer.status, answer.text());
        }
        Ok(())
    }

    async fn older(&self) -> Result<()> {
        let mut stream = Target { path: "/sse".into(), ..self.target.clone() }.open("GET", "").await?;
        let path = stream.text().await?.context("the address for messages")?;
        let messages = Target { path, ..self.target.clone() };
        let client = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "soak", "version": "1"}});
        for (id, message) in [(0, request(0, "initialize", &client)), (1, call(1, false, 0)), (2, call(2, true, 10))] {
            let answer = messages.send("POST", message.to_string()).await?;
            ensure!(answer.status == 202, "a message: {} {}", answer.status, answer.text());
            loop {
                let event = stream.event().await?.context("the stream ended")?;
                if event["id"] == id {
                    ensure!(event.get("result").is_some(), "{event}");
                    break;
                }
            }
        }
        Ok(())
    }

    async fn modern(&self) -> Result<()> {
        let target = self.target.with_header("mcp-protocol-version", MODERN);
        let calls = target.with_header("mcp-method", "tools/call").with_header("mcp-name", "echo");
        for (id, stream) in [(1, false), (2, true)] {
            let answer = calls.send("POST", modern(call(id, stream, 5))).await?;
            ensure!(answer.status == 200, "call: {} {}", answer.status, answer.text());
            answers(&answer.message()?, id)?;
        }
        let listen = request(3, "subscriptions/listen", &json!({"notifications": {"toolsListChanged": true}}));
        let mut listening =
            target.with_header("mcp-method", "subscriptions/listen").open("POST", modern(listen)).await?;
        listening.event().await?.context("the subscription is acknowledged")?;
        // Its answer would be long in coming: to close it is to cancel the call.
        let mut cancelled = calls.open("POST", modern(call(4, true, CANCELLED))).await?;
        cancelled.event().await?.context("the call has begun")?;
        Ok(())
    }
}
