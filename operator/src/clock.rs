//! The only place that reads a clock. Everything else is told the time.

use jiff::Timestamp;
use tokio::time::Instant;

/// Now, as people and the API write it.
#[expect(clippy::disallowed_methods, reason = "this is the rim: the one reader of the wall clock")]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Now, for measuring how long something takes.
#[expect(clippy::disallowed_methods, reason = "this is the rim: the one reader of the monotonic clock")]
pub fn instant() -> Instant {
    Instant::now()
}
