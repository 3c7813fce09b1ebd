//! What happens on one connection, shared by those who see a part of it: the socket (bytes), the service (requests) and
//! the task that ends the connection when nothing happens any more.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::time::Instant;

use super::fault::Fault;

/// One connection's traffic.
#[derive(Debug)]
pub struct Traffic {
    opened: Instant,
    /// Milliseconds from then to the last sign of a request.
    touched: AtomicU64,
    /// Requests that the service was given.
    begun: AtomicU64,
    /// Those whose answer has not ended.
    running: AtomicU32,
    /// Which request is none, and why.
    refused: OnceLock<(u64, Fault)>,
    given_up: OnceLock<&'static str>,
    /// How often all that was written has left.
    flushed: AtomicU64,
    waits_for_flush: AtomicWaker,
}

/// Counts one request until its answer has ended.
#[derive(Debug)]
pub struct Running {
    traffic: Arc<Traffic>,
    clock: fn() -> Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.traffic.touch((self.clock)());
        self.traffic.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Running {
    /// How often all that was written to the connection has left.
    pub fn flushed(&self) -> u64 {
        self.traffic.flushed.load(Ordering::Acquire)
    }

    /// Waits until that has happened more often than `before`. Only one answer of a connection at a time may wait.
    pub fn poll_flushed(&self, before: u64, cx: &Context<'_>) -> Poll<()> {
        self.traffic.waits_for_flush.register(cx.waker());
        if self.flushed() > before { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Traffic {
    /// Of a connection that is opened now.
    pub fn new(now: Instant) -> Self {
        Self {
            opened: now,
            touched: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            running: AtomicU32::new(0),
            refused: OnceLock::new(),
            given_up: OnceLock::new(),
            flushed: AtomicU64::new(0),
            waits_for_flush: AtomicWaker::new(),
        }
    }

    /// A sign of a request.
    pub fn touch(&self, now: Instant) {
        let since = u64::try_from(now.duration_since(self.opened).as_millis()).unwrap_or(u64::MAX);
        self.touched.store(since, Ordering::Relaxed);
    }

    /// Since when nothing has been going on; `None` while something is.
    pub fn idle_since(&self) -> Option<Instant> {
        let since = self.opened + Duration::from_millis(self.touched.load(Ordering::Relaxed));
        (self.running.load(Ordering::Relaxed) == 0).then_some(since)
    }

    /// A request begins. Tells why it is none, if the socket put it in the place of something else.
    pub fn begin(self: &Arc<Self>, clock: fn() -> Instant) -> (Running, Option<Fault>) {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        let fault = self.refused.get().filter(|(refused, _)| *refused == number).map(|(_, fault)| *fault);
        (Running { traffic: Arc::clone(self), clock }, fault)
    }

    /// The request with that number is none.
    pub fn refuse(&self, number: u64, fault: Fault) {
        let _ = self.refused.set((number, fault)); // nothing follows the first
    }

    /// All that was written has left.
    pub fn flush(&self) {
        self.flushed.fetch_add(1, Ordering::AcqRel);
        self.waits_for_flush.wake();
    }

    /// The connection ends, for the reason with this metric label.
    pub fn give_up(&self, reason: &'static str) {
        let _ = self.given_up.set(reason); // the first one counts
    }

    /// Why it ends, where the socket has given it up.
    pub fn given_up(&self) -> Option<&'static str> {
        self.given_up.get().copied()
    }
}
