use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::routing::get;
use mooring_contract::{DoorStatus, port};
use mooring_plan::Settings;
use serde_json::json;

use super::*;
use crate::fake::Fake;
use crate::watch::view::PodView;

const POD: &str = "/api/v1/namespaces/demo/pods/weather-1";

/// A front door on a loopback address of its own, at the port that the operator asks.
#[derive(Clone)]
struct FrontDoor {
    fake: Fake,
    asked: Arc<AtomicUsize>,
    /// What it admits until the kubelet has refreshed its pod.
    token: &'static str,
}

impl FrontDoor {
    async fn open(fake: &Fake, ip: &str) -> Self {
        Self::open_with(fake, ip, "token").await
    }

    async fn open_with(fake: &Fake, ip: &str, token: &'static str) -> Self {
        let door = Self { fake: fake.clone(), asked: Arc::default(), token };
        let address: SocketAddr = format!("{ip}:{}", port::MANAGEMENT).parse().unwrap();
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let router = Router::new().route("/status", get(Self::answer)).with_state(door.clone());
        TaskTracker::new().spawn(async move { axum::serve(listener, router).await });
        door
    }

    /// It has the new keys and the newest token in force once the kubelet has refreshed its pod.
    #[expect(clippy::unused_async, reason = "handlers are async")]
    async fn answer(State(door): State<Self>, headers: HeaderMap) -> Result<axum::Json<DoorStatus>, StatusCode> {
        door.asked.fetch_add(1, Ordering::Relaxed);
        let pod = door.fake.get(POD).unwrap();
        let refreshed = pod["metadata"]["annotations"][names::ANNOTATION_REFRESH].is_string();
        let token = if refreshed { "token" } else { door.token };
        if headers.get("authorization").is_none_or(|value| *value != format!("Bearer {token}")) {
            return Err(StatusCode::UNAUTHORIZED);
        }
        let keys_revision = if refreshed { "new" } else { "old" }.to_owned();
        Ok(axum::Json(DoorStatus { ready: true, config_revision: "c".into(), keys_revision, ..DoorStatus::default() }))
    }
}

fn pod(ip: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "weather-1", "namespace": "demo", "uid": "p1", "resourceVersion": "1",
            "labels": mooring_plan::names::labels("weather"),
        },
        "spec": {"containers": [{"name": "front-door", "image": "x"}]},
        "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

struct Bench {
    fake: Fake,
    world: Arc<World>,
    refresher: Refresher,
    woken: Arc<AtomicUsize>,
    key: ServerKey,
}

impl Bench {
    /// What the watch shows of a pod.
    fn put(&self, pod: &serde_json::Value) {
        let mut view: PodView = serde_json::from_value(pod.clone()).unwrap();
        self.world.put_pod(view.take_meta(), view);
    }
}

fn bench(ip: &str) -> Bench {
    let fake = Fake::default();
    fake.put(POD, pod(ip));
    let world = Arc::new(World::new(Settings::default()));
    let mut view: PodView = serde_json::from_value(pod(ip)).unwrap();
    let meta = view.take_meta();
    world.put_pod(meta, view);
    let woken = Arc::new(AtomicUsize::new(0));
    let waker: Waker = {
        let woken = Arc::clone(&woken);
        Arc::new(move |_| {
            woken.fetch_add(1, Ordering::Relaxed);
        })
    };
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let refresher = Refresher::new(fake.client(), Arc::clone(&world), Arc::default(), waker, tasks, stop);
    Bench { fake, world, refresher, woken, key: ServerKey::new("demo", "weather") }
}

fn revisions(keys: &str) -> Revisions {
    Revisions { config: "c".into(), keys: Some(keys.into()), ..Revisions::default() }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let bound = tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    bound.await.unwrap_or_else(|_| panic!("{what}: not within 10 s"));
}

#[tokio::test]
async fn a_pod_that_lags_is_touched_until_it_agrees_and_then_left_alone() {
    let bench = bench("127.77.0.1");
    let door = FrontDoor::open(&bench.fake, "127.77.0.1").await;
    bench.refresher.want(&bench.key, &revisions("new"), "token");
    until("settled", || lock(&bench.refresher.settled).contains_key(&bench.key)).await;
    assert_eq!(bench.fake.count(&Method::PATCH, POD), 1);
    assert!(bench.woken.load(Ordering::Relaxed) >= 1, "what a front door says is news");
    match bench.world.doors.get("p1") {
        Door::Answered(status) => assert!(status.ready && status.keys_revision == "new"),
        other => panic!("{other:?}"),
    }
    let asked = door.asked.load(Ordering::Relaxed);
    bench.refresher.want(&bench.key, &revisions("new"), "token");
    assert!(lock(&bench.refresher.running).is_empty(), "what all agree on is not asked again");
    assert_eq!(door.asked.load(Ordering::Relaxed), asked);
}

/// It drains for as long as its sessions last, and a rotation of session keys waits for what it says.
#[tokio::test]
async fn a_pod_that_is_stopping_is_asked_and_not_touched() {
    let bench = bench("127.77.0.6");
    let _door = FrontDoor::open(&bench.fake, "127.77.0.6").await;
    let mut stopping = pod("127.77.0.6");
    stopping["metadata"]["deletionTimestamp"] = json!("2026-06-01T12:00:00Z");
    bench.put(&stopping);
    bench.refresher.want(&bench.key, &revisions("new"), "token");
    until("asked", || matches!(bench.world.doors.get("p1"), Door::Answered(_))).await;
    bench.refresher.want(&bench.key, &revisions("old"), "token");
    until("settled", || lock(&bench.refresher.settled).contains_key(&bench.key)).await;
    assert_eq!(bench.fake.writes(), 0);
}

/// Whoever deletes `<name>.session` ends all sessions, and changes the token with it.
#[tokio::test]
async fn a_pod_that_does_not_admit_the_newest_token_is_touched() {
    let bench = bench("127.77.0.5");
    let _door = FrontDoor::open_with(&bench.fake, "127.77.0.5", "older").await;
    bench.refresher.want(&bench.key, &revisions("new"), "token");
    until("settled", || lock(&bench.refresher.settled).contains_key(&bench.key)).await;
    assert_eq!(bench.fake.count(&Method::PATCH, POD), 1);
}

#[tokio::test]
async fn a_pod_that_agrees_is_asked_and_not_touched() {
    let bench = bench("127.77.0.2");
    let _door = FrontDoor::open(&bench.fake, "127.77.0.2").await;
    bench.refresher.want(&bench.key, &revisions("old"), "token");
    until("settled", || lock(&bench.refresher.settled).contains_key(&bench.key)).await;
    assert_eq!(bench.fake.writes(), 0);
}

/// What they say of each other may change at any time.
#[tokio::test]
async fn several_pods_are_asked_on_for_as_long_as_there_are_several() {
    let bench = bench("127.77.0.4");
    let door = FrontDoor::open(&bench.fake, "127.77.0.4").await;
    let mut second = pod("127.77.0.4");
    second["metadata"]["name"] = json!("weather-2");
    second["metadata"]["uid"] = json!("p2");
    bench.put(&second);
    bench.refresher.want(&bench.key, &revisions("old"), "token");
    until("both answer", || door.asked.load(Ordering::Relaxed) == 2).await;
    until("both are known", || matches!(bench.world.doors.get("p2"), Door::Answered(_))).await;
    assert!(lock(&bench.refresher.running).contains_key(&bench.key));
    bench.world.remove_pod(&serde_json::from_value::<PodView>(second).unwrap().take_meta());
    bench.refresher.want(&bench.key, &revisions("old"), "token");
    until("settled", || lock(&bench.refresher.settled).contains_key(&bench.key)).await;
    assert!(lock(&bench.refresher.running).is_empty());
    assert_eq!(bench.fake.writes(), 0);
}

#[tokio::test]
async fn a_pod_that_cannot_be_reached_is_not_touched_and_a_server_that_is_gone_is_forgotten() {
    let bench = bench("127.77.0.3");
    bench.refresher.want(&bench.key, &revisions("new"), "token");
    until("asked", || matches!(bench.world.doors.get("p1"), Door::Unreachable(_))).await;
    assert_eq!(bench.fake.writes(), 0);
    bench.refresher.forget(&bench.key);
    until("the task ends", || lock(&bench.refresher.running).is_empty()).await;
    assert!(lock(&bench.refresher.settled).is_empty());
}
