//! Calls without an end, while something happens: how many were answered, and which were not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use http::StatusCode;
use mooring_tests::mcp::{Refused, Target};
use serde_json::json;
use tokio::task::JoinHandle;

/// Between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(10);
/// Callers of one tool.
const CALLERS: usize = 2;

/// Callers, each of which calls again and again. They end with [`Calls::stop`], or when this is dropped.
pub(crate) struct Calls {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    last_failure: Arc<Mutex<String>>,
    callers: Vec<JoinHandle<Tally>>,
}

/// What one caller met.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) answered: usize,
    pub(crate) failures: Vec<Failure>,
    pub(crate) slowest: Duration,
}

/// A call that failed.
pub(crate) struct Failure {
    /// Its answer's, if it had one.
    pub(crate) status: Option<StatusCode>,
    /// When, since all began, and how.
    pub(crate) words: String,
}

impl Tally {
    /// How many calls were answered with this status.
    pub(crate) fn count(&self, status: StatusCode) -> usize {
        self.failures.iter().filter(|failure| failure.status == Some(status)).count()
    }

    /// The failures in words.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.failures.iter().map(|failure| failure.words.as_str()).collect()
    }
}

impl Calls {
    /// Begins to call a tool without arguments.
    pub(crate) fn begin(target: &Target, tool: &'static str) -> Self {
        let caller = |_| {
            let target = target.clone();
            move || {
                let target = target.clone();
                async move { target.call(tool, json!({})).await.map(drop) }
            }
        };
        Self::each(PAUSE, (0..CALLERS).map(caller))
    }

    /// Begins to do what each caller does, with this pause between two calls of one.
    pub(crate) fn each<C, F>(pause: Duration, callers: impl IntoIterator<Item = C>) -> Self
    where
        C: Fn() -> F + Send + 'static,
        F: Future<Output = Result<()>> + Send,
    {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let last_failure = Arc::new(Mutex::new("none failed".to_owned()));
        let start = Instant::now();
        let callers = callers.into_iter().map(|call| {
            let (stop, answered, last_failure) = (Arc::clone(&stop), Arc::clone(&answered), Arc::clone(&last_failure));
            tokio::spawn(async move {
                let mut tally = Tally::default();
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    match call().await {
                        Ok(()) => {
                            tally.answered += 1;
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => {
                            let words = format!("{:?} to {:?}: {error:#}", begun - start, start.elapsed());
                            last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&words);
                            tally.failures.push(Failure { status: Refused::status(&error), words });
                        }
                    }
                    tally.slowest = tally.slowest.max(begun.elapsed());
                    tokio::time::sleep(pause).await;
                }
                tally
            })
        });
        let callers = callers.collect();
        Self { stop, answered, last_failure, callers }
    }

    /// How many were answered so far.
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until this many more were answered, so that something was called after a change.
    pub(crate) async fn more(&self, count: usize) -> Result<()> {
        let wanted = self.answered() + count;
        let limit = Instant::now() + Duration::from_secs(60);
        while self.answered() < wanted {
            if Instant::now() >= limit {
                let last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
                bail!("only {} of {wanted} calls were answered; the last failure: {last}", self.answered());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Ends them, and says what each caller met.
    pub(crate) async fn stop(mut self) -> Result<Vec<Tally>> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(try_join_all(std::mem::take(&mut self.callers)).await?)
    }

    /// Ends them. An error if one call failed; else how many there were and how long the slowest took.
    pub(crate) async fn all_answered(self) -> Result<(usize, Duration)> {
        let tallies = self.stop().await?;
        let answered = tallies.iter().map(|tally| tally.answered).sum();
        let failures: Vec<_> = tallies.iter().flat_map(Tally::words).collect();
        ensure!(answered > 0, "no call was answered: {:?}", failures.first());
        if !failures.is_empty() {
            let first = failures[..failures.len().min(6)].join("\n");
            bail!("{} calls failed and {answered} were answered; the first:\n{first}", failures.len());
        }
        Ok((answered, tallies.iter().map(|tally| tally.slowest).max().unwrap_or_default()))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
