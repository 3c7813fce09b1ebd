//! How many pods there are, decided by an autoscaler, by hand and by the spec, under calls and under sessions that live in
//! the memory of one pod.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use http::StatusCode;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use mooring_contract::port;
use mooring_tests::mcp::Target;
use mooring_tests::sessions::Ways;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::history::{self, History};
use crate::room::{Room, is_ready};
use crate::sessions::{NEWCOMERS, SESSIONS, begin_long_call, calls, newcomers, slow, spread};
use crate::specs::{self, KEY};
use crate::world::{PODS, seconds};

/// `sessions.drain`: on a busy machine as much as is seen of pods that stop takes most of it.
const DRAIN: Duration = Duration::from_secs(60);
/// How long a pod that is to stop serves as before.
const LINGER: Duration = Duration::from_secs(10);
/// How many seconds a call takes that goes on in a pod whose sessions are over.
const LONG: usize = 120;

/// server-everything in so many pods, which measure their use of CPU and give their sessions little time to go.
fn everything(room: &Room, name: &str, replicas: u8) -> Value {
    let mut spec = specs::everything(room, name, replicas);
    spec["http"]["resources"] = json!({"requests": {"cpu": "20m"}});
    spec["limits"]["callTimeout"] = "30s".into();
    spec["sessions"]["drain"] = format!("{}s", DRAIN.as_secs()).into();
    spec
}

/// The Deployment's own number, each time that it changed; `None` is left to its default, which is one.
async fn replicas(room: &Room, server: &str) -> Result<History<Option<i32>>> {
    let deployments: Api<Deployment> = Api::namespaced(room.world.cluster.client().await?, &room.name);
    History::begin(deployments, server, |deployment| deployment.spec.as_ref().and_then(|spec| spec.replicas)).await
}

/// Waits until so many pods serve and no other is there.
async fn serving(room: &Room, server: &str, count: usize) -> Result<Vec<Pod>> {
    until(&format!("{count} pods to serve"), PODS, || async {
        let pods = room.pods(server).await?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        ensure!((pods.len(), ready) == (count, count), "{ready} of {} are ready", pods.len());
        Ok(pods)
    })
    .await
}

/// A call that the pod of the session alone can answer.
async fn echo(session: &Target) -> Result<()> {
    let said = session.call("echo", json!({"message": "still"})).await?;
    ensure!(said == "Echo: still", "it said {said}");
    Ok(())
}

/// Begins sessions, side by side as clients do.
async fn begin(target: &Target, count: usize) -> Result<Vec<Target>> {
    let mut sessions = Vec::with_capacity(count);
    while sessions.len() < count {
        let some = 20.min(count - sessions.len());
        sessions.extend(try_join_all((0..some).map(|_| target.begin_session())).await?);
    }
    Ok(sessions)
}

pub(crate) async fn an_autoscaler_follows_the_load(room: Room) -> Result<()> {
    // Nothing to measure the use of CPU against is no silent standstill.
    let mut unmeasured = everything(&room, "unmeasured", 1);
    unmeasured["http"]["resources"] = json!({"requests": {"memory": "64Mi"}});
    unmeasured["replicas"] = Value::Null;
    unmeasured["autoscaling"] = json!({"maxReplicas": 4});
    room.serve("unmeasured", &unmeasured).await?;
    let words = ["requests no CPU", "http.resources.requests.cpu"];
    room.told("unmeasured", "Accepted", ("False", "InvalidSpec"), &words).await?;

    let mut spec = everything(&room, "busy", 2);
    spec["replicas"] = Value::Null;
    spec["autoscaling"] = json!({"minReplicas": 2, "maxReplicas": 4, "targetCPU": 40});
    spec["sessions"]["drain"] = "2m".into();
    room.serve("busy", &spec).await?;
    let target = room.entrance("busy", KEY).await?;
    serving(&room, "busy", 2).await?;
    let (replicas, told) = (replicas(&room, "busy").await?, history::told(&room, "busy").await?);

    let start = Instant::now();
    let mut sessions = begin(&target, 20).await?;
    let calls = Calls::begin(sessions.first().context("sessions")?, "get-tiny-image");
    replicas.reaches(&Some(4), PODS).await?;
    let decided = start.elapsed();
    let pods = serving(&room, "busy", 4).await?;
    let served = start.elapsed();
    calls.more(20).await?;
    let (answered, slowest) = calls.all_answered().await?;

    // New sessions go to every pod, those that had none among them; the figure to scale by is their number.
    let counted = || try_join_all(pods.iter().map(|pod| room.metric(pod, "mooring_server_sessions")));
    until("the ingress controller to know every pod", PODS, || async {
        drop(begin(&target, 4).await?);
        let counted = counted().await?;
        ensure!(counted.iter().all(|sessions| *sessions > 0.0), "the pods have {counted:?} sessions");
        Ok(())
    })
    .await?;
    let before = counted().await?;
    sessions.extend(begin(&target, 120).await?);
    let after = counted().await?;
    let spread: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let (fewest, most) = (spread.iter().copied().fold(f64::MAX, f64::min), spread.iter().copied().fold(0.0, f64::max));
    ensure!(most <= 2.0 * fewest, "new sessions are spread so: {spread:?}");
    ensure!((spread.iter().sum::<f64>() - 120.0).abs() < 0.5, "120 new sessions are counted as {spread:?}");

    // What the autoscaler takes away again takes no session with it.
    let start = Instant::now();
    replicas.reaches(&Some(2), PODS).await?;
    let lessened = start.elapsed();
    serving(&room, "busy", 2).await?;
    try_join_all(sessions.iter().map(echo)).await.context("sessions of pods on their way out")?;
    let numbers = replicas.end().await?;
    ensure!(numbers.iter().all(|number| number.is_some_and(|number| (2..=4).contains(&number))), "{numbers:?}");
    assert_eq!(told.end().await?, [[true, true]], "available and ready at any time");
    room.world.figure(
        "an autoscaler by CPU, 2 to 4 pods: decided, serving; decided again for 2",
        format!("{}, {}; {}", seconds(decided), seconds(served), seconds(lessened)),
    );
    room.world.figure(
        "calls meanwhile, none failed; new sessions on the 4 pods",
        format!("{answered} calls, the slowest {}; {spread:?}", seconds(slowest)),
    );
    Ok(())
}

/// The first manifest of a kind in docs/operations.md.
fn documented(kind: &str) -> Result<&'static str> {
    let text = include_str!("../../../docs/operations.md");
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let kind = format!("kind: {kind}\n");
    blocks.flat_map(|block| block.split("---\n")).find(|manifest| manifest.contains(&kind)).context(kind)
}

pub(crate) async fn the_number_of_pods_changes_hands_and_never_falls(room: Room) -> Result<()> {
    let mut spec = specs::tools(&room, "weather");
    spec["replicas"] = 3.into();
    room.serve("weather", &spec).await?;
    let target = room.entrance("weather", KEY).await?;
    serving(&room, "weather", 3).await?;
    let replicas = replicas(&room, "weather").await?;
    let calls = Calls::begin(&target, "health");

    let start = Instant::now();
    let autoscaling = json!({"minReplicas": 3, "maxReplicas": 6});
    room.change("weather", &json!({"replicas": null, "autoscaling": autoscaling})).await?;
    until("the autoscaler to have looked", PODS, || async {
        let seen = "jsonpath={.status.currentReplicas}";
        let seen = room.kubectl(["get", "horizontalpodautoscaler", "weather", "-o", seen]).await?;
        ensure!(seen == "3", "it sees {seen:?} pods");
        Ok(())
    })
    .await?;

    // Somebody else's, as docs/operations.md has it: Kubernetes lets neither act while there are two.
    room.world.cluster.apply_text(&room.name, documented("HorizontalPodAutoscaler")?).await?;
    let team = ["patch", "horizontalpodautoscaler", "weather-sessions", "--type=merge", "--patch"];
    let least = |count: i32| json!({"spec": {"minReplicas": count}}).to_string();
    room.kubectl(team.iter().copied().chain([least(4).as_str()])).await?;
    room.change("weather", &json!({"autoscaling": null})).await?;
    replicas.reaches(&Some(4), PODS).await.context("to somebody else's autoscaler")?;

    // To what writes the scale itself, as KEDA does between none and one, and a person.
    room.kubectl(["delete", "horizontalpodautoscaler", "weather-sessions"]).await?;
    room.kubectl(["scale", "deployment/weather", "--replicas=5"]).await?;
    replicas.reaches(&Some(5), PODS).await.context("by hand")?;
    room.change("weather", &json!({"replicas": 5})).await?;
    room.ready("weather").await?;
    room.kubectl(["scale", "mcpserver/weather", "--replicas=6"]).await?;
    replicas.reaches(&Some(6), PODS).await.context("through the scale of the McpServer")?;
    assert_eq!(room.server("weather").await?["spec"]["replicas"], 6);

    // An autoscaler of the McpServer itself writes the spec.
    let target_of = json!({"apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer", "name": "weather"});
    let cpu = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}});
    room.apply(json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "of-the-server"},
        "spec": {
            "scaleTargetRef": target_of, "minReplicas": 7, "maxReplicas": 7,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }))
    .await?;
    replicas.reaches(&Some(7), PODS).await.context("by an autoscaler of the McpServer")?;
    serving(&room, "weather", 7).await?;
    let took = start.elapsed();

    let numbers = replicas.end().await?;
    assert_eq!(numbers, [3, 4, 5, 6, 7].map(Some), "what the Deployment was asked for, from the first to the last");
    let (answered, slowest) = calls.all_answered().await?;
    room.world.figure(
        "the number of pods through six hands, never fewer than before",
        format!("{numbers:?} in {}, {answered} calls, the slowest {}", seconds(took), seconds(slowest)),
    );
    Ok(())
}

pub(crate) async fn sessions_outlive_their_pods_and_find_fresh_ones(room: Room) -> Result<()> {
    let mut spec = everything(&room, "breathing", 3);
    spec["limits"]["callTimeout"] = "3m".into();
    room.serve("breathing", &spec).await?;
    let ways = room.entrances("breathing", KEY).await?;
    let stays = serving(&room, "breathing", 3).await?.first().context("a pod")?.name_any();
    // Kubernetes takes first what costs the least.
    room.kubectl(["annotate", "pod", &stays, "controller.kubernetes.io/pod-deletion-cost=1"]).await?;
    let at_each = room.at_each_pod(&ways.next(), "breathing").await?;
    let (old, leaving) = at_each.split_first().context("no pods")?;
    let told = history::told(&room, "breathing").await?;
    let of_staying = spread(std::slice::from_ref(old), &ways, SESSIONS / 3).await?;
    let of_leaving = spread(leaving, &ways, SESSIONS - SESSIONS / 3).await?;
    let (in_leaving, in_staying) = (calls(&of_leaving, &slow()), calls(&of_staying, &slow()));
    let newcomers = newcomers(&ways);
    newcomers.more(NEWCOMERS).await?;

    // Down to one: the sessions of the two others go on through it, also once these begin none any more.
    let [first, last, rest @ ..] = &of_leaving[..] else { bail!("no sessions") };
    let long = begin_long_call(last, LONG);
    in_leaving.more(of_leaving.len()).await?;
    let start = Instant::now();
    room.kubectl(["scale", "mcpserver/breathing", "--replicas=1"]).await?;
    let now = serving(&room, "breathing", 1).await?;
    ensure!(now.iter().all(|pod| pod.name_any() == stays), "another pod stays");
    for at_pod in leaving {
        until("a leaving pod to begin no session any more", PODS, || begins_none(at_pod)).await?;
    }
    newcomers.more(2 * NEWCOMERS).await?;
    in_leaving.more(of_leaving.len()).await?;
    let (calls, slowest) = in_leaving.all_answered().await.context("in sessions of pods that leave")?;
    try_join_all(rest.iter().chain([first]).map(Ways::end)).await?;
    let (early, ended) = tokio::try_join!(
        async {
            gone(&leaving[0]).await?;
            anyhow::Ok(start.elapsed())
        },
        async {
            over_at_last(last).await?;
            anyhow::Ok(start.elapsed())
        },
    )?;
    ensure!(ended >= LINGER + DRAIN, "its session was over after {ended:?}, before linger and drain were");
    ensure!(!long.is_finished(), "the long call ended with its session");
    room.world.figure(
        "scaled from 3 to 1 under sessions: a front door without sessions gone, one with a session to its end",
        format!("{}, {}", seconds(early), seconds(ended)),
    );

    up_to_five(&room, &ways.next(), old, &stays).await?;
    long.await?.context("the long call")?;
    let (more, slowest_of_staying) = in_staying.all_answered().await.context("in sessions of the pod that stays")?;
    let (begun, _) = newcomers.all_answered().await.context("sessions that began meanwhile")?;
    assert_eq!(told.end().await?, [[true, true]], "available and ready at any time");
    room.world.figure(
        format!("{SESSIONS} sessions and {NEWCOMERS} newcomers while pods came and went: calls, the slowest; sessions begun meanwhile; none failed"),
        format!("{} of 3 s and one of {LONG} s, {}; {begun}", calls + more, seconds(slowest.max(slowest_of_staying))),
    );
    Ok(())
}

/// Whether a pod refuses to begin a session because it is to stop.
async fn begins_none(at_pod: &Target) -> Result<()> {
    match at_pod.begin_session().await {
        Ok(session) => {
            session.send("DELETE", "").await?;
            bail!("it still begins sessions")
        }
        Err(refused) => {
            ensure!(format!("{refused:#}").contains("503"), "{refused:#}");
            Ok(())
        }
    }
}

/// Waits until a session is over. Until then it is served.
async fn over_at_last(session: &Ways) -> Result<()> {
    let ping = json!({"jsonrpc": "2.0", "id": "still there", "method": "ping"}).to_string();
    loop {
        let answer = session.next().send("POST", ping.clone()).await?;
        match answer.status {
            StatusCode::OK => tokio::time::sleep(Duration::from_millis(50)).await,
            StatusCode::NOT_FOUND => return Ok(()),
            other => bail!("a session of a pod that stops: {other} {}", answer.text()),
        }
    }
}

/// Whoever is asked finds a fresh pod, and a fresh pod finds the others, from its first answer on.
async fn up_to_five(room: &Room, target: &Target, old: &Target, stays: &str) -> Result<()> {
    let known = old.begin_session().await?;
    let start = Instant::now();
    room.kubectl(["scale", "mcpserver/breathing", "--replicas=5"]).await?;
    let fresh = until("four more pods with an address", PODS, || async {
        let mut pods = room.pods("breathing").await?;
        pods.retain(|pod| pod.name_any() != stays);
        let addressed = pods.iter().filter(|pod| pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some()));
        ensure!(addressed.count() == 4, "there are {}", pods.len());
        Ok(pods)
    })
    .await?;
    let found = try_join_all(fresh.iter().map(|pod| reached(room, pod, &known))).await?;
    let up = start.elapsed();
    let ways = found.iter().map(|fresh| fresh.at_pod.address).chain([old.address, target.address]);
    let mut slowest = found.iter().map(|fresh| fresh.slowest).max().unwrap_or_default();
    for address in ways {
        for fresh in &found {
            let begun = Instant::now();
            let session = Target { address, ..fresh.session.clone() };
            echo(&session).await.with_context(|| format!("a session of the fresh pod {}", fresh.name))?;
            slowest = slowest.max(begun.elapsed());
        }
    }
    room.world.figure(
        "scaled from 1 to 5: every fresh pod found by each other, the slowest first call between two",
        format!("{}, {}", seconds(up), seconds(slowest)),
    );
    Ok(())
}

/// A pod that has just begun to answer.
struct Fresh {
    name: String,
    at_pod: Target,
    session: Target,
    slowest: Duration,
}

/// As soon as a pod begins sessions: one of its own through an older pod, and one of that through the fresh one.
async fn reached(room: &Room, pod: &Pod, known: &Target) -> Result<Fresh> {
    let name = pod.name_any();
    let address = room.pod_port(pod, port::PUBLIC).await?;
    let mut at_pod = Target { address, ..known.clone() };
    at_pod.headers.clear();
    let session = until("a fresh pod to begin a session", PODS, || at_pod.begin_session()).await?;
    let mut slowest = Duration::ZERO;
    for (session, way) in [(&session, known), (known, &at_pod)] {
        let begun = Instant::now();
        let session = Target { address: way.address, ..session.clone() };
        echo(&session).await.with_context(|| format!("between {name} and an older pod"))?;
        slowest = slowest.max(begun.elapsed());
    }
    Ok(Fresh { name, at_pod, session, slowest })
}

/// Waits until nothing answers at a pod any more. The kubelet tells of a front door that has ended only once the pod has.
async fn gone(at_pod: &Target) -> Result<()> {
    until("a front door that nobody needs to be gone", PODS, || async {
        ensure!(at_pod.send("GET", "").await.is_err(), "it answers");
        Ok(())
    })
    .await
}
