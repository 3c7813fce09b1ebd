//! Takes servers from the queue and makes passes over them, a bounded number at a time. What is urgent may go beyond
//! that bound, so that a revoked key does not wait for a thousand new servers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::key::{ChildKey, Kind, ServerKey};
use crate::metrics::{Metrics, Pass};
use crate::queue::{Lane, Queue};
use crate::reconcile::Reconciler;
use crate::turns::Turns;
use crate::world::{Cause, Wake, World};
use crate::{backoff, clock, random};

/// How long to collect what happens to a server's children before a pass: a Deployment reports in a flurry.
const COLLECT: Duration = Duration::from_millis(200);
/// How often every server is looked at without a cause: session keys grow old within weeks, for which a timer for each
/// server would be much.
const SWEEP: Duration = Duration::from_hours(24);
/// Passes that may be made beyond the bound when they are urgent.
const URGENT_BEYOND: usize = 2;

/// The queue, and who works on it.
pub struct Dispatcher {
    queue: Mutex<Queue>,
    changed: Notify,
    /// Servers that this process made a pass over.
    begun: Mutex<HashSet<ServerKey>>,
    world: Arc<World>,
    turns: Arc<Turns>,
    metrics: Arc<Metrics>,
    reconciler: OnceLock<Reconciler>,
    concurrency: usize,
}

impl Dispatcher {
    /// A dispatcher that makes `concurrency` passes at a time.
    pub fn new(world: Arc<World>, turns: Arc<Turns>, metrics: Arc<Metrics>, concurrency: usize) -> Self {
        Self {
            queue: Mutex::default(),
            changed: Notify::new(),
            begun: Mutex::default(),
            world,
            turns,
            metrics,
            reconciler: OnceLock::new(),
            concurrency,
        }
    }

    /// Takes note of what concerns which server. Nothing is begun before [`Self::run`], which begins with all of them.
    pub fn wake(&self, wakes: Vec<Wake>) {
        if self.reconciler.get().is_none() {
            return;
        }
        let now = clock::instant();
        let mut further = Vec::new();
        {
            let mut queue = lock(&self.queue);
            for (key, cause) in wakes {
                further.extend(self.settle_turn(&key, cause));
                self.add(&mut queue, &key, cause, now);
            }
            for key in further {
                queue.add(&key, Lane::Begun, now);
            }
            self.metrics.queued(queue.len());
        }
        self.changed.notify_one();
    }

    fn add(&self, queue: &mut Queue, key: &ServerKey, cause: Cause, now: tokio::time::Instant) {
        let lane = if lock(&self.begun).contains(key) { Lane::Begun } else { Lane::Fresh };
        match cause {
            Cause::Spec => queue.add_changed(key, lane, now),
            Cause::Gone => {
                queue.forget(key);
                lock(&self.begun).remove(key);
                if let Some(reconciler) = self.reconciler.get() {
                    reconciler.refresher.forget(key);
                }
            }
            // While a pass is under way, what it writes itself comes back as news: that can be collected.
            Cause::Keys if !queue.is_running(key) => queue.add(key, Lane::Urgent, now),
            Cause::Keys | Cause::Other => queue.add(key, lane, now + COLLECT),
        }
    }

    /// A Deployment may have ended its move to a new front-door image, and let the next one begin.
    fn settle_turn(&self, key: &ServerKey, cause: Cause) -> Vec<ServerKey> {
        let image = &self.world.settings().front_door_image;
        match cause {
            Cause::Gone => self.turns.settle(key, None, image),
            Cause::Other => {
                let child =
                    ChildKey { kind: Kind::Deployment, namespace: key.namespace.clone(), name: key.name.clone() };
                self.world.child(&child).map_or_else(Vec::new, |child| self.turns.settle(key, Some(&child), image))
            }
            Cause::Spec | Cause::Keys => Vec::new(),
        }
    }

    /// Makes passes until `stop`; those that were begun are finished by `tasks`.
    pub async fn run(self: &Arc<Self>, reconciler: Reconciler, tasks: &TaskTracker, stop: &CancellationToken) {
        let now = clock::instant();
        let _ = self.reconciler.set(reconciler);
        {
            let mut queue = lock(&self.queue);
            for key in self.world.servers() {
                queue.add(&key, Lane::Fresh, now);
            }
        }
        let mut sweep = tokio::time::interval_at(now + SWEEP, SWEEP);
        while !stop.is_cancelled() {
            let next_due = self.start_what_is_due(tasks);
            let due = async {
                match next_due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.changed.notified() => {}
                _ = sweep.tick() => self.wake(self.world.servers().into_iter().map(|key| (key, Cause::Other)).collect()),
                () = stop.cancelled() => {}
            }
        }
    }

    /// Starts passes as far as the bound allows; returns when the next one is due, if the bound is not what holds it up.
    fn start_what_is_due(self: &Arc<Self>, tasks: &TaskTracker) -> Option<tokio::time::Instant> {
        let now = clock::instant();
        let mut queue = lock(&self.queue);
        loop {
            let running = queue.running();
            let slowest = if running < self.concurrency { Lane::Fresh } else { Lane::Urgent };
            if running >= self.concurrency + URGENT_BEYOND {
                return None;
            }
            let Some(key) = queue.pop(now, slowest) else {
                self.metrics.queued(queue.len());
                return queue.next_due(slowest);
            };
            let this = Arc::clone(self);
            tasks.spawn(async move { this.pass(&key).await });
        }
    }

    async fn pass(&self, key: &ServerKey) {
        let Some(reconciler) = self.reconciler.get() else { return };
        lock(&self.begun).insert(key.clone());
        let began = clock::instant();
        let result = reconciler.reconcile(key).await;
        let now = clock::instant();
        let whole = result.as_ref().is_ok_and(|done| done.whole);
        let pass = match result {
            Ok(done) => {
                lock(&self.queue).succeeded(key, done.again.map(|again| now + again));
                tracing::debug!(server = %key, outcome = ?done.pass, again = ?done.again, "pass");
                done.pass
            }
            Err(error) => {
                let wait = |failures| backoff::delay(failures, random::fraction(), error.retry_after());
                let again = lock(&self.queue).failed(key, now, wait);
                tracing::warn!(server = %key, %error, ?again, "the pass failed");
                Pass::Failed
            }
        };
        if !whole {
            let mut queue = lock(&self.queue);
            self.turns.pass_over(key).iter().for_each(|next| queue.add(next, Lane::Begun, now));
        }
        if self.world.server(key).is_none() {
            lock(&self.begun).remove(key);
        }
        self.metrics.passed(pass, now.duration_since(began));
        self.metrics.servers(self.world.server_count());
        self.changed.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
