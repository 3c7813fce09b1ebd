use std::collections::BTreeSet;

use http::Method;
use jiff::Timestamp;
use mooring_plan::outcome::Mint;
use mooring_plan::{Observed, Settings, plan};
use serde_json::json;

use super::*;
use crate::fake::Fake;
use crate::observe::Observer;
use crate::turns::Turns;
use crate::watch::view::ReadServer;
use crate::world::Child;

const SERVICE: &str = "/api/v1/namespaces/demo/services/weather";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/demo/deployments/weather";
const SESSION: &str = "/api/v1/namespaces/demo/secrets/weather.session";

struct Bench {
    fake: Fake,
    world: Arc<World>,
    observer: Observer,
    writer: Writer,
    server: McpServer,
    key: ServerKey,
}

impl Bench {
    fn new() -> Self {
        let server: McpServer = serde_json::from_value(json!({
            "apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "weather", "namespace": "demo", "uid": "u1", "generation": 1},
            "spec": {"http": {"image": "example.com/weather:1", "port": 8000}},
        }))
        .unwrap();
        let fake = Fake::default();
        let world = Arc::new(World::new(Settings::default()));
        let key = ServerKey::new("demo", "weather");
        world.put_server(&key, ReadServer { server: server.clone(), unreadable: None, status_is_ours: false });
        let observer = Observer::new(fake.client(), Arc::clone(&world), Arc::new(Turns::new(1)));
        let writer = Writer::new(fake.client(), Arc::clone(&world), Arc::default(), observer.clone());
        Self { fake, world, observer, writer, server, key }
    }

    async fn observed(&self) -> Observed {
        self.observer.observe(&self.key, &self.server).await.unwrap()
    }

    async fn plan(&self) -> Box<Plan> {
        let observed = self.observed().await;
        Box::new(plan::plan(&self.server, &observed, self.world.settings(), Timestamp::UNIX_EPOCH).unwrap())
    }

    async fn apply(&self) -> Result<Applied, ApplyError> {
        let plan = self.plan().await;
        self.writer.mint(&self.key, &self.server, &plan.mint).await?;
        self.writer.apply(&self.key, &self.server, &*self.plan().await).await
    }

    /// What the watch would show of `weather.session`.
    fn show_session(&self) {
        let object = self.fake.get(SESSION).unwrap();
        let metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
            serde_json::from_value(object["metadata"].clone()).unwrap();
        let child = ChildKey { kind: Kind::Secret, namespace: "demo".into(), name: "weather.session".into() };
        self.world.put_child(child, Child { meta: metadata.into(), ..Child::default() });
    }

    /// What the watch would show of an object.
    fn show(&self, kind: Kind, path: &str) {
        let object = self.fake.get(path).unwrap();
        let metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
            serde_json::from_value(object["metadata"].clone()).unwrap();
        let child = ChildKey { kind, namespace: "demo".into(), name: "weather".into() };
        self.world.put_child(child, Child { meta: metadata.into(), ..Child::default() });
    }
}

#[tokio::test]
async fn a_new_server_costs_one_write_for_each_child_and_a_second_pass_none() {
    let bench = Bench::new();
    assert_eq!(bench.apply().await.unwrap(), Applied::default());
    // ServiceAccount, ConfigMap, two Secrets, NetworkPolicy, Service, Deployment
    assert_eq!(bench.fake.writes(), 7);
    assert_eq!(bench.apply().await.unwrap(), Applied::default());
    assert_eq!(bench.fake.writes(), 7);
}

#[tokio::test]
async fn what_somebody_changed_is_applied_again_with_the_uid() {
    let bench = Bench::new();
    bench.apply().await.unwrap();
    let mut service = bench.fake.get(SERVICE).unwrap();
    service["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "mooring"});
    service["metadata"]["resourceVersion"] = json!("900");
    bench.fake.put(SERVICE, service);
    bench.show(Kind::Service, SERVICE);
    bench.apply().await.unwrap();
    assert_eq!(bench.fake.writes(), 8);
    assert_eq!(bench.fake.get(SERVICE).unwrap()["metadata"]["labels"]["app.kubernetes.io/instance"], "weather");
}

#[tokio::test]
async fn a_foreign_object_is_a_conflict_and_everything_else_is_applied() {
    let bench = Bench::new();
    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "weather", "uid": "x", "resourceVersion": "1"}});
    bench.fake.put(SERVICE, foreign.clone());
    let applied = bench.apply().await.unwrap();
    assert_eq!(applied.refused.iter().map(|finding| finding.reason).collect::<Vec<_>>(), [Reason::NameConflict]);
    assert!(applied.refused[0].field.starts_with("Service "));
    assert_eq!(bench.fake.get(SERVICE), Some(foreign));
    assert!(bench.fake.get(DEPLOYMENT).is_some());
}

#[tokio::test]
async fn a_child_of_an_earlier_server_of_the_name_is_waited_for() {
    let bench = Bench::new();
    let owner = json!([{"apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer", "name": "weather", "uid": "u0", "controller": true}]);
    let earlier =
        json!({"metadata": {"name": "weather", "uid": "x", "resourceVersion": "1", "ownerReferences": owner}});
    bench.fake.put(SERVICE, earlier.clone());
    let applied = bench.apply().await.unwrap();
    assert_eq!((applied.waiting, applied.refused.len()), (true, 0));
    assert_eq!(bench.fake.get(SERVICE), Some(earlier));
}

#[tokio::test]
async fn a_refusal_is_a_finding_and_a_fault_is_an_error_and_neither_stops_the_others() {
    let bench = Bench::new();
    bench.fake.fail(Method::PATCH, "/services/weather", 422, "spec.ports: Invalid value");
    let applied = bench.apply().await.unwrap();
    assert_eq!(applied.refused[0].reason, Reason::ChildRefused);
    assert!(applied.refused[0].message.contains("spec.ports"));
    assert!(bench.fake.get(DEPLOYMENT).is_some());

    let bench = Bench::new();
    bench.fake.fail(Method::PATCH, "/services/weather", 500, "etcd leader changed");
    assert!(bench.apply().await.unwrap_err().to_string().contains("etcd leader changed"));
    let writes = bench.fake.writes();
    assert_eq!(bench.apply().await.unwrap(), Applied::default());
    assert_eq!(bench.fake.writes() - writes, 2, "the Service, and the Deployment that waited for it");
}

#[tokio::test]
async fn a_child_that_went_unseen_is_made_anew() {
    let bench = Bench::new();
    bench.apply().await.unwrap();
    bench.show(Kind::Deployment, DEPLOYMENT);
    let mut replaced = bench.fake.get(DEPLOYMENT).unwrap();
    replaced["metadata"]["uid"] = json!("another");
    bench.fake.put(DEPLOYMENT, replaced);
    let mut server = bench.server.clone();
    server.metadata.generation = Some(2);
    let plan = plan::plan(&server, &bench.observed().await, bench.world.settings(), Timestamp::UNIX_EPOCH).unwrap();
    // The first try names the UID that the watch showed, and meets another one: it looks again.
    assert_eq!(bench.writer.apply(&bench.key, &server, &plan).await.unwrap(), Applied::default());
    assert_eq!(bench.fake.get(DEPLOYMENT).unwrap()["metadata"]["uid"], "another");
    assert_eq!(bench.fake.get(DEPLOYMENT).unwrap()["metadata"]["annotations"][names::ANNOTATION_GENERATION], "2");
}

#[tokio::test]
async fn a_secret_that_is_there_is_read_back_and_never_overwritten() {
    let bench = Bench::new();
    bench.apply().await.unwrap();
    let session = bench.fake.get(SESSION).unwrap();
    // Another process of ours made it, and this one has not seen it yet.
    let later = Bench { fake: bench.fake.clone(), ..Bench::new() };
    let observer = Observer::new(later.fake.client(), Arc::clone(&later.world), Arc::new(Turns::new(1)));
    let writer = Writer::new(later.fake.client(), Arc::clone(&later.world), Arc::default(), observer.clone());
    let later = Bench { observer, writer, ..later };
    assert_eq!(later.plan().await.mint, [Mint::Session]);
    assert_eq!(later.apply().await.unwrap(), Applied::default());
    assert_eq!(bench.fake.get(SESSION), Some(session));
    let tokens: BTreeSet<_> = [bench.observed().await, later.observed().await]
        .into_iter()
        .map(|observed| observed.session.unwrap().status_token)
        .collect();
    assert_eq!(tokens.len(), 1);
}

#[tokio::test]
async fn a_session_secret_of_old_gets_its_key_by_one_patch_and_keeps_its_token() {
    let bench = Bench::new();
    bench.apply().await.unwrap();
    let mut session = bench.fake.get(SESSION).unwrap();
    let token = session["data"]["status-token"].clone();
    session["data"] = json!({"status-token": token});
    bench.fake.put(SESSION, session);
    bench.world.secrets.forget("demo", "weather.session");
    let writes = bench.fake.writes();
    bench.show_session();
    bench.apply().await.unwrap();
    let session = bench.fake.get(SESSION).unwrap();
    assert_eq!(session["data"]["status-token"], token);
    assert!(session["data"]["current"].is_string());
    assert_eq!(bench.fake.writes() - writes, 1);
    assert_eq!(bench.plan().await.mint, []);
}

#[tokio::test]
async fn a_secret_in_foreign_hands_is_a_conflict() {
    let bench = Bench::new();
    let foreign = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "weather.session", "uid": "x"}});
    bench.fake.put(SESSION, foreign.clone());
    let applied = bench.writer.mint(&bench.key, &bench.server, &[Mint::Session]).await.unwrap();
    assert_eq!(applied.refused[0].reason, Reason::NameConflict);
    assert_eq!(bench.fake.get(SESSION), Some(foreign));
}
