//! When the other end of a connection is taken for dead. It is asked for a sign of life every now and then, so one that
//! lives is never silent for long. Where the link is slow, whatever was written before has to get there first: the more
//! that is, the longer silence is borne. What the bytes are is not known here.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::clock;

/// Longest silence after nothing was written. Signs of life are asked for more often than that.
const SILENCE: Duration = Duration::from_secs(5);
/// So many bytes are taken to be a second on their way.
const RATE: u64 = 16 * 1024;
/// Most that is added for them.
const UNDERWAY: Duration = Duration::from_secs(10);
/// No silence is longer.
pub const LONGEST: Duration = Duration::from_secs(SILENCE.as_secs() + UNDERWAY.as_secs());

/// A connection that breaks when its other end has been silent for too long.
#[derive(Debug)]
pub struct Listened<S> {
    inner: S,
    /// When something was heard last.
    heard: Instant,
    /// Bytes written since.
    written: u64,
    timer: Pin<Box<Sleep>>,
}

impl<S> Listened<S> {
    /// A connection on which something was heard just now.
    pub fn new(inner: S) -> Self {
        let timer = Box::pin(tokio::time::sleep(SILENCE));
        Self { inner, heard: clock::instant(), written: 0, timer }
    }

    /// Until when silence is borne.
    fn due(&self) -> Instant {
        let underway = Duration::from_millis(self.written.saturating_mul(1000) / RATE);
        self.heard + SILENCE + underway.min(UNDERWAY)
    }

    /// Ready when silence has been too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let due = self.due();
            if due <= clock::instant() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }

    fn wrote(&mut self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        let bytes = written.as_ref().copied().unwrap_or_default();
        self.written = self.written.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        Poll::Ready(written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Listened<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(cx, buf) {
            (self.heard, self.written) = (clock::instant(), 0);
            return Poll::Ready(read);
        }
        let silent = || io::Error::new(io::ErrorKind::TimedOut, "the other end is silent");
        self.poll_silence(cx).map(|()| Err(silent()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Listened<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, buf));
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bufs));
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_borne_for_longer_after_much_was_written() {
        let (one, mut other) = tokio::io::duplex(1024 * 1024);
        let mut one = Listened::new(one);
        for (written, more) in [(0, Duration::ZERO), (32 * 1024, Duration::from_secs(2)), (900 * 1024, UNDERWAY)] {
            other.write_all(b"x").await.unwrap();
            one.read_exact(&mut [0]).await.unwrap();
            let begun = clock::instant();
            one.write_all(&vec![0; written]).await.unwrap();
            let silent = one.read_exact(&mut [0]).await.unwrap_err();
            assert_eq!((silent.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, SILENCE + more), "{written}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_says_something_now_and_then_is_not_silent() {
        let (one, mut other) = tokio::io::duplex(1024);
        let mut one = Listened::new(one);
        let talks = async {
            for _ in 0..9 {
                tokio::time::sleep(SILENCE * 9 / 10).await;
                other.write_all(b"x").await.unwrap();
            }
        };
        let mut said = [0; 9];
        let (heard, ()) = tokio::join!(one.read_exact(&mut said), talks);
        assert_eq!(heard.unwrap(), 9);
    }
}
