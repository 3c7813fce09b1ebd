//! The life of a client's session on `/sse`: it ends with its event stream, and, when the front door stops, as soon as no
//! request waits for its answer.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::door::{Door, Phase};
use crate::refusal::Refusal;

/// Most requests of one session that wait for their answers.
const RUNNING_MAXIMUM: usize = 64;

/// One life.
#[derive(Debug, Default)]
pub struct Life {
    ended: CancellationToken,
    running: Arc<watch::Sender<usize>>,
}

/// A request that waits for its answer, until it is dropped.
#[derive(Debug)]
pub struct Running(Arc<watch::Sender<usize>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running = running.saturating_sub(1));
    }
}

impl Life {
    /// Counts a request; 503 where there are too many.
    pub fn begin(&self) -> Result<Running, Refusal> {
        let begun = self.running.send_if_modified(|running| {
            let room = *running < RUNNING_MAXIMUM;
            *running += usize::from(room);
            room
        });
        if begun { Ok(Running(Arc::clone(&self.running))) } else { Err(Refusal::Busy) }
    }

    /// Ends the life when it is dropped: it belongs into the stream.
    pub fn guard(&self) -> DropGuard {
        self.ended.clone().drop_guard()
    }

    /// Resolves when the stream has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.ended.clone().cancelled_owned()
    }

    /// Resolves when the front door stops and no request waits any more.
    pub fn stopped(&self, door: &Door) -> impl Future<Output = ()> + Send + use<> {
        let (mut phases, mut running) = (door.phases(), self.running.subscribe());
        async move {
            // An error means that who tells has gone, and with it everything that was running.
            let _ = phases.wait_for(|phase| *phase == Phase::Stopping).await;
            let _ = running.wait_for(|running| *running == 0).await;
        }
    }
}
