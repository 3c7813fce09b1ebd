use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::fake::Fake;
use crate::turns::Turns;
use crate::watch::view::{ReadServer, ServerView};

const SERVER: &str = "/apis/mooring.dev/v1alpha1/namespaces/demo/mcpservers/weather";
const STATUS: &str = "/apis/mooring.dev/v1alpha1/namespaces/demo/mcpservers/weather/status";

struct Bench {
    fake: Fake,
    world: Arc<World>,
    reconciler: Reconciler,
    key: ServerKey,
}

impl Bench {
    fn new(spec: &Value) -> Self {
        let fake = Fake::default();
        let world = Arc::new(World::new(Settings::default()));
        let object = json!({
            "apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "weather", "namespace": "demo", "uid": "u1", "generation": 1, "resourceVersion": "1"},
            "spec": spec,
        });
        // The fake stores a subresource beside its object.
        fake.put(SERVER, object.clone());
        fake.put(STATUS, object.clone());
        let key = ServerKey::new("demo", "weather");
        let view: ServerView = serde_json::from_value(object).unwrap();
        world.put_server(&key, ReadServer::from(view));
        let client = fake.client();
        let observer = Observer::new(client.clone(), Arc::clone(&world), Arc::new(Turns::new(1)));
        let reconciler = Reconciler {
            writer: Writer::new(client.clone(), Arc::clone(&world), Arc::default(), observer.clone()),
            publisher: Publisher::new(client.clone(), Arc::clone(&world), Arc::default(), "test".into()),
            refresher: Refresher::new(
                client,
                Arc::clone(&world),
                Arc::default(),
                Arc::new(|_| {}),
                tokio_util::task::TaskTracker::new(),
                tokio_util::sync::CancellationToken::new(),
            ),
            observer,
            world: Arc::clone(&world),
        };
        Self { fake, world, reconciler, key }
    }

    async fn pass(&self) -> Result<Reconciled, ReconcileError> {
        self.reconciler.reconcile(&self.key).await
    }

    fn condition(&self, kind: &str) -> Value {
        let status = self.fake.get(STATUS).unwrap();
        let conditions = status["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
    }
}

fn http() -> Value {
    json!({"http": {"image": "example.com/weather:1", "port": 8000}, "auth": {"keys": [{"name": "laptop"}]}})
}

#[tokio::test]
async fn one_pass_makes_keys_children_and_one_status_and_the_next_writes_nothing() {
    let bench = Bench::new(&http());
    assert_eq!(bench.pass().await.unwrap().pass, Pass::Applied);
    assert_eq!(bench.fake.count(&Method::PATCH, STATUS), 1);
    assert_eq!(bench.fake.count(&Method::POST, "/secrets"), 2, "the session's and the key's");
    let keys = bench.fake.get("/api/v1/namespaces/demo/secrets/weather.keys").unwrap();
    assert_eq!(keys["data"].as_object().unwrap().len(), 1, "the key that was made is in force in the same pass");
    let writes = bench.fake.writes();
    assert_eq!(bench.pass().await.unwrap().pass, Pass::Applied);
    assert_eq!(bench.fake.writes(), writes);
}

#[tokio::test]
async fn a_rejected_spec_makes_nothing_and_says_so_once() {
    let mut spec = http();
    spec["auth"]["keySecrets"] = json!([{"name": "from-vault"}]);
    let bench = Bench::new(&spec);
    let expected = Reconciled { pass: Pass::Rejected, again: None, whole: false };
    assert_eq!(bench.pass().await.unwrap(), expected);
    assert_eq!(bench.condition("Accepted")["reason"], "KeySecretNotFound");
    assert_eq!(bench.condition("Stalled")["status"], "True");
    assert!(bench.fake.get("/apis/apps/v1/namespaces/demo/deployments/weather").is_none());
    let before = (bench.fake.writes(), bench.fake.get(STATUS));
    assert_eq!(bench.pass().await.unwrap(), expected);
    assert_eq!((bench.fake.writes(), bench.fake.get(STATUS)), before);
}

#[tokio::test]
async fn an_object_that_does_not_parse_is_reported_on_itself() {
    let bench = Bench::new(&json!({"http": {"image": "a", "port": "eight thousand"}}));
    assert_eq!(bench.pass().await.unwrap().pass, Pass::Rejected);
    assert_eq!(bench.condition("Accepted")["reason"], "Unreadable");
    assert!(bench.condition("Accepted")["message"].as_str().unwrap().contains("eight thousand"));
}

#[tokio::test]
async fn a_status_that_was_not_written_is_written_by_the_next_pass() {
    let bench = Bench::new(&http());
    bench.fake.fail(Method::PATCH, STATUS, 503, "try later");
    assert!(bench.pass().await.unwrap_err().to_string().contains("try later"));
    bench.pass().await.unwrap();
    assert_eq!(bench.condition("Accepted")["status"], "True");
}

#[tokio::test]
async fn what_the_server_asks_to_wait_is_heard() {
    let bench = Bench::new(&http());
    bench.fake.fail(Method::POST, "/secrets", 429, "too many requests");
    let error = bench.pass().await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
}

/// The session Secret may be immutable, or a policy may keep it as it is. Whatever else changed is done all the same.
#[tokio::test]
async fn a_refused_step_of_the_session_keys_holds_up_nothing_else() {
    let bench = Bench::new(&http());
    bench.pass().await.unwrap();
    let applied = || {
        let deployment = bench.fake.get("/apis/apps/v1/namespaces/demo/deployments/weather").unwrap();
        deployment["metadata"]["annotations"][mooring_plan::names::ANNOTATION_GENERATION].clone()
    };
    let change = |generation: i64| {
        let mut read = bench.world.server(&bench.key).unwrap().as_ref().clone();
        read.server.metadata.generation = Some(generation);
        let rotate = (mooring_plan::names::ANNOTATION_ROTATE.to_owned(), "now".to_owned());
        read.server.metadata.annotations.get_or_insert_default().extend([rotate]);
        bench.world.put_server(&bench.key, read);
    };
    change(2);
    bench.fake.fail(Method::PATCH, "/secrets/weather.session", 422, "the Secret is immutable");
    let done = bench.pass().await.unwrap();
    assert!(done.pass == Pass::Applied && done.again.is_some(), "{done:?}");
    assert_eq!(applied(), "2");
    let accepted = bench.condition("Accepted");
    assert_eq!([&accepted["status"], &accepted["reason"]], ["True", "SessionKeysWaiting"]);
    assert!(accepted["message"].as_str().unwrap().contains("the Secret is immutable"), "{accepted}");

    change(3);
    bench.fake.fail(Method::PATCH, "/secrets/weather.session", 500, "the webhook is away");
    assert!(bench.pass().await.unwrap_err().to_string().contains("the webhook is away"), "it is tried again");
    assert_eq!(applied(), "3");

    bench.pass().await.unwrap();
    let session = bench.fake.get("/api/v1/namespaces/demo/secrets/weather.session").unwrap();
    assert!(session["data"]["previous"].is_string(), "the keys are rotated");
}

#[tokio::test]
async fn a_server_on_its_way_out_is_left_alone() {
    let bench = Bench::new(&http());
    let mut leaving = bench.world.server(&bench.key).unwrap().as_ref().clone();
    leaving.server.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(clock::now()));
    bench.world.put_server(&bench.key, leaving);
    bench.pass().await.unwrap();
    assert_eq!(bench.fake.writes(), 0);
}

#[test]
fn a_refused_child_is_asked_for_again_after_as_long_as_it_has_been_refused() {
    let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
    let again = |since: &str| {
        let ready = json!({"type": "Ready", "status": "False", "reason": "ChildRefused", "message": "", "lastTransitionTime": since});
        let status: McpServerStatus = serde_json::from_value(json!({"conditions": [ready]})).unwrap();
        refused_again(&status, now).as_secs()
    };
    assert_eq!(again("2026-11-29T12:00:00Z"), 2);
    assert_eq!(again("2026-11-29T11:59:52Z"), 8);
    assert_eq!(again("2026-11-28T12:00:00Z"), 60);
    assert_eq!(again("2026-11-29T12:00:05Z"), 60, "a clock that went back is no reason to hurry");
    assert_eq!(refused_again(&McpServerStatus::default(), now).as_secs(), 60);
}
