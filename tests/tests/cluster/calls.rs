//! Calls without a pause, while something happens: how many were answered, and which were not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use mooring_tests::mcp::Target;
use serde_json::json;
use tokio::task::JoinHandle;

/// Between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(10);
/// Callers at a time.
const CALLERS: usize = 2;

/// Running calls of one tool. They end with [`Calls::all_answered`], or when this is dropped.
pub(crate) struct Calls {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    callers: Vec<JoinHandle<Tally>>,
}

#[derive(Default)]
struct Tally {
    failures: Vec<String>,
    slowest: Duration,
}

impl Calls {
    /// Begins to call a tool without arguments.
    pub(crate) fn begin(target: &Target, tool: &'static str) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let start = Instant::now();
        let caller = |_| {
            let (target, stop, answered) = (target.clone(), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut tally = Tally::default();
                while !stop.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    match target.call(tool, json!({})).await {
                        Ok(_) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => tally.failures.push(format!("{:?}: {error:#}", begun - start)),
                    }
                    tally.slowest = tally.slowest.max(begun.elapsed());
                    tokio::time::sleep(PAUSE).await;
                }
                tally
            })
        };
        let callers = (0..CALLERS).map(caller).collect();
        Self { stop, answered, callers }
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
            ensure!(Instant::now() < limit, "only {} of {wanted} calls were answered", self.answered());
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Ends them. An error if one call failed; else how many there were and how long the slowest took.
    pub(crate) async fn all_answered(mut self) -> Result<(usize, Duration)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut total = Tally::default();
        for caller in std::mem::take(&mut self.callers) {
            let tally = caller.await?;
            total.failures.extend(tally.failures);
            total.slowest = total.slowest.max(tally.slowest);
        }
        let answered = self.answered();
        ensure!(answered > 0, "no call was answered: {:?}", total.failures.first());
        if !total.failures.is_empty() {
            let count = total.failures.len();
            total.failures.truncate(6);
            bail!("{count} calls failed and {answered} were answered; the first:\n{}", total.failures.join("\n"));
        }
        Ok((answered, total.slowest))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
