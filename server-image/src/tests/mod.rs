//! Tests of the front door as a whole: the pipeline without sockets, and over loopback.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::subscriber::DefaultGuard;

mod backend;
mod disconnects;
mod drain;
mod eras;
mod failures;
mod front;
mod guarded;
mod handshakes;
mod http_2;
pub mod kubelet;
mod limits;
mod managed;
mod older;
mod policy;
mod refusals;
mod relayed;
mod reloads;
mod secrets;
mod sessions;
mod smuggling;
mod times;
mod tooled;
mod wire;

/// Waits until `condition` holds; a test fails when it does not within some seconds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within 10 s: {what}");
}

/// Lets this time pass at once. The clock stands still for no longer than that takes, so no socket is waited for meanwhile.
pub async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// What this thread logs until it is dropped, as the process would write it, but for the time.
pub struct Log {
    written: Arc<Written>,
    _until: DefaultGuard,
}

#[derive(Default)]
struct Written(Mutex<Vec<u8>>);

impl io::Write for &Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub fn new() -> Self {
        let written = Arc::<Written>::default();
        let json = tracing_subscriber::fmt().with_writer(Arc::clone(&written)).json().flatten_event(true);
        let subscriber = json.with_current_span(false).with_span_list(false).without_time().finish();
        Self { written, _until: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines that have this message.
    pub fn lines(&self, message: &str) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.written.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter(|line| line["message"] == message).collect()
    }
}
