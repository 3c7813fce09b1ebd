//! The end of the pipeline: an answer on its way to the client. It keeps a silent event stream alive, ends it when the
//! caller is not welcome any more, and holds the call's deadline. It passes bytes through and never holds them back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::body::{self, Body, BodyError};
use crate::clock;
use crate::log::cause;
use crate::metrics::InFlight;
use crate::refusal::Refusal;

/// How long a stream may be silent.
pub const SILENCE: Duration = Duration::from_secs(15);
/// What is said then: a comment, which clients skip.
pub const COMMENT: &[u8] = b": keep-alive\n\n";

/// Resolves when the stream must end.
pub type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Is told what goes wrong once an answer has begun, when no status can tell it any more.
pub type Failed = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// What holds for one answer.
pub struct Terms {
    /// When the answer must have ended.
    pub deadline: Option<Instant>,
    /// Is told of an answer that breaks off, or is cut off by its deadline.
    pub failed: Option<Failed>,
    /// For event streams: when the stream must end.
    pub end: Option<End>,
    /// Whether silence is broken by a comment: for event streams that are not compressed.
    pub comments: bool,
    /// Counts the exchange until its answer has ended.
    pub in_flight: Option<InFlight>,
}

/// Puts an answer under its terms.
pub fn under(terms: Terms, body: Body) -> Body {
    let silence = terms.comments.then(|| Box::pin(tokio::time::sleep(SILENCE)));
    http_body_util::BodyExt::boxed_unsync(Answer {
        inner: body,
        deadline: terms.deadline,
        failed: terms.failed,
        overdue: None,
        end: terms.end,
        silence,
        boundary: Boundary::default(),
        ended: false,
        _in_flight: terms.in_flight,
    })
}

struct Answer {
    inner: Body,
    deadline: Option<Instant>,
    failed: Option<Failed>,
    /// Resolves at the deadline; made when the answer is first waited for, which most never are.
    overdue: Option<Pin<Box<Sleep>>>,
    end: Option<End>,
    silence: Option<Pin<Box<Sleep>>>,
    boundary: Boundary,
    ended: bool,
    _in_flight: Option<InFlight>,
}

impl Answer {
    /// Whether the deadline is over: by the timer, or by the clock as long as the answer was never waited for.
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.overdue {
            Some(overdue) => overdue.as_mut().poll(cx).is_ready(),
            None => self.deadline.is_some_and(|deadline| deadline <= clock::instant()),
        }
    }

    /// Ends the exchange with the backend, too, even if the client keeps its side.
    fn stop(&mut self) {
        self.ended = true;
        self.inner = body::empty();
    }

    fn fails(&self, refusal: &Refusal) {
        if let Some(failed) = &self.failed {
            failed(refusal);
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the call timeout ended before the answer did")]
struct Overdue;

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        if this.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready()) {
            this.stop();
            return Poll::Ready(None);
        }
        if this.is_overdue(cx) {
            if this.end.is_none() {
                this.stop();
                this.fails(&Refusal::BackendSlow);
                return Poll::Ready(Some(Err(Overdue.into()))); // it must be seen to be cut off
            }
            // An event stream may end anywhere; what it has to say about the timeout goes first.
            let last = Pin::new(&mut this.inner).poll_frame(cx);
            this.stop();
            if !matches!(last, Poll::Ready(None)) {
                this.fails(&Refusal::BackendSlow);
            }
            return if last.is_ready() { last } else { Poll::Ready(None) };
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(silence), Some(data)) = (&mut this.silence, frame.data_ref()) {
                    this.boundary.pass(data);
                    silence.as_mut().reset(clock::instant() + SILENCE);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(end) => {
                this.ended = true;
                if let Some(Err(error)) = &end {
                    tracing::info!(%error, cause = cause(error.as_ref()), "an answer broke off");
                    this.fails(&Refusal::BackendBroken);
                }
                Poll::Ready(end)
            }
            Poll::Pending => {
                if let Some(deadline) = this.deadline.take() {
                    let mut overdue = Box::pin(tokio::time::sleep_until(deadline));
                    if overdue.as_mut().poll(cx).is_ready() {
                        cx.waker().wake_by_ref();
                    }
                    this.overdue = Some(overdue);
                }
                let Some(silence) = &mut this.silence else { return Poll::Pending };
                while silence.as_mut().poll(cx).is_ready() {
                    silence.as_mut().reset(clock::instant() + SILENCE);
                    if this.boundary.is_between_events() {
                        if this.boundary.is_at_begin() {
                            let inner = std::mem::replace(&mut this.inner, body::empty());
                            this.inner = body::without_mark(inner);
                        }
                        this.boundary.pass(COMMENT);
                        return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))));
                    }
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // A stream may get comments, so its size is not known.
        if self.end.is_some() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

/// Whether a stream stands between two events: at its begin, or after an empty line.
#[derive(Debug, Default)]
pub struct Boundary {
    /// The last bytes that passed, the newest in the lowest byte; `None` before the first.
    tail: Option<u32>,
}

impl Boundary {
    /// Bytes that passed.
    pub fn pass(&mut self, data: &[u8]) {
        let newest = data.get(data.len().saturating_sub(4)..).unwrap_or_default();
        for byte in newest {
            self.tail = Some((self.tail.unwrap_or_default() << 8) | u32::from(*byte));
        }
    }

    /// Whether nothing has passed.
    pub fn is_at_begin(&self) -> bool {
        self.tail.is_none()
    }

    /// Whether a comment may be written now. Lines end with LF or CRLF; in a stream that ends them with CR alone, which
    /// nobody writes, it is never said.
    pub fn is_between_events(&self) -> bool {
        self.tail.is_none_or(|tail| tail & 0xffff == 0x0a0a || tail & 0x00ff_ffff == 0x000a_0d0a)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};
    use proptest::prelude::*;
    use tokio::sync::mpsc;

    use super::*;

    fn events(end: impl Future<Output = ()> + Send + 'static) -> Terms {
        Terms { deadline: None, failed: None, end: Some(Box::pin(end)), comments: true, in_flight: None }
    }

    fn channel() -> (mpsc::UnboundedSender<&'static str>, Body) {
        let (sender, receiver) = mpsc::unbounded_channel::<&'static str>();
        let frames = futures::stream::unfold(receiver, |mut receiver| async move {
            let text = receiver.recv().await?;
            Some((Ok::<_, BodyError>(Frame::data(Bytes::from_static(text.as_bytes()))), receiver))
        });
        (sender, StreamBody::new(frames).boxed_unsync())
    }

    async fn next(body: &mut Body) -> Option<String> {
        let frame = body.frame().await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_comment_breaks_silence_between_events_only() {
        let (sender, body) = channel();
        let mut body = under(events(std::future::pending()), body);
        let begin = clock::instant();
        assert_eq!(next(&mut body).await.unwrap(), ": keep-alive\n\n");
        assert_eq!((clock::instant() - begin).as_secs(), 15);
        sender.send("data: half").unwrap();
        assert_eq!(next(&mut body).await.unwrap(), "data: half");
        let silent = tokio::time::timeout(Duration::from_secs(100), next(&mut body)).await;
        assert!(silent.is_err(), "a comment within an event: {silent:?}");
        sender.send(" whole\r\n\r\n").unwrap();
        assert_eq!(next(&mut body).await.unwrap(), " whole\r\n\r\n");
        assert_eq!(next(&mut body).await.unwrap(), ": keep-alive\n\n");
        drop(sender);
        assert_eq!(next(&mut body).await, None);
    }

    /// Before a comment it is a mark; behind one it would be a part of the first field's name.
    #[tokio::test(start_paused = true)]
    async fn a_byte_order_mark_is_taken_away_behind_a_comment_and_left_elsewhere() {
        const EVENT: &str = "data: 1\n\n";
        for (first, rest) in [("\u{feff}data: 1\n\n", EVENT), (EVENT, EVENT), ("\u{feff}", "")] {
            for is_late in [false, true] {
                let (sender, body) = channel();
                let mut body = under(events(std::future::pending()), body);
                if is_late {
                    assert_eq!(next(&mut body).await.unwrap(), ": keep-alive\n\n");
                    assert_eq!(next(&mut body).await.unwrap(), ": keep-alive\n\n");
                }
                sender.send(first).unwrap();
                sender.send(EVENT).unwrap();
                if !is_late {
                    assert_eq!(next(&mut body).await.unwrap(), first);
                } else if !rest.is_empty() {
                    assert_eq!(next(&mut body).await.unwrap(), rest);
                }
                assert_eq!(next(&mut body).await.unwrap(), EVENT);
                assert_eq!(next(&mut body).await.unwrap(), ": keep-alive\n\n");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_it_must() {
        let (_sender, body) = channel();
        let mut body = under(events(tokio::time::sleep(Duration::from_secs(3))), body);
        assert_eq!(next(&mut body).await, None);
        let (_sender, body) = channel();
        let terms = events(std::future::pending());
        let deadline = Some(clock::instant() + Duration::from_secs(5));
        let mut body = under(Terms { deadline, ..terms }, body);
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_compressed_stream_gets_no_comment_and_ends_all_the_same() {
        let (_sender, body) = channel();
        let terms = events(tokio::time::sleep(Duration::from_secs(40)));
        let mut body = under(Terms { comments: false, ..terms }, body);
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_overdue_answer_is_seen_to_be_cut_off() {
        let (sender, body) = channel();
        sender.send("{").unwrap();
        let deadline = Some(clock::instant() + Duration::from_secs(5));
        let mut body = under(Terms { deadline, failed: None, end: None, comments: false, in_flight: None }, body);
        assert_eq!(next(&mut body).await.unwrap(), "{");
        assert!(body.frame().await.unwrap().is_err());
    }

    #[test]
    fn bytes_of_zero_are_no_begin() {
        let mut boundary = Boundary::default();
        boundary.pass(b"");
        assert!(boundary.is_between_events() && boundary.is_at_begin());
        boundary.pass(b"data: \0\0\0\0");
        assert!(!boundary.is_between_events() && !boundary.is_at_begin());
        boundary.pass(b"\n\n");
        assert!(boundary.is_between_events() && !boundary.is_at_begin());
    }

    proptest! {
        #[test]
        fn boundaries_do_not_depend_on_how_the_stream_is_cut(
            text in "(data: [a-z]{0,3}\r?\n|\r?\n){0,8}",
            cuts in prop::collection::vec(0_usize..64, 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut whole = Boundary::default();
            whole.pass(bytes);
            let mut positions: Vec<_> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            positions.extend([0, bytes.len()]);
            positions.sort_unstable();
            let mut pieces = Boundary::default();
            for pair in positions.windows(2) {
                pieces.pass(&bytes[pair[0]..pair[1]]);
            }
            prop_assert_eq!(whole.is_between_events(), pieces.is_between_events());
            let expected = text.is_empty() || text.ends_with("\n\n") || text.ends_with("\n\r\n");
            prop_assert_eq!(whole.is_between_events(), expected);
        }
    }
}
