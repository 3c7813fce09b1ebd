//! Connections that wait for the next exchange, for less time than servers keep theirs (node and uvicorn close after 5 s),
//! so that no request is written into a connection that is just being closed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::rt::Executor as _;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::line::Line;
use crate::clock;

/// How long a connection is kept for the next exchange.
const IDLE: Duration = Duration::from_secs(2);

/// The connections, the longest waiting first.
#[derive(Default)]
pub struct Idle(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    lines: VecDeque<(Line, Instant)>,
    /// Whether somebody will close those that have waited for too long.
    watched: bool,
}

impl std::fmt::Debug for Idle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Idle({})", self.waiting().lines.len())
    }
}

impl Idle {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.waiting().lines.is_empty()
    }

    /// The connection that came last, which the server closes last.
    pub fn take(&self) -> Option<Line> {
        loop {
            let (mut line, since) = self.waiting().lines.pop_back()?;
            if clock::instant() - since < IDLE && line.is_ready() {
                return Some(line);
            }
        }
    }

    /// Keeps a connection for the next exchange.
    pub fn put(self: &Arc<Self>, line: Line) {
        if Handle::try_current().is_err() {
            return; // an answer may be dropped anywhere, and elsewhere nobody could close it in time
        }
        let mut waiting = self.waiting();
        waiting.lines.push_back((line, clock::instant()));
        if !std::mem::replace(&mut waiting.watched, true) {
            TokioExecutor::new().execute(Arc::clone(self).close_late_ones());
        }
    }

    /// Closes what has waited for too long, until nothing waits.
    async fn close_late_ones(self: Arc<Self>) {
        loop {
            tokio::time::sleep(IDLE).await;
            let now = clock::instant();
            let mut waiting = self.waiting();
            let late = waiting.lines.partition_point(|(_, since)| now - *since >= IDLE);
            let late: Vec<_> = waiting.lines.drain(..late).collect();
            waiting.watched = !waiting.lines.is_empty();
            let watched = waiting.watched;
            drop(waiting); // whoever wants a connection does not wait until others are closed
            drop(late);
            if !watched {
                return;
            }
        }
    }
}
