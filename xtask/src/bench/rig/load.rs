//! Load: callers that each hold a session, as fast as answers come or at a fixed rate.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::wire::{self, Incoming};
use super::{RATE, door};

/// The header that names a session.
pub const SESSION: &str = "mcp-session-id";
/// What begins a session.
pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
/// What a client says next.
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Where the calls go, and what they need there.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address of the proxy.
    pub address: SocketAddr,
    /// Path of the endpoint.
    pub path: &'static str,
    /// Name of the tool, as it is called there.
    pub tool: &'static str,
    /// The key.
    pub key: String,
}

/// Where a session begins, and where its calls go: to the next one with each connection.
#[derive(Clone, Debug)]
pub struct Way {
    /// Where it begins.
    pub begins: Target,
    /// Where it is used; there is at least one.
    pub calls: Vec<Target>,
}

impl Way {
    /// All of it goes to the same address.
    pub fn straight(target: &Target) -> Self {
        Self { begins: target.clone(), calls: vec![target.clone()] }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A small answer.
    Small,
    /// An answer of 64 KiB.
    Large,
    /// A question of 64 KiB.
    LargeQuestion,
    /// A small answer, each on a connection of its own.
    NewConnection,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Calls that were answered.
    pub calls: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// Seconds of each call, sorted.
    pub latencies: Vec<f64>,
}

/// One caller: a session, and the connection that it is on.
struct Caller {
    turns: std::iter::Cycle<std::vec::IntoIter<Target>>,
    target: Target,
    call: Call,
    session: String,
    stream: TcpStream,
    received: Vec<u8>,
}

impl Target {
    /// A server or proxy at this address, with the key of the benches' front doors.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, path: "/mcp", tool: "echo", key: door::key().expose().to_owned() }
    }

    /// One request's bytes.
    pub fn request(&self, method: &str, session: Option<&str>, body: &str, close: bool) -> Vec<u8> {
        let Self { address, path, key, .. } = self;
        let session = session
            .map_or_else(String::new, |id| format!("mcp-session-id: {id}\r\nmcp-protocol-version: 2025-11-25\r\n"));
        let close = if close { "connection: close\r\n" } else { "" };
        let content = if method == "POST" {
            format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
        } else {
            String::new()
        };
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost:{}\r\naccept: application/json, text/event-stream\r\nauthorization: Bearer {key}\r\nuser-agent: bench/1\r\n{session}{close}{content}\r\n{body}",
            address.port()
        )
        .into_bytes()
    }

    /// The body of a call.
    pub fn body(&self, arguments: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"{}","arguments":{{"text":"{arguments}"}}}}}}"#,
            self.tool
        )
    }

    /// Opens a session and returns its id.
    pub async fn initialize(&self, stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<String> {
        let session = self.begin(stream, received).await?;
        stream.write_all(&self.request("POST", Some(&session), INITIALIZED, false)).await?;
        answered(stream, received).await?;
        Ok(session)
    }

    /// Opens a session with `initialize` alone.
    pub async fn begin(&self, stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<String> {
        stream.write_all(&self.request("POST", None, INITIALIZE, false)).await?;
        let answer = answered(stream, received).await?;
        Ok(wire::header(&answer.head, SESSION).context("initialize opened no session")?.to_owned())
    }

    /// Ends a session.
    pub async fn end(&self, session: &str, stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<()> {
        stream.write_all(&self.request("DELETE", Some(session), "", false)).await?;
        answered(stream, received).await.map(drop)
    }

    /// One request on a connection of its own, and the answer; that of a stream is its head.
    pub async fn once(&self, method: &str, session: Option<&str>, body: &str) -> Result<Incoming> {
        let (mut stream, mut received) = (connect(self.address).await?, Vec::new());
        stream.write_all(&self.request(method, session, body, true)).await?;
        let (head, length) = wire::head(&mut stream, &mut received).await?.context("no answer")?;
        if wire::header(&head, "content-type").is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(Incoming { head, body: String::new(), length });
        }
        wire::read(&mut stream, &mut received).await?.context("no answer")
    }
}

/// Reads one answer and throws it off the buffer; anything but a 2xx is an error.
pub async fn answered(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<Incoming> {
    let answer = wire::read(stream, received).await?.context("the connection ended before the answer")?;
    ensure!((200..300).contains(&answer.status()), "{}\n{}", answer.head, answer.body);
    received.drain(..answer.length);
    Ok(answer)
}

impl Caller {
    async fn new(way: &Way, call: Call) -> Result<Self> {
        let mut stream = connect(way.begins.address).await?;
        let mut received = Vec::with_capacity(16 * 1024);
        let session = way.begins.initialize(&mut stream, &mut received).await?;
        let mut turns = way.calls.clone().into_iter().cycle();
        let target = turns.next().context("there is nowhere to call")?;
        if target.address != way.begins.address {
            stream = connect(target.address).await?;
        }
        Ok(Self { turns, target, call, session, stream, received })
    }

    fn bytes(&self) -> Vec<u8> {
        let text = match self.call {
            Call::Small | Call::NewConnection => "hello".to_owned(),
            Call::Large => "large".to_owned(),
            Call::LargeQuestion => "x".repeat(64 * 1024),
        };
        let body = self.target.body(&text);
        self.target.request("POST", Some(&self.session), &body, self.call == Call::NewConnection)
    }

    async fn call(&mut self, bytes: &[u8]) -> Result<()> {
        if self.call == Call::NewConnection {
            let address = self.turns.next().map_or(self.target.address, |target| target.address);
            self.stream = connect(address).await?;
            self.received.clear();
        }
        self.stream.write_all(bytes).await?;
        let answer = answered(&mut self.stream, &mut self.received).await?;
        ensure!(answer.body.contains("\"result\"") && !answer.body.contains("\"isError\":true"), "{}", answer.body);
        Ok(())
    }

    /// Calls until the end, each call after the answer to the last one.
    async fn busily(mut self, end: Instant) -> Result<Vec<f64>> {
        let bytes = self.bytes();
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let begin = Instant::now();
            self.call(&bytes).await?;
            latencies.push(begin.elapsed().as_secs_f64());
        }
        Ok(latencies)
    }

    /// Calls at fixed times. A call that must wait for the answer to the one before is counted from its time on.
    async fn steadily(mut self, first: Instant, interval: Duration, end: Instant) -> Result<Vec<f64>> {
        let bytes = self.bytes();
        let mut latencies = Vec::new();
        let mut due = first;
        while due < end {
            let free = Instant::now();
            let begin = if free < due {
                tokio::time::sleep_until(due.into()).await;
                Instant::now()
            } else {
                due
            };
            self.call(&bytes).await?;
            latencies.push(begin.elapsed().as_secs_f64());
            due += interval;
        }
        Ok(latencies)
    }
}

/// As many calls as are answered, by this many callers.
pub async fn busy(way: Way, callers: usize, call: Call, length: Duration) -> Result<Outcome> {
    let callers = try_join_all((0..callers).map(|_| Caller::new(&way, call))).await?;
    let begin = Instant::now();
    let tasks = callers.into_iter().map(|caller| tokio::spawn(caller.busily(begin + length)));
    outcome(begin, try_join_all(tasks).await?)
}

/// [`RATE`] calls a second, by this many callers.
pub async fn steady(way: Way, callers: usize, call: Call, length: Duration) -> Result<Outcome> {
    let callers = try_join_all((0..callers).map(|_| Caller::new(&way, call))).await?;
    let interval = Duration::from_secs_f64(callers.len() as f64 / RATE);
    let begin = Instant::now();
    let tasks = callers.into_iter().enumerate().map(|(number, caller)| {
        let first = begin + Duration::from_secs_f64(number as f64 / RATE);
        tokio::spawn(caller.steadily(first, interval, begin + length))
    });
    outcome(begin, try_join_all(tasks).await?)
}

fn outcome(begin: Instant, each: Vec<Result<Vec<f64>>>) -> Result<Outcome> {
    let seconds = begin.elapsed().as_secs_f64();
    let mut latencies: Vec<f64> = each.into_iter().collect::<Result<Vec<_>>>()?.concat();
    latencies.sort_by(f64::total_cmp);
    Ok(Outcome { calls: latencies.len(), seconds, latencies })
}

/// A connection without delays.
pub async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("nothing listens on {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
