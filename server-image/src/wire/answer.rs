//! An answer in the hands of the HTTP library; its end is the end of its request. Where it breaks off, the library throws away
//! what it has not sent yet, so that is told only once all that came before has left. On an HTTP/2 connection each client takes
//! each answer at a pace of its own, so there what is given and what is taken are counted, and the stream of an answer of
//! which nothing is taken is reset. (On an HTTP/1 connection the socket sees it.) What is answered it does not know.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures::task::AtomicWaker;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;

use super::limits;
use super::traffic::Running;
use crate::body::{Body, BodyError};

/// An answer gives more, or ends, when no more than this is left of what it gave. A stream that has ended cannot be reset,
/// so this much of an answer may wait in the library until its connection is cut; an end that waited for the last byte
/// would cost each answer a frame of its own.
const SHORT: u64 = 16 * 1024;

tokio::task_local! {
    /// That of the HTTP/2 stream whose task this is.
    static FLOW: Arc<Flow>;
}

/// How much of an answer was given to the library, and how much of that it could send.
#[derive(Debug, Default)]
struct Flow {
    given: AtomicU64,
    taken: AtomicU64,
    room: AtomicWaker,
}

impl Flow {
    fn left(&self) -> u64 {
        let taken = self.taken.load(Ordering::Acquire); // first, so that it is not the greater one
        self.given.load(Ordering::Acquire).saturating_sub(taken)
    }

    fn has_room(&self) -> bool {
        self.left() <= SHORT
    }

    fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        self.room.register(cx.waker());
        if self.has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits until nothing is left.
    fn poll_taken(&self, cx: &Context<'_>) -> Poll<()> {
        self.room.register(cx.waker());
        if self.left() == 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    fn give(&self, bytes: usize) {
        self.given.fetch_add(bytes as u64, Ordering::AcqRel);
    }

    fn take(&self, bytes: usize) {
        let before = self.left();
        self.taken.fetch_add(bytes as u64, Ordering::AcqRel);
        let left = self.left();
        if left == 0 || (before > SHORT && left <= SHORT) {
            self.room.wake();
        }
    }

    /// Resolves when for so long something was left and nothing of it was taken; after twice the time at the latest.
    async fn stalled(&self, time: impl Fn() -> Duration) {
        let mut before = None;
        loop {
            tokio::time::sleep(time()).await;
            let now = (self.left() > 0).then(|| self.taken.load(Ordering::Acquire));
            if now.is_some() && now == before {
                return;
            }
            before = now;
        }
    }
}

/// Bytes of an answer, which count as taken once they are sent, or never will be.
#[derive(Debug)]
pub struct Piece {
    bytes: Bytes,
    flow: Option<Arc<Flow>>,
    /// Counts as one byte, which it has not.
    is_mark: bool,
}

impl Piece {
    fn new(bytes: Bytes, flow: Option<Arc<Flow>>) -> Self {
        if let Some(flow) = &flow {
            flow.give(bytes.len());
        }
        Self { bytes, flow, is_mark: false }
    }

    /// Nothing, by which it is noticed that what stands before it is sent.
    fn mark(flow: Arc<Flow>) -> Self {
        flow.give(1);
        Self { bytes: Bytes::new(), flow: Some(flow), is_mark: true }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(flow) = &self.flow {
            flow.take(count);
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.advance(self.remaining());
        if let Some(flow) = self.flow.as_ref().filter(|_| self.is_mark) {
            flow.take(1);
        }
    }
}

/// An answer, whose end is the end of its request.
pub struct Answer {
    body: Body,
    flow: Option<Arc<Flow>>,
    /// Why it broke off, and how often its connection had been flushed by then.
    broken: Option<(BodyError, u64)>,
    running: Running,
}

impl Answer {
    /// To be made in the task of its stream where it is one of HTTP/2.
    pub fn new(body: Body, running: Running) -> Self {
        Self { body, flow: FLOW.try_get().ok(), broken: None, running }
    }

    /// Waits until all that came before it broke off has left.
    fn poll_sent(&self, before: u64, cx: &Context<'_>) -> Poll<()> {
        match &self.flow {
            Some(flow) => flow.poll_taken(cx),
            // The library flushes whenever there is nothing more to write for now.
            None => self.running.poll_flushed(before, cx),
        }
    }
}

impl HttpBody for Answer {
    type Data = Piece;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, BodyError>>> {
        let this = self.get_mut();
        if this.broken.is_none() {
            if let Some(flow) = &this.flow {
                ready!(flow.poll_room(cx));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Ok(frame)) => {
                    let counted = frame.map_data(|bytes| Piece::new(bytes, this.flow.clone()));
                    return Poll::Ready(Some(Ok(counted)));
                }
                Some(Err(error)) => this.broken = Some((error, this.running.flushed())),
            }
            if let Some(flow) = &this.flow {
                return Poll::Ready(Some(Ok(Frame::data(Piece::mark(Arc::clone(flow)))))); // behind the head, at least
            }
        }
        let before = this.broken.as_ref().map_or(0, |(_, before)| *before);
        ready!(this.poll_sent(before, cx));
        Poll::Ready(this.broken.take().map(|(error, _)| Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.broken.is_none() && self.body.is_end_stream() && self.flow.as_ref().is_none_or(|flow| flow.has_room())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Runs the streams of one HTTP/2 connection, and resets those of whose answer nothing is taken for `write_timeout`.
#[derive(Clone)]
pub struct Streams<C> {
    /// The limits in force.
    pub limits: limits::Source,
    /// Counts one that is reset.
    pub cut: C,
}

impl<C, F> Executor<F> for Streams<C>
where
    C: Fn() + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let Self { limits, cut } = self.clone();
        TokioExecutor::new().execute(async move {
            let flow = Arc::new(Flow::default());
            tokio::select! {
                biased;
                () = FLOW.scope(Arc::clone(&flow), stream) => {}
                () = flow.stalled(|| limits().write_timeout) => cut(), // the library resets a stream that is dropped
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn what_is_sent_or_dropped_is_taken() {
        let flow = Arc::new(Flow::default());
        let mut piece = Piece::new(Bytes::from_static(b"seven b"), Some(Arc::clone(&flow)));
        piece.advance(3);
        assert_eq!(flow.left(), 4);
        let next = Piece::new(Bytes::from_static(b"x"), Some(Arc::clone(&flow)));
        drop(piece);
        assert_eq!(flow.left(), 1);
        drop(next);
        assert_eq!((flow.left(), flow.taken.load(Ordering::Relaxed)), (0, 8));
    }

    #[test]
    fn there_is_room_once_little_is_left() {
        let flow = Arc::new(Flow::default());
        let cx = Context::from_waker(Waker::noop());
        let mut piece = Piece::new(vec![0; 100_000].into(), Some(Arc::clone(&flow)));
        assert!(flow.poll_room(&cx).is_pending());
        piece.advance(100_000 - 16 * 1024 - 1);
        assert!(flow.poll_room(&cx).is_pending() && flow.room.take().is_some(), "woken too early");
        assert!(flow.poll_room(&cx).is_pending());
        piece.advance(1);
        assert!(flow.room.take().is_none(), "not woken");
        assert!(flow.poll_room(&cx).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_left_stalls() {
        let flow = Arc::new(Flow::default());
        let time = || Duration::from_secs(10);
        let long = Duration::from_secs(1000);
        assert!(tokio::time::timeout(long, flow.stalled(time)).await.is_err(), "nothing was left");
        let mut piece = Piece::new(vec![0; 100].into(), Some(Arc::clone(&flow)));
        let slow = async {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(9)).await;
                piece.advance(1);
            }
        };
        tokio::select! {
            () = slow => {}
            () = flow.stalled(time) => panic!("it moved"),
        }
        let _left = Piece::new(vec![0; 100].into(), Some(Arc::clone(&flow)));
        assert!(tokio::time::timeout(Duration::from_secs(21), flow.stalled(time)).await.is_ok());
    }
}
