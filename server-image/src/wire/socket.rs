//! The socket below the HTTP library. It holds back the head of an HTTP/1 request until it is whole and good, so the
//! library meets one request with one framing; it holds the time of a head and of a client that does not read, and closes
//! in such a way that the last answer is not lost. What a request means it does not know.
//!
//! Where a head is not good, a request of its own stands in its place, which [`Traffic`] tells from a client's. So the
//! refusal is made by whoever makes all others, and keeps its place behind the answers to earlier requests. The bytes of
//! HTTP/2 all pass, for their framing is not ambiguous; a head that does not become whole holds up everything behind it, so
//! its connection ends.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::fault::Fault;
use super::frames::Frames;
use super::framing::Framing;
use super::limits::Source;
use super::traffic::Traffic;
use crate::clock;

/// How a connection with prior knowledge of HTTP/2 begins (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What stands in the place of a refused head.
const STAND_IN: &[u8] = b"REFUSED / HTTP/1.1\r\nconnection: close\r\n\r\n";
/// How long a closed connection is read on, so that what the client still sends does not reset it under the last answer.
const LINGER: Duration = Duration::from_secs(1);

/// What is spoken on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.
    Http1,
    /// HTTP/2, without an upgrade.
    Http2,
}

/// A socket under watch.
pub struct Socket<S> {
    inner: S,
    limits: Source,
    traffic: Arc<Traffic>,
    follows: Follows,
    /// Bytes that have arrived and were not read yet.
    held: Vec<u8>,
    /// How many of them may be read.
    passed: usize,
    /// How many of those have been.
    taken: usize,
    head_timer: Timer,
    write_timer: Timer,
    linger: Timer,
    shut: bool,
}

/// What is done with the bytes that arrive.
enum Follows {
    /// They are HTTP/1.
    Framing(Framing),
    /// They are HTTP/2.
    Frames(Frames),
    /// No request follows the one that stands in.
    End,
    /// The body that is being read is malformed.
    Broken(Fault),
}

/// Room for what is held, each time that it grows.
const ROOM: usize = 4096;

type Timer = Option<Pin<Box<Sleep>>>;

/// Whether the time is over, which begins when this is first asked.
fn is_over(timer: &mut Timer, cx: &mut Context<'_>, time: impl FnOnce() -> Duration) -> bool {
    timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(time()))).as_mut().poll(cx).is_ready()
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Watches `inner`.
    pub fn new(inner: S, limits: Source, traffic: Arc<Traffic>) -> Self {
        Self {
            inner,
            limits,
            traffic,
            follows: Follows::Framing(Framing::default()),
            held: Vec::new(),
            passed: 0,
            taken: 0,
            head_timer: None,
            write_timer: None,
            linger: None,
            shut: false,
        }
    }

    /// Waits for the first bytes; false when the client leaves without any.
    pub async fn arrive(&mut self) -> io::Result<bool> {
        Ok(poll_fn(|cx| self.poll_hold(cx)).await? > 0)
    }

    /// Holds what arrives.
    fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [0; ROOM];
        let mut space = ReadBuf::new(&mut space);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut space))?;
        self.held.extend_from_slice(space.filled());
        Poll::Ready(Ok(space.filled().len()))
    }

    /// Tells what is spoken, once that can be told from what has arrived; `None` when the client leaves before.
    pub async fn protocol(&mut self) -> io::Result<Option<Protocol>> {
        loop {
            if self.held.starts_with(PREFACE) {
                let mut frames = Frames::default();
                if frames.follow(self.held.get(PREFACE.len()..).unwrap_or_default()) {
                    self.head_timer = None;
                }
                self.follows = Follows::Frames(frames);
                self.passed = self.held.len();
                return Ok(Some(Protocol::Http2));
            }
            if !PREFACE.starts_with(&self.held) {
                self.follow();
                return Ok(Some(Protocol::Http1));
            }
            let arrived = poll_fn(|cx| {
                let limits = &self.limits;
                if is_over(&mut self.head_timer, cx, || limits().header_timeout) {
                    return Poll::Ready(Ok(None));
                }
                self.poll_hold(cx).map_ok(Some)
            });
            match arrived.await? {
                Some(0) => return Ok(None),
                Some(_) => {}
                None => {
                    self.follow();
                    return Ok(Some(Protocol::Http1)); // the same timer then refuses the head
                }
            }
        }
    }

    /// Follows what is held beyond what may be read already.
    fn follow(&mut self) {
        let Follows::Framing(framing) = &mut self.follows else { return };
        let followed = framing.follow(self.held.get(self.passed..).unwrap_or_default(), &(self.limits)());
        if followed.bytes > 0 {
            self.head_timer = None;
        }
        self.passed += followed.bytes;
        if let Some(fault) = followed.fault {
            self.stop(fault);
        }
    }

    /// Lets nothing pass any more but what has.
    fn stop(&mut self, fault: Fault) {
        let Follows::Framing(framing) = &self.follows else { return };
        self.held.truncate(self.passed);
        self.follows = if framing.is_in_body() {
            Follows::Broken(fault)
        } else {
            self.traffic.refuse(framing.heads(), fault);
            self.held.extend_from_slice(STAND_IN);
            self.passed = self.held.len();
            Follows::End
        };
    }

    /// Gives out what may be read, if there is any.
    fn hand_out(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let ready = self.held.get(self.taken..self.passed).unwrap_or_default();
        if ready.is_empty() {
            return false;
        }
        let length = ready.len().min(buffer.remaining());
        buffer.put_slice(ready.get(..length).unwrap_or_default());
        self.taken += length;
        if self.taken == self.held.len() {
            self.held = Vec::new(); // most connections never hold anything again
            (self.passed, self.taken) = (0, 0);
        } else if self.taken == self.passed {
            self.held.drain(..self.taken);
            (self.passed, self.taken) = (0, 0);
        }
        true
    }

    /// Reads into the library's own buffer, where nothing is held.
    fn poll_direct(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<Arrived>> {
        let before = buffer.filled().len();
        if Pin::new(&mut self.inner).poll_read(cx, buffer)?.is_pending() {
            return self.poll_overdue(cx);
        }
        let arrived = buffer.filled().get(before..).unwrap_or_default();
        if arrived.is_empty() {
            return Poll::Ready(Ok(Arrived::End));
        }
        let framing = match &mut self.follows {
            Follows::Framing(framing) => framing,
            Follows::Frames(frames) => {
                if frames.follow(arrived) {
                    self.head_timer = None;
                }
                return Poll::Ready(Ok(Arrived::Some));
            }
            Follows::End | Follows::Broken(_) => return Poll::Ready(Ok(Arrived::Some)),
        };
        let followed = framing.follow(arrived, &(self.limits)());
        self.held.extend_from_slice(arrived.get(followed.bytes..).unwrap_or_default());
        buffer.set_filled(before + followed.bytes);
        if let Some(fault) = followed.fault {
            self.stop(fault);
        }
        Poll::Ready(Ok(if followed.bytes > 0 { Arrived::Some } else { Arrived::Held }))
    }

    /// Waits for the rest of an HTTP/2 head, where one is on its way. Its time is asked for only where nothing is there to be
    /// read: what waited for the library has come.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arrived>> {
        let limits = &self.limits;
        if let Follows::Frames(frames) = &self.follows
            && frames.is_in_head()
            && is_over(&mut self.head_timer, cx, || limits().header_timeout)
        {
            self.traffic.give_up(Fault::HeadSlow.label());
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, Fault::HeadSlow)));
        }
        Poll::Pending
    }

    /// Reads what follows a head that came in parts.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arrived>> {
        let limits = &self.limits;
        if let Follows::Framing(framing) = &self.follows
            && framing.is_in_head()
        {
            if self.head_timer.is_none() {
                self.traffic.touch(clock::instant());
            }
            if is_over(&mut self.head_timer, cx, || limits().header_timeout) {
                self.stop(Fault::HeadSlow);
                return Poll::Ready(Ok(Arrived::Held));
            }
        }
        if ready!(self.poll_hold(cx))? == 0 {
            return Poll::Ready(Ok(Arrived::End));
        }
        self.follow();
        Poll::Ready(Ok(Arrived::Held))
    }

    fn written<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_timer = None;
            return written;
        }
        let limits = &self.limits;
        if is_over(&mut self.write_timer, cx, || limits().write_timeout) {
            self.traffic.give_up("slow_reader");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

/// What a read brought.
enum Arrived {
    /// Something that was read.
    Some,
    /// Something that is held.
    Held,
    /// The client sends nothing more.
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Socket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.hand_out(buffer) {
                return Poll::Ready(Ok(()));
            }
            let arrived = match &this.follows {
                Follows::End => return Poll::Pending, // the refusal closes the connection
                Follows::Broken(fault) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, *fault))),
                Follows::Framing(_) | Follows::Frames(_) if this.held.is_empty() => this.poll_direct(cx, buffer),
                Follows::Framing(_) | Follows::Frames(_) => this.poll_held(cx),
            };
            match ready!(arrived)? {
                Arrived::Some | Arrived::End => return Poll::Ready(Ok(())),
                Arrived::Held => {}
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.written(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, slices);
        this.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            this.traffic.flush();
        }
        this.written(cx, flushed)
    }

    /// Closes our side; then what the client still sends is thrown away for a moment.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.shut {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            this.shut = true;
        }
        // A client that sends nothing more has the whole answer, whatever it does next.
        let expects_more = match &this.follows {
            Follows::Framing(framing) => framing.is_in_body() || framing.is_in_head(),
            Follows::End | Follows::Broken(_) => true,
            Follows::Frames(_) => false,
        };
        let mut space = [0; ROOM];
        loop {
            let mut space = ReadBuf::new(&mut space);
            let read = Pin::new(&mut this.inner).poll_read(cx, &mut space);
            let more = match &read {
                Poll::Ready(Ok(())) => !space.filled().is_empty(),
                Poll::Ready(Err(_)) => false,
                Poll::Pending => expects_more,
            };
            if !more || is_over(&mut this.linger, cx, || LINGER) {
                return Poll::Ready(Ok(()));
            }
            if read.is_pending() {
                return Poll::Pending;
            }
        }
    }
}
