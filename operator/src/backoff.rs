//! How long to wait before something that failed is tried again: a pure function of how often it failed, with jitter so
//! that what failed together is not tried again together.

use std::time::Duration;

/// The first wait.
pub const FIRST: Duration = Duration::from_millis(500);
/// The longest wait.
pub const LONGEST: Duration = Duration::from_secs(300);

/// The wait after `failures` failures in a row: doubling from [`FIRST`] to [`LONGEST`], of which up to a quarter is taken
/// off by `jitter` (0 up to 1). A wait that the API server asked for (`at_least`) is kept in any case.
pub fn delay(failures: u32, jitter: f64, at_least: Option<Duration>) -> Duration {
    let exponent = failures.saturating_sub(1).min(16);
    let full = FIRST.saturating_mul(1 << exponent).min(LONGEST);
    full.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 4.0).max(at_least.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        assert_eq!(delay(1, 0.0, None), FIRST);
        assert_eq!(delay(2, 0.0, None), FIRST * 2);
        assert_eq!(delay(4, 0.0, None), FIRST * 8);
        assert_eq!(delay(u32::MAX, 0.0, None), LONGEST);
    }

    #[test]
    fn jitter_takes_off_a_quarter_at_most() {
        assert_eq!(delay(1, 1.0, None), FIRST * 3 / 4);
        assert_eq!(delay(1, 7.0, None), FIRST * 3 / 4);
        assert!(delay(3, 0.3, None) > delay(3, 0.6, None));
    }

    #[test]
    fn what_the_server_asks_for_is_kept() {
        assert_eq!(delay(1, 0.5, Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(delay(u32::MAX, 0.0, Some(Duration::from_secs(7))), LONGEST);
    }
}
