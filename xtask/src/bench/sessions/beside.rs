//! Which sessions stay whole behind what proxies offer for them, over the same servers, with a connection for each request: through one proxy, and through
//! two in turn that know nothing of each other. What is whole has a price, too.

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

use super::Pod;
use crate::bench::Figures;
use crate::bench::rig::cost::Cost;
use crate::bench::rig::load::{Call, INITIALIZE, INITIALIZED, SESSION, Target, Way};
use crate::bench::rig::proxies::{envoy, haproxy, nginx};
use crate::bench::rig::running::Running;
use crate::bench::rig::{ROUNDS, Room, free, wire};

/// Sessions for each share.
const SESSIONS: usize = 400;
/// Sessions that are open at the same time.
const AT_ONCE: usize = 20;
/// Calls of one session, and its requests after `initialize`.
const CALLS: usize = 5;
const IN_SESSION: usize = CALLS + 3;
/// Sessions that call at the same time where cost is measured.
const CALLERS: usize = 100;

/// What keeps a session at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    /// The front doors, behind an nginx that goes from one to the next.
    Mooring,
    /// nginx learns from answers.
    NginxLearn,
    /// nginx hashes the id.
    NginxHash,
    /// HAProxy keeps a table.
    HaproxyTable,
    /// Envoy writes the server into the id.
    EnvoyEnvelope,
}

impl Keeper {
    const ALL: [Self; 5] = [Self::Mooring, Self::NginxLearn, Self::NginxHash, Self::HaproxyTable, Self::EnvoyEnvelope];

    const fn name(self) -> &'static str {
        match self {
            Self::Mooring => "mooring-server behind nginx",
            Self::NginxLearn => "nginx sticky learn",
            Self::NginxHash => "nginx hash of the id",
            Self::HaproxyTable => "HAProxy stick table",
            Self::EnvoyEnvelope => "Envoy envelope state",
        }
    }

    /// Starts one of its proxies.
    async fn start(self, room: &Room, pods: &[Pod], number: usize) -> Result<Running> {
        let folder = room.place(&format!("{self:?}-{number}"))?;
        let target = Target::at(free()?);
        let servers: Vec<u16> = pods.iter().map(|pod| pod.backend).collect();
        let start = match self {
            Self::Mooring => {
                let doors: Vec<u16> = pods.iter().map(|pod| pod.door.running.target.address.port()).collect();
                nginx(&folder, target, &doors, "")?
            }
            Self::NginxLearn => {
                // Learned with the head of the answer, or the client could be back before.
                let learn = "zone servers 64k; sticky learn create=$upstream_http_mcp_session_id \
                             lookup=$http_mcp_session_id zone=sessions:8m timeout=1h header;";
                nginx(&folder, target, &servers, learn)?
            }
            Self::NginxHash => nginx(&folder, target, &servers, "hash $http_mcp_session_id consistent;")?,
            Self::HaproxyTable => {
                let table = "  balance roundrobin
  stick-table type string len 64 size 100k expire 1h
  stick match req.hdr(mcp-session-id)
  stick store-response res.hdr(mcp-session-id)
";
                haproxy(&folder, target, &servers, table)?
            }
            Self::EnvoyEnvelope => {
                let kind = |name: &str| format!("type.googleapis.com/envoy.extensions.{name}");
                let state = json!({
                    "@type": kind("http.stateful_session.envelope.v3.EnvelopeSessionState"),
                    "header": {"name": SESSION},
                });
                let filter = json!({
                    "@type": kind("filters.http.stateful_session.v3.StatefulSession"),
                    "session_state": {"name": "envoy.http.stateful_session.envelope", "typed_config": state},
                });
                let filter = json!({"name": "envoy.filters.http.stateful_session", "typed_config": filter});
                envoy(&folder, target, &servers, &[filter])?
            }
        };
        Running::start(start, &folder).await
    }
}

/// One keeper through so many proxies.
struct Cell {
    keeper: Keeper,
    proxies: Vec<Running>,
}

impl Cell {
    fn name(&self) -> String {
        let many = if self.proxies.len() == 1 { "one proxy" } else { "two proxies in turn" };
        format!("{}, {many}", self.keeper.name())
    }

    /// Calls go to one proxy after the other.
    fn way(&self) -> Result<Way> {
        let calls: Vec<Target> = self.proxies.iter().map(|proxy| proxy.target.clone()).collect();
        Ok(Way { begins: calls.first().context("a proxy")?.clone(), calls })
    }
}

/// Measures.
pub async fn measure(room: &Room, pods: &[Pod], figures: &mut Figures) -> Result<()> {
    let mut cells = Vec::new();
    for keeper in Keeper::ALL {
        for count in [1, 2] {
            let mut proxies = Vec::new();
            for number in 0..count {
                proxies.push(keeper.start(room, pods, 10 * count + number).await?);
            }
            cells.push(Cell { keeper, proxies });
        }
    }
    let mut whole = Vec::new();
    for cell in &cells {
        let (before, way) = (passed_on(pods).await?, cell.way()?);
        let right = room.callers.spawn(right(way.calls)).await??;
        figures.add(format!("{}: whole sessions", cell.name()), share(right, SESSIONS), "%", None);
        if cell.keeper == Keeper::Mooring {
            let passed_on = (passed_on(pods).await? - before) as usize;
            figures.add(format!("{}: passed on", cell.name()), share(passed_on, SESSIONS * IN_SESSION), "%", None);
        }
        if right == SESSIONS {
            whole.push(cell);
        }
    }
    costs(room, pods, &whole, figures).await?;
    for proxy in cells.into_iter().flat_map(|cell| cell.proxies) {
        proxy.stop().await?;
    }
    Ok(())
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64 * 100.0
}

/// Requests that front doors have passed on so far.
async fn passed_on(pods: &[Pod]) -> Result<f64> {
    let mut sum = 0.0;
    for pod in pods {
        sum += pod.door.metric("mooring_server_forwards_total").await?;
    }
    Ok(sum)
}

/// How many sessions were whole.
async fn right(targets: Vec<Target>) -> Result<usize> {
    let sessions = futures::stream::iter(0..SESSIONS).map(|number| is_whole(&targets, number));
    let whole: Vec<bool> = sessions.buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(whole.into_iter().filter(|whole| *whole).count())
}

/// One session, each request to the next proxy: whether every answer was right.
async fn is_whole(targets: &[Target], number: usize) -> Result<bool> {
    let mut turns = targets.iter().cycle().skip(number % targets.len());
    let begun = turns.next().context("a proxy")?.once("POST", None, INITIALIZE).await?;
    let Some(session) = wire::header(&begun.head, SESSION) else { return Ok(false) };
    let mut requests = vec![("POST", INITIALIZED.to_owned(), 202)];
    let call = targets.first().context("a proxy")?.body("hello");
    requests.extend(std::iter::repeat_n(("POST", call, 200), CALLS));
    requests.extend([("GET", String::new(), 200), ("DELETE", String::new(), 200)]);
    for ((method, body, expected), target) in requests.iter().zip(turns) {
        let answer = target.once(method, Some(session), body).await?;
        if answer.status() != *expected {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What calls in sessions cost, where all were whole.
async fn costs(room: &Room, pods: &[Pod], cells: &[&Cell], figures: &mut Figures) -> Result<()> {
    let direct = Way::straight(&Target::at(([127, 0, 0, 1], pods.first().context("a pod")?.backend).into()));
    let mut baseline = Vec::new();
    let mut rounds: Vec<Vec<Cost>> = cells.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        baseline.push(Cost::of(room, &direct, CALLERS, Call::NewConnection, &[]).await?);
        for (cell, costs) in cells.iter().zip(&mut rounds) {
            let doors = pods.iter().map(|pod| &pod.door.running).filter(|_| cell.keeper == Keeper::Mooring);
            let processes: Vec<&Running> = cell.proxies.iter().chain(doors).collect();
            costs.push(Cost::of(room, &cell.way()?, CALLERS, Call::NewConnection, &processes).await?);
        }
    }
    let baseline = Cost::middle(&baseline);
    for (cell, costs) in cells.iter().zip(&rounds) {
        let (name, cost) = (cell.name(), Cost::middle(costs));
        figures.add(format!("{name}: CPU for 1,000 calls"), cost.cpu(), "ms", None);
        if cell.keeper == Keeper::Mooring {
            let doors = cost.each.iter().skip(cell.proxies.len()).sum();
            figures.add(format!("{name}: of which the front doors"), doors, "ms", None);
        }
        figures.add(format!("{name}: calls a second"), cost.rate, "1/s", None);
        figures.add(format!("{name}: added p50"), cost.p50 - baseline.p50, "µs", None);
        figures.add(format!("{name}: added p99"), cost.p99 - baseline.p99, "µs", None);
    }
    Ok(())
}
