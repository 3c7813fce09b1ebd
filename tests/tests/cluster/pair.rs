//! A server in two pods, and a session of the one that is asked for through the other: what a client is told, and what the
//! operator is.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::join_all;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use mooring_contract::door_status::Unreachable;
use mooring_contract::port;
use mooring_plan::names;
use mooring_tests::mcp::Target;
use mooring_tests::wait::until;
use serde_json::{Value, json};

use crate::room::{Identity, Room};
use crate::specs::KEY;
use crate::world::PODS;

/// Until a policy is enforced, or a node routes anew.
pub(crate) const ENFORCED: Duration = Duration::from_secs(30);
/// Longest wait for an answer from a pod that does not reach the pod of the session: 5 s, and what a busy machine adds.
pub(crate) const BOUNDED: Duration = Duration::from_secs(15);
/// Requests of one moment.
pub(crate) const BURST: usize = 40;

/// A server in two pods, and the ways to each.
pub(crate) struct Pair {
    room: Room,
    name: &'static str,
    pub(crate) pods: Vec<Pod>,
    targets: Vec<Target>,
}

impl Pair {
    /// Applies the spec and waits for it. The operator takes what fails as a pod becomes ready for part of its start, so
    /// that moment is over, too.
    pub(crate) async fn serve(room: &Room, name: &'static str, spec: &Value) -> Result<Self> {
        room.serve(name, spec).await?;
        let like = room.entrance(name, KEY).await?;
        let pods = until("the pods' start to be over", PODS, || async {
            let pods = room.pods(name).await?;
            let started = pods.iter().map(ready_since).collect::<Result<Vec<_>>>()?;
            ensure!(started.iter().all(|ready| ready.as_second() + 7 < Timestamp::now().as_second()), "{started:?}");
            ensure!(pods.len() == 2, "{} pods", pods.len());
            Ok(pods)
        })
        .await?;
        let targets = room.at_each_pod(&like, name).await?;
        Ok(Self { room: room.clone(), name, pods, targets })
    }

    /// A session of the first pod: the way to it, and the way through the other pod.
    pub(crate) async fn session(&self) -> Result<(Target, Target)> {
        let [owner, other] = &self.targets[..] else { bail!("two pods") };
        let session = owner.begin_session().await?;
        let through = Target { address: other.address, ..session.clone() };
        Ok((session, through))
    }

    /// Waits until the other pod tells of the first one, and why.
    pub(crate) async fn tells(&self, reason: Unreachable) -> Result<()> {
        let [owner, other] = &self.pods[..] else { bail!("two pods") };
        let told = self.room.door_status(self.name, other).await?.unreachable_peers;
        let [told] = &told[..] else { bail!("it tells of {told:?}") };
        ensure!(Some(&told.pod_uid) == owner.metadata.uid.as_ref() && told.reason == reason, "{told:?}");
        Ok(())
    }

    /// Has the operator ask the front doors at once rather than within a minute: their configuration is another one.
    pub(crate) async fn ask_doors(&self, body_bytes: u32) -> Result<()> {
        self.room.change(self.name, &json!({"limits": {"bodyBytes": body_bytes}})).await
    }

    /// Waits until the server's condition names both pods and what is likely in the way.
    pub(crate) async fn is_told(&self, why: &str) -> Result<()> {
        let pods: Vec<_> = self.pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let [owner, other] = pods[..] else { bail!("two pods") };
        let pair = format!("{other} to {owner} ({why})");
        let (number, labels) = (port::PEER.to_string(), names::selector(self.name));
        let words = [pair.as_str(), "NetworkPolicy", &number, &labels];
        self.room.told(self.name, "Accepted", ("True", "PeersUnreachable"), &words).await
    }

    /// Waits until nothing is told any more, and checks that the pods are those of the beginning.
    pub(crate) async fn is_well(&self, before: &[Identity]) -> Result<()> {
        self.room.told(self.name, "Accepted", ("True", "Accepted"), &[]).await?;
        let now = self.room.identities(self.name).await?;
        ensure!(now == before, "{before:?} became {now:?}");
        let told = self.room.door_status(self.name, &self.pods[1]).await?.unreachable_peers;
        ensure!(told.is_empty(), "{told:?}");
        Ok(())
    }
}

fn ready_since(pod: &Pod) -> Result<Timestamp> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready" && condition.status == "True");
    Ok(ready.and_then(|ready| ready.last_transition_time.as_ref()).context("it is not ready")?.0)
}

pub(crate) fn address(pod: &Pod) -> Result<&str> {
    pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("the pod has no address")
}

pub(crate) async fn answers(session: &Target) -> Result<()> {
    let said = session.call("echo", json!({"message": "hello"})).await?;
    ensure!(said == "Echo: hello", "{said}");
    Ok(())
}

/// Asks until the pod of the session is reached: a pod that was not is tried again after a moment.
pub(crate) async fn answers_again(what: &str, session: &Target) -> Result<()> {
    until(what, ENFORCED, || answers(session)).await
}

/// One request of each kind that names a session, and a burst of calls: all are answered in time that there is no such
/// session, and then others at once.
pub(crate) async fn is_not_reached(session: &Target) -> Result<Duration> {
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string();
    let begun = Instant::now();
    let (end, stream) = (session.send("DELETE", ""), session.send("GET", ""));
    let burst = join_all((0..BURST).map(|_| session.send("POST", ping.clone())));
    let (end, stream, mut answers) = tokio::join!(end, stream, burst);
    answers.extend([end, stream]);
    let slowest = begun.elapsed();
    for answer in answers {
        let answer = answer?;
        let unknown = answer.status == StatusCode::NOT_FOUND && answer.text().contains("-32001");
        ensure!(unknown, "{} {}", answer.status, answer.text());
    }
    // Had each of them tried for itself, one after the other, it would have taken minutes.
    ensure!(slowest < BOUNDED, "the last answer came after {slowest:?}");
    Ok(slowest)
}
