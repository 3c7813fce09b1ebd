//! Tests of the front door as a whole: the pipeline without sockets, and over loopback.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Once;
use std::time::Duration;

mod backend;
mod broken;
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

thread_local! {
    /// What is logged on this thread, where that is wanted.
    static LOGGED: RefCell<Option<Rc<RefCell<Vec<u8>>>>> = const { RefCell::new(None) };
}

struct Logged;

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow(|logged| logged.iter().for_each(|logged| logged.borrow_mut().extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What this thread logs until it is dropped, as the process would write it, but for the time.
pub struct Log(Rc<RefCell<Vec<u8>>>);

impl Drop for Log {
    fn drop(&mut self) {
        LOGGED.set(None);
    }
}

impl Log {
    pub fn new() -> Self {
        // One subscriber for all threads: with one of a thread's own, a line that another thread is the first to write is
        // taken to be wanted by nobody.
        static STARTED: Once = Once::new();
        STARTED.call_once(|| {
            let json = tracing_subscriber::fmt().with_writer(|| Logged).json().flatten_event(true);
            json.with_current_span(false).with_span_list(false).without_time().init();
            tracing::callsite::rebuild_interest_cache();
        });
        let logged = Rc::default();
        LOGGED.set(Some(Rc::clone(&logged)));
        Self(logged)
    }

    /// The lines that have this message.
    pub fn lines(&self, message: &str) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.0.borrow().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter(|line| line["message"] == message).collect()
    }
}
