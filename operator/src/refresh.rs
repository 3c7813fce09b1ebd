//! Asks the front doors of each server what they have in force, and touches the pods of those that lag behind what the
//! API server holds, so that the kubelet refreshes their mounts. It runs beside the queue and never waits for it, because
//! a revoked key has to stop working at once. It writes one annotation on pods and nothing else.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use mooring_plan::observed::{Door, ObservedPod};
use mooring_plan::outcome::Revisions;
use mooring_plan::refresh::{self, Touch};
use mooring_plan::{FIELD_MANAGER, names};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::key::ServerKey;
use crate::limit;
use crate::metrics::Metrics;
use crate::observe::door::DoorClient;
use crate::observe::pods;
use crate::watch::Waker;
use crate::world::{Cause, World};

/// How often the front doors of a server of several pods are asked whether they reach each other.
const PEERS_AGAIN: Duration = Duration::from_mins(1);
/// Front doors that are asked at a time, of all servers together.
const ASKED_AT_A_TIME: usize = 64;

/// What a server's front doors should have in force, and which of them can be asked.
#[derive(Clone, PartialEq, Eq)]
struct Wanted {
    revisions: Revisions,
    token: String,
    /// Each pod that can be asked, with what makes a new answer likely: restarts and readiness.
    pods: BTreeMap<String, Fingerprint>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint {
    uid: String,
    restarts: i32,
    ready: bool,
}

struct Task {
    wanted: Mutex<Wanted>,
    changed: Notify,
}

/// Asks and touches.
#[derive(Clone)]
pub struct Refresher {
    client: Client,
    doors: DoorClient,
    world: Arc<World>,
    metrics: Arc<Metrics>,
    waker: Waker,
    tasks: TaskTracker,
    stop: CancellationToken,
    permits: Arc<Semaphore>,
    running: Arc<Mutex<HashMap<ServerKey, Arc<Task>>>>,
    /// What was wanted of servers whose front doors all agreed.
    settled: Arc<Mutex<HashMap<ServerKey, Wanted>>>,
}

impl Refresher {
    /// A refresher whose answers go to `world` and whose news go to `waker`.
    pub fn new(
        client: Client,
        world: Arc<World>,
        metrics: Arc<Metrics>,
        waker: Waker,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self {
            client,
            doors: DoorClient::default(),
            world,
            metrics,
            waker,
            tasks,
            stop,
            permits: Arc::new(Semaphore::new(ASKED_AT_A_TIME)),
            running: Arc::default(),
            settled: Arc::default(),
        }
    }

    /// Says what the front doors of a server should have in force. Where that is news, they are asked.
    pub fn want(&self, key: &ServerKey, revisions: &Revisions, token: &str) {
        let pods = askable(&pods(&self.world, key));
        let wanted = Wanted { revisions: revisions.clone(), token: token.to_owned(), pods };
        if lock(&self.settled).get(key) == Some(&wanted) {
            return;
        }
        lock(&self.settled).remove(key);
        let mut running = lock(&self.running);
        if let Some(task) = running.get(key) {
            let mut before = lock(&task.wanted);
            if *before != wanted {
                *before = wanted;
                task.changed.notify_one();
            }
            return;
        }
        if wanted.pods.is_empty() {
            return; // a pod that appears makes another pass, and that comes here again
        }
        let task = Arc::new(Task { wanted: Mutex::new(wanted), changed: Notify::new() });
        running.insert(key.clone(), Arc::clone(&task));
        let (this, key) = (self.clone(), key.clone());
        self.tasks.spawn(async move {
            let stop = this.stop.clone();
            stop.run_until_cancelled(this.run(&key, &task)).await;
        });
    }

    /// The server is gone.
    pub fn forget(&self, key: &ServerKey) {
        lock(&self.settled).remove(key);
        if let Some(task) = lock(&self.running).get(key) {
            lock(&task.wanted).pods.clear();
            task.changed.notify_one();
        }
    }

    /// Asks and touches until every front door agrees; where there are several, they are asked on for as long as that is so.
    async fn run(&self, key: &ServerKey, task: &Task) {
        let mut looks = 0;
        loop {
            let wanted = lock(&task.wanted).clone();
            let agreed = self.look(key, &wanted).await;
            {
                // Whoever wants something new meanwhile finds either this task or none.
                let mut running = lock(&self.running);
                let now = lock(&task.wanted).clone();
                if now.pods.is_empty() || (agreed && now == wanted && now.pods.len() == 1) {
                    if !now.pods.is_empty() {
                        lock(&self.settled).insert(key.clone(), now);
                    }
                    running.remove(key);
                    return;
                }
            }
            let pause = if agreed { PEERS_AGAIN } else { refresh::pause(looks) };
            match tokio::time::timeout(pause, task.changed.notified()).await {
                Err(_) if !agreed => looks += 1,
                Ok(()) | Err(_) => looks = 0,
            }
        }
    }

    /// One look at all front doors of a server; whether all agree, and are ready unless they are stopping.
    async fn look(&self, key: &ServerKey, wanted: &Wanted) -> bool {
        let observed = pods(&self.world, key);
        let asked = observed.iter().filter(|(name, _)| wanted.pods.contains_key(*name)).map(|(_, pod)| async {
            let Some(ip) = pod.status.pod_ip.as_deref() else { return false };
            let Ok(_permit) = self.permits.acquire().await else { return false };
            let door = self.doors.ask(ip, &wanted.token).await;
            self.world.has_pod(key, &pod.uid) && self.world.doors.put(&pod.uid, door)
        });
        let news = futures::future::join_all(asked).await.into_iter().any(|news| news);
        let observed = pods(&self.world, key);
        let touches = refresh::touches(&wanted.revisions, &observed);
        futures::future::join_all(touches.iter().map(|touch| self.touch(key, touch))).await;
        if news {
            (self.waker)(vec![(key.clone(), Cause::Other)]);
        }
        wanted.pods.keys().all(|name| {
            observed.get(name).is_none_or(|pod| match &pod.door {
                Door::Answered(door) => (door.ready || pod.terminating) && refresh::agrees(&wanted.revisions, door),
                Door::Unasked | Door::Unauthorized | Door::Unreachable(_) => false,
            })
        })
    }

    /// Changes the annotation of a pod, unless another pod has taken its name.
    async fn touch(&self, key: &ServerKey, touch: &Touch) {
        let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), &key.namespace);
        let patch = serde_json::json!({
            "metadata": {"uid": touch.uid, "annotations": {names::ANNOTATION_REFRESH: touch.value}},
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match limit::call(api.patch_metadata(&touch.pod, &params, &Patch::Merge(patch))).await {
            Ok(_) => self.metrics.wrote("Pod"),
            Err(error) if matches!(error.code(), Some(404 | 409)) => {} // gone, or another one
            Err(error) => tracing::warn!(server = %key, pod = touch.pod, %error, "a pod could not be touched"),
        }
    }
}

/// The pods whose front door runs and has an address. One that is stopping is asked, because a rotation of session keys
/// waits for it, and is not touched.
fn askable(pods: &BTreeMap<String, ObservedPod>) -> BTreeMap<String, Fingerprint> {
    let fingerprint = |(name, pod): (&String, &ObservedPod)| {
        let running = pod.status.phase.as_deref() == Some("Running");
        if !running || pod.status.pod_ip.is_none() {
            return None;
        }
        let main = pod.status.container_statuses.iter().flatten();
        let init = pod.status.init_container_statuses.iter().flatten();
        let restarts = main.chain(init).map(|status| status.restart_count).sum();
        let ready = pod
            .status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True");
        Some((name.clone(), Fingerprint { uid: pod.uid.clone(), restarts, ready }))
    };
    pods.iter().filter_map(fingerprint).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
