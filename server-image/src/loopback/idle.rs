//! Connections that wait for the next exchange, for less time than the server keeps them (node and uvicorn close after 5 s,
//! and node says so), so that no request is written into a connection that is just being closed.
//!
//! A server that closes one before its time, and has not said so, is spared: each exchange has a connection of its own. One
//! of them is set aside afterwards and not used. When it is still open at the end of its time, the server keeps its
//! connections again: it had only been restarted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::rt::Executor as _;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::answer::Keeps;
use super::line::Line;
use crate::clock;

/// Longest time that a connection is kept for the next exchange.
const IDLE: Duration = Duration::from_secs(2);

/// How long a connection is kept: half of what the server says, because its clock runs from another moment.
fn time(keeps: Keeps) -> Duration {
    match keeps {
        Keeps::Not => Duration::ZERO,
        Keeps::Open => IDLE,
        Keeps::For(told) => IDLE.min(told / 2),
    }
}

/// The connections.
#[derive(Default)]
pub struct Idle(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Each with the end of its time, the longest waiting first.
    lines: VecDeque<(Line, Instant)>,
    /// Whether the server closes connections early, so that those that wait are only watched.
    early: bool,
    /// Whether somebody will close those that have waited for too long.
    watched: bool,
}

impl Waiting {
    /// Takes away those whose time is over, and looks whether the server has kept them.
    fn late(&mut self, now: Instant) -> Vec<Line> {
        let (late, kept) = self.lines.drain(..).partition::<Vec<_>, _>(|(_, end)| *end <= now);
        self.lines = kept.into();
        self.early = self.early && !late.iter().any(|(line, _)| line.is_silent());
        late.into_iter().map(|(line, _)| line).collect()
    }
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
            let mut waiting = self.waiting();
            if waiting.early {
                return None;
            }
            let (line, end) = waiting.lines.pop_back()?;
            drop(waiting);
            if end <= clock::instant() {
                continue;
            }
            if line.is_silent() {
                return Some(line);
            }
            self.closed_early();
        }
    }

    /// The server has closed a connection before its time.
    pub fn closed_early(&self) {
        let mut waiting = self.waiting();
        waiting.early = true;
        let rest = std::mem::take(&mut waiting.lines);
        drop(waiting); // whoever wants a connection does not wait until others are closed
        drop(rest);
    }

    /// Keeps a connection for the next exchange.
    pub fn put(self: &Arc<Self>, line: Line, keeps: Keeps) {
        let time = time(keeps);
        if time.is_zero() || Handle::try_current().is_err() {
            return; // an answer may be dropped anywhere, and elsewhere nobody could close it in time
        }
        let mut waiting = self.waiting();
        if waiting.early && !waiting.lines.is_empty() {
            return;
        }
        waiting.lines.push_back((line, clock::instant() + time));
        if !std::mem::replace(&mut waiting.watched, true) {
            TokioExecutor::new().execute(Arc::clone(self).close_late_ones(time));
        }
    }

    /// Closes what has waited for too long, until nothing waits.
    async fn close_late_ones(self: Arc<Self>, mut pause: Duration) {
        loop {
            tokio::time::sleep(pause).await;
            let now = clock::instant();
            let mut waiting = self.waiting();
            let late = waiting.late(now);
            let next = waiting.lines.iter().map(|(_, end)| *end - now).min();
            waiting.watched = next.is_some();
            drop(waiting); // whoever wants a connection does not wait until others are closed
            drop(late);
            match next {
                Some(time) => pause = time,
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_kept_for_half_of_what_the_server_says() {
        for (told, kept) in [(0, 0), (1, 500), (2, 1000), (3, 1500), (4, 2000), (5, 2000), (u64::MAX, 2000)] {
            assert_eq!(time(Keeps::For(Duration::from_secs(told))), Duration::from_millis(kept), "{told}");
        }
        assert_eq!((time(Keeps::Open), time(Keeps::Not)), (IDLE, Duration::ZERO));
    }
}
