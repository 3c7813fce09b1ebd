//! One connection to the server: a message out, an answer in, moved along by whoever waits for the answer. It holds memory
//! for what is on its way and for nothing else, so that a stream on which nothing happens costs next to nothing.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::net::TcpStream;

use super::answer::{self, Head, Malformed};
use super::message::Message;

/// What is read at once: at first, and where much comes.
const READ: usize = 4 * 1024;
const READ_MUCH: usize = 64 * 1024;

/// Why there is no answer, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection failed.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// The server closed it.
    #[error("the server closed the connection before its answer had ended")]
    Closed,
    /// What came is no answer.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// One connection.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    /// What was not sent yet: head and body.
    unsent: [Bytes; 2],
    /// Whether anything of the message was sent.
    begun: bool,
    /// Whether sending has failed.
    fails: bool,
    /// What came and was not taken yet.
    pub rest: Bytes,
    /// How much is read at once.
    read: usize,
}

impl Line {
    /// A connection that is open.
    pub fn new(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true); // a socket without it still works
        Self {
            stream,
            unsent: [Bytes::new(), Bytes::new()],
            begun: false,
            fails: false,
            rest: Bytes::new(),
            read: READ,
        }
    }

    /// Sends a message and waits for the head of its answer. On failure the second value says whether anything was sent.
    pub async fn exchange(&mut self, message: &Message) -> Result<Head, (Broken, bool)> {
        self.unsent = [message.head.clone(), message.body.clone()];
        self.begun = false;
        poll_fn(|cx| self.poll_head(cx)).await.map_err(|broken| (broken, self.begun))
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Broken>> {
        let sending = self.poll_send(cx);
        loop {
            if !self.rest.is_empty()
                && let Some(head) = answer::head(&mut self.rest)?
            {
                return Poll::Ready(Ok(head));
            }
            // A server may answer what it has not read to its end, and closes then: its answer counts, if there is one.
            match ready!(self.poll_read(cx)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Err(sending.err().map_or(Broken::Closed, Broken::from))),
                Err(error) => return Poll::Ready(Err(sending.err().unwrap_or(error).into())),
            }
        }
    }

    /// Sends as much as goes now. After a failure nothing more is sent.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.has_sent() {
            let slices = self.unsent.each_ref().map(|part| io::IoSlice::new(part));
            let sent = match Pin::new(&mut self.stream).poll_write_vectored(cx, &slices) {
                Poll::Pending => return Ok(()),
                Poll::Ready(sent) => sent.inspect_err(|_| self.fails = true)?,
            };
            self.begun = true;
            let [head, body] = &mut self.unsent;
            let of_head = sent.min(head.len());
            // Not `advance`: what is sent to its end is let go.
            drop((head.split_to(of_head), body.split_to(sent - of_head)));
        }
        Ok(())
    }

    /// Whether nothing more is to be sent.
    pub fn has_sent(&self) -> bool {
        self.fails || self.unsent.iter().all(Bytes::is_empty)
    }

    /// Reads more behind what came. Returns whether there is more, or the server has closed the connection.
    pub fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        ready!(self.stream.poll_read_ready(cx))?; // no memory before there is something for it
        let mut buffer = BytesMut::from(std::mem::take(&mut self.rest));
        buffer.reserve(self.read);
        let read = pin!(self.stream.read_buf(&mut buffer)).poll(cx);
        let full = buffer.len() == buffer.capacity();
        if !buffer.is_empty() {
            self.rest = buffer.freeze();
        }
        let count = ready!(read)?;
        if full {
            self.read = (self.read * 2).min(READ_MUCH);
        } else if count < self.read / 4 {
            self.read = (self.read / 2).max(READ);
        }
        Poll::Ready(Ok(count > 0))
    }

    /// Whether it could serve another exchange: everything was sent and read, and the server has said nothing since, nor
    /// closed it.
    pub fn is_ready(&mut self) -> bool {
        !self.fails
            && self.has_sent()
            && self.rest.is_empty()
            && self.poll_read(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    /// Whether nothing has come, not even the end. It asks the kernel: what the runtime knows may be older than the last call
    /// that it was busy with.
    pub fn is_silent(&self) -> bool {
        let peeked = SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
