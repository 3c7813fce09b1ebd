//! Waiting for a condition, bounded, with the last reason in the error.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::progress;

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long a wait may be silent. What bounds it from outside ends it without a word.
const SILENT: Duration = Duration::from_secs(45);

/// Checks again and again until the answer is `Ok`; after `limit` the last error is returned, with what was waited for.
pub async fn until<T, F>(what: &str, limit: Duration, mut check: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let start = Instant::now();
    let (mut said, mut told) = (None, Duration::ZERO);
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let outcome = match tokio::time::timeout(left.max(INTERVAL), check()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(said.take().unwrap_or_else(|| anyhow::anyhow!("no answer"))),
        };
        match outcome {
            Err(error) if start.elapsed() >= limit => {
                return Err(error).with_context(|| format!("waited {} s for {what}", limit.as_secs()));
            }
            Err(error) => {
                if start.elapsed() >= told + SILENT {
                    told = start.elapsed();
                    progress::say(format!("waiting for {what}, {} s so far: {error:#}", told.as_secs()));
                }
                said = Some(error);
                tokio::time::sleep(INTERVAL).await;
            }
            found => return found,
        }
    }
}
