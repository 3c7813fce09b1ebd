//! A queue of events for one reader, bounded by their bytes. Who writes waits for room, so that a slow reader slows the
//! writer down; a reader that takes nothing for a while is given up, so that nobody waits on it for ever.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::body::BodyError;

/// Most bytes that wait for one reader; a single larger event waits alone.
const ROOM: u32 = 1024 * 1024;
/// How long a full queue may stay full.
const PATIENCE: Duration = Duration::from_secs(30);

/// The reader has gone, or took nothing for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// Bytes that hold their room until they are taken; nothing is the end.
type Piece = Option<(Bytes, OwnedSemaphorePermit)>;

/// The writing end.
#[derive(Clone, Debug)]
pub struct Outbox {
    sender: mpsc::UnboundedSender<Piece>,
    room: Arc<Semaphore>,
}

/// The reading end: a body.
#[derive(Debug)]
pub struct Inbox {
    receiver: mpsc::UnboundedReceiver<Piece>,
    room: Arc<Semaphore>,
}

/// A queue.
pub fn outbox() -> (Outbox, Inbox) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(ROOM as usize));
    (Outbox { sender, room: Arc::clone(&room) }, Inbox { receiver, room })
}

impl Outbox {
    /// Queues bytes, as soon as there is room for them.
    pub async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        let needed = u32::try_from(bytes.len()).unwrap_or(ROOM).clamp(1, ROOM);
        let room = Arc::clone(&self.room).acquire_many_owned(needed);
        match tokio::time::timeout(PATIENCE, room).await {
            Ok(Ok(permit)) => self.sender.send(Some((bytes, permit))).map_err(|_| Gone),
            Ok(Err(_closed)) => Err(Gone),
            Err(_slow) => {
                self.room.close();
                Err(Gone)
            }
        }
    }

    /// Whether somebody still reads.
    pub fn has_reader(&self) -> bool {
        !self.room.is_closed()
    }

    /// Ends the stream behind what is queued.
    pub fn finish(&self) {
        let _ = self.sender.send(None); // a reader that has gone needs no end
    }
}

impl Inbox {
    /// The next bytes; `None` at the end, or once all writers have gone.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.receiver.recv().await.flatten().map(|(bytes, _permit)| bytes)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.room.close();
    }
}

impl HttpBody for Inbox {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.room.is_closed() {
            return Poll::Ready(None); // given up
        }
        self.receiver.poll_recv(cx).map(|piece| piece.flatten().map(|(bytes, _permit)| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_writes_waits_for_room_and_a_reader_that_takes_nothing_is_given_up() {
        let (outbox, mut inbox) = outbox();
        let piece = || Bytes::from(vec![b'x'; ROOM as usize / 2]);
        outbox.send(piece()).await.unwrap();
        outbox.send(piece()).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_secs(29), outbox.send(piece()));
        assert!(waiting.await.is_err(), "there is no room");
        assert!(inbox.next().await.is_some());
        outbox.send(piece()).await.unwrap();
        assert_eq!(outbox.send(piece()).await, Err(Gone));
        assert!(inbox.frame().await.is_none(), "the slow reader is cut");
        assert_eq!(outbox.send(Bytes::new()).await, Err(Gone));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_larger_than_the_queue_waits_alone() {
        let (outbox, mut inbox) = outbox();
        outbox.send(Bytes::from(vec![b'x'; 3 * ROOM as usize])).await.unwrap();
        assert_eq!(inbox.next().await.unwrap().len(), 3 * ROOM as usize);
        outbox.send(Bytes::from_static(b"a")).await.unwrap();
        outbox.finish();
        assert_eq!(inbox.next().await.unwrap(), "a");
        assert_eq!(inbox.next().await, None);
        drop(inbox);
        assert_eq!(outbox.send(Bytes::from_static(b"a")).await, Err(Gone));
    }
}
