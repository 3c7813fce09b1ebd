//! Declared tools for a local client over standard input and output: one JSON-RPC message a line (MCP specification, stdio
//! transport), in both eras. Decides which messages are answered, which end others, and when the process may leave. It
//! knows nothing of Host, Origin and keys: whoever started this process is the caller. Logs go to standard error.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::admit::admit;
use crate::cli::Serve;
use crate::door::Door;
use crate::era::{self, Era};
use crate::headers::VERSION;
use crate::peek::{Message, Reading, Seen, peek};
use crate::pipeline::Refused;
use crate::refusal::{Refusal, Waiting};
use crate::reload::Reloader;
use crate::rules::Backend;
use crate::serve::Stop;
use crate::tools;

/// Ends a request that is running. Over stdio it is how clients of both eras cancel.
const CANCELLED: &str = "notifications/cancelled";
/// Answers that wait for the client to read.
const WAITING: usize = 64;

/// Serves the standard streams.
pub async fn run(door: &Arc<Door>, reloader: Reloader, arguments: &Serve, stop: &mut Stop) -> anyhow::Result<()> {
    let tasks = TaskTracker::new();
    let watching = tasks.spawn(reloader.watch());
    tracing::info!("serving standard input and output");
    let patience = arguments.shutdown_timeout(None);
    serve(Arc::clone(door), tokio::io::stdin(), tokio::io::stdout(), stop, patience).await?;
    watching.abort();
    Ok(())
}

/// Serves until the end of input, a stop signal, or nobody reads the output any more; then answers what is running,
/// for at most `patience`.
async fn serve(
    door: Arc<Door>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: &mut Stop,
    patience: Duration,
) -> io::Result<()> {
    let calls = TaskTracker::new();
    let (answers, lines) = mpsc::channel(WAITING);
    let writing = TaskTracker::new();
    writing.spawn(write(output, lines));
    writing.close();
    let mut client = Client {
        door,
        answers: answers.clone(),
        calls: calls.clone(),
        answering: TaskTracker::new(),
        unanswered: watch::Sender::new(0),
        revision: None,
        running: HashMap::new(),
    };
    tokio::select! {
        ended = client.read(input) => ended?,
        () = stop.asked() => {}
        () = answers.closed() => {}
    }
    drop(answers);
    drop(client); // what is running holds the channel open until it has answered
    calls.close();
    tracing::info!(running = calls.len(), "end of input");
    let finished = async {
        calls.wait().await;
        writing.wait().await;
    };
    tokio::select! {
        () = finished => {}
        () = tokio::time::sleep(patience) => tracing::warn!(running = calls.len(), "left with calls still running"),
        () = stop.asked() => tracing::warn!(running = calls.len(), "left at once"),
    }
    Ok(())
}

/// The client on the other side.
struct Client {
    door: Arc<Door>,
    answers: mpsc::Sender<String>,
    /// One task for each request.
    calls: TaskTracker,
    /// One task for each message or batch, which waits for its requests. The writer waits for these.
    answering: TaskTracker,
    /// Messages and batches whose answer is not on its way yet.
    unanswered: watch::Sender<usize>,
    /// The revision that the handshake settled.
    revision: Option<&'static str>,
    /// Requests by their ids, as they were written.
    running: HashMap<String, AbortHandle>,
}

/// A message or batch, counted as unanswered for as long as this lives.
struct Unanswered(watch::Sender<usize>);

impl Unanswered {
    fn count(all: &watch::Sender<usize>) -> Self {
        all.send_modify(|count| *count += 1);
        Self(all.clone())
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Client {
    /// Reads until the end of input, and begins what it reads. While as much is unanswered as may be, or while nobody reads
    /// the answers, it reads nothing, and the client waits.
    async fn read(&mut self, input: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut input = BufReader::new(input);
        let mut unanswered = self.unanswered.subscribe();
        loop {
            let (limit, most) = self.door.rules().map_or((0, 1), |rules| (rules.body_bytes, rules.requests));
            let _ = unanswered.wait_for(|count| *count < most).await; // we hold the sender
            let begun = match line(&mut input, limit).await? {
                Line::End => return Ok(()),
                Line::TooLong => Err(Refusal::TooLarge { limit }.message(&Waiting::Nobody)),
                Line::Whole(bytes) if bytes.trim_ascii().is_empty() => Ok(()),
                Line::Whole(bytes) => self.receive(&bytes),
            };
            if let Err(refused) = begun {
                let _ = self.answers.send(refused).await; // nobody reads: `serve` ends
            }
        }
    }

    /// Begins what a line asks for. The error is the answer to what is refused at once.
    fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        let reading = peek(bytes).map_err(|refusal| refusal.message(&Waiting::Nobody))?;
        let (era, waiting) = match &reading {
            Reading::One(message) => (era::in_body(message).unwrap_or(Era::Legacy), reading.waiting()),
            // What HTTP clients repeat in a header, local ones have said in the handshake.
            Reading::Batch(_) => admit(&self.headers(), &reading, None)
                .map(|admitted| (admitted.era, admitted.waiting))
                .map_err(|Refused { refusal, waiting, .. }| refusal.message(&waiting))?,
        };
        self.cancel(bytes, &reading);
        if let Reading::One(Message::Request(_, call)) = &reading
            && era == Era::Legacy
            && call.method == "initialize"
        {
            let asked = call.params.protocol_version.as_ref().and_then(Seen::text);
            self.revision = Some(tools::negotiate(asked));
        }
        let Some(rules) = self.door.rules() else { return Ok(()) }; // there were some before the first line was read
        let Backend::Tools(server) = &rules.backend else { return Ok(()) }; // nothing else compiles over stdio
        let requests = match server.requests(None, &reading, era, &self.calls) {
            Ok(requests) => requests,
            // JSON-RPC answers no notification, not even one that is refused.
            Err(_) if matches!(waiting, Waiting::Nobody) => return Ok(()),
            Err(refusal) => return Err(refusal.message(&waiting)),
        };
        if !requests.is_empty() {
            self.begin(requests, waiting, rules.call_timeout);
        }
        Ok(())
    }

    /// Begins the requests of one message or batch, which are answered together.
    fn begin(&mut self, requests: Vec<tools::Request>, waiting: Waiting, longest: Duration) {
        self.running.retain(|_, call| !call.is_finished());
        let mut calls = Vec::with_capacity(requests.len());
        for (id, reply) in requests {
            let call = AbortOnDropHandle::new(self.calls.spawn(reply));
            self.running.insert(id.get().to_owned(), call.abort_handle());
            calls.push(call);
        }
        let (answers, unanswered) = (self.answers.clone(), Unanswered::count(&self.unanswered));
        self.answering.spawn(async move {
            let _unanswered = unanswered;
            let text = match tokio::time::timeout(longest, join_all(calls)).await {
                Ok(ended) => {
                    // What was cancelled is not answered.
                    let replies: Vec<_> = ended.into_iter().flatten().collect();
                    if replies.is_empty() {
                        return;
                    }
                    tools::joined(replies, matches!(waiting, Waiting::Batch(_))).text
                }
                Err(_) => Refusal::BackendSlow.message(&waiting),
            };
            let _ = answers.send(text).await; // nobody reads any more
        });
    }

    fn headers(&self) -> HeaderMap {
        self.revision.map(|revision| (VERSION, HeaderValue::from_static(revision))).into_iter().collect()
    }

    /// Ends the requests that are cancelled, each by its id, whether it came alone or in a batch.
    fn cancel(&mut self, bytes: &[u8], reading: &Reading<'_>) {
        let cancels = |message: &Message<'_>| message.method() == Some(CANCELLED);
        match reading {
            Reading::One(message) if cancels(message) => self.cancel_one(bytes),
            Reading::Batch(messages) if messages.iter().flatten().any(cancels) => {
                let texts: Vec<&RawValue> = serde_json::from_slice(bytes).unwrap_or_default(); // it was read before
                for (text, message) in texts.into_iter().zip(messages) {
                    if message.as_ref().is_ok_and(cancels) {
                        self.cancel_one(text.get().as_bytes());
                    }
                }
            }
            Reading::One(_) | Reading::Batch(_) => {}
        }
    }

    fn cancel_one(&mut self, notification: &[u8]) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow)]
            params: Params<'a>,
        }
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let cancelled = serde_json::from_slice::<Cancelled<'_>>(notification).ok();
        let call = cancelled.and_then(|cancelled| self.running.remove(cancelled.params.request_id.get()));
        if let Some(call) = call {
            call.abort();
        }
    }
}

/// Writes answers, each on a line of its own, until there are no more.
async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    while let Some(text) = lines.recv().await {
        // A raw line break in JSON is white space between tokens, never part of a string.
        let mut text = text.replace(['\n', '\r'], " ");
        text.push('\n');
        if output.write_all(text.as_bytes()).await.is_err() || output.flush().await.is_err() {
            return; // closes the channel
        }
    }
}

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads a line of at most `limit` bytes. A last line needs no line break.
async fn line(input: &mut (impl AsyncBufRead + Unpin), limit: u64) -> io::Result<Line> {
    let (mut line, mut too_long) = (Vec::new(), false);
    loop {
        let piece = input.fill_buf().await?;
        let ended = piece.is_empty();
        let end = piece.iter().position(|byte| *byte == b'\n');
        let text = end.and_then(|end| piece.get(..end)).unwrap_or(piece);
        too_long |= (line.len() + text.len()) as u64 > limit;
        if too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(text);
        }
        let taken = text.len() + usize::from(end.is_some());
        input.consume(taken);
        if ended && line.is_empty() && !too_long {
            return Ok(Line::End);
        }
        if ended || end.is_some() {
            return Ok(if too_long { Line::TooLong } else { Line::Whole(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded() {
        let text = b"one\n\ntoo long\r\nfour\nlast";
        for capacity in 1..12 {
            let mut input = BufReader::with_capacity(capacity, &text[..]);
            let mut lines = Vec::new();
            loop {
                match line(&mut input, 4).await.unwrap() {
                    Line::End => break,
                    Line::TooLong => lines.push("-".to_owned()),
                    Line::Whole(bytes) => lines.push(String::from_utf8(bytes).unwrap()),
                }
            }
            assert_eq!(lines, ["one", "", "-", "four", "last"], "{capacity}");
        }
    }
}
