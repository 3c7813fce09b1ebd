//! Tells a person what is being done, and in a long step now and then that it goes on.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Result;

/// How long a step may be silent.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// One line on standard error. It goes past the capture of test runners, because a build of minutes would look like a hang.
pub fn say(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "  {}", text.as_ref());
}

/// Does a step, saying before what it does, while it lasts that it goes on, and after it how long it took.
pub fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    say(format!("{what} ..."));
    let (done, ended) = channel::<()>();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                say(format!("{what} ... {} s so far", start.elapsed().as_secs()));
            }
        });
        let outcome = work();
        drop(done);
        outcome
    });
    let end = if outcome.is_ok() { "done" } else { "failed" };
    say(format!("{what}: {end} in {:.1} s", start.elapsed().as_secs_f32()));
    outcome
}
