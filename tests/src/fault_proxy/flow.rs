//! The bytes of one watch on their way to the operator, and the valve in them.

use std::sync::Arc;

use anyhow::{Error, anyhow};
use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::sync::watch;

use super::Request;

/// What happens to the bytes of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// They pass.
    Open,
    /// They wait.
    Held,
    /// They never come, and the connection stays.
    Hung,
    /// The connection breaks.
    Cut,
    /// The watch ends as API servers end it.
    Ended,
}

/// A running watch.
pub(super) struct Stream {
    pub(super) request: Request,
    flow: watch::Sender<Flow>,
}

impl Stream {
    /// Whether the operator still listens.
    pub(super) fn is_running(&self) -> bool {
        !self.flow.is_closed()
    }

    /// Turns the valve; what hung, broke or ended stays so.
    pub(super) fn set(&self, flow: Flow) -> bool {
        self.flow.send_if_modified(|now| {
            let turns = matches!(*now, Flow::Open | Flow::Held) && *now != flow;
            if turns {
                *now = flow;
            }
            turns
        })
    }
}

/// The body that the operator reads, and the handle of its valve.
pub(super) fn body(request: Request, body: Incoming, flow: Flow) -> (Arc<Stream>, UnsyncBoxBody<Bytes, Error>) {
    let (sender, receiver) = watch::channel(flow);
    let frames = stream::unfold((body, receiver), |(mut body, mut flow)| async move {
        loop {
            let now = *flow.borrow_and_update();
            match now {
                Flow::Ended => return None,
                Flow::Cut => return Some((Err(anyhow!("cut")), (body, flow))),
                Flow::Held | Flow::Hung => {
                    if flow.changed().await.is_err() {
                        return None;
                    }
                }
                Flow::Open => tokio::select! {
                    changed = flow.changed() => if changed.is_err() { return None },
                    frame = body.frame() => {
                        let frame: Result<Frame<Bytes>, Error> = frame?.map_err(Error::from);
                        return Some((frame, (body, flow)));
                    }
                },
            }
        }
    });
    (Arc::new(Stream { request, flow: sender }), BodyExt::boxed_unsync(StreamBody::new(frames)))
}
