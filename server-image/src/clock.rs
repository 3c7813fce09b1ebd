//! The clock, read here and nowhere else: what is decided takes the time as an argument.

use jiff::Timestamp;
use tokio::time::Instant;

/// The wall clock, for expiry.
#[expect(clippy::disallowed_methods, reason = "the rim: the one place that reads the wall clock")]
pub fn wall() -> Timestamp {
    Timestamp::now()
}

/// The monotonic clock, for durations and deadlines.
#[expect(clippy::disallowed_methods, reason = "the rim: the one place that reads the monotonic clock")]
pub fn instant() -> Instant {
    Instant::now()
}
