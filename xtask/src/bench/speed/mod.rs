//! What the front door costs beside other proxies: the same tiny server behind all, callers and server on one processor, the proxy alone on another. Rounds go
//! through all proxies in turn, and the median counts, so that a busy moment of the machine touches all alike.

mod memory;
mod peers;

use std::collections::BTreeMap;

use anyhow::Result;

use super::Figures;
use super::rig::cost::Cost;
use super::rig::load::{Call, Way};
use super::rig::running::Running;
use super::rig::{ROUNDS, Room, backend};
use peers::Peer;

/// One kind of load.
struct Scenario {
    name: &'static str,
    callers: usize,
    call: Call,
}

const SCENARIOS: [Scenario; 7] = [
    Scenario { name: "1 session", callers: 1, call: Call::Small },
    Scenario { name: "1 session, 64 KiB answers", callers: 1, call: Call::Large },
    Scenario { name: "1 session, new connections", callers: 1, call: Call::NewConnection },
    Scenario { name: "100 sessions", callers: 100, call: Call::Small },
    Scenario { name: "100 sessions, 64 KiB answers", callers: 100, call: Call::Large },
    Scenario { name: "100 sessions, 64 KiB questions", callers: 100, call: Call::LargeQuestion },
    Scenario { name: "100 sessions, new connections", callers: 100, call: Call::NewConnection },
];

/// Measures.
pub async fn measure(room: &Room, figures: &mut Figures) -> Result<()> {
    for peer in Peer::ALL {
        tokio::task::spawn_blocking(move || peer.install()).await??;
    }
    let backend = room.callers.spawn(backend::start()).await??;
    let mut running = Vec::new();
    for peer in Peer::ALL {
        running.push((peer, peer.start(room, backend).await?));
    }
    for scenario in &SCENARIOS {
        let costs = costs(room, &running, scenario).await?;
        report(scenario, &costs, figures);
    }
    for (_, proxy) in running {
        proxy.stop().await?;
    }
    memory::measure(room, backend, figures).await
}

async fn costs(room: &Room, running: &[(Peer, Running)], scenario: &Scenario) -> Result<BTreeMap<&'static str, Cost>> {
    let mut rounds: BTreeMap<&'static str, Vec<Cost>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (peer, proxy) in running {
            let way = Way::straight(&proxy.target);
            let cost = Cost::of(room, &way, scenario.callers, scenario.call, &[proxy]).await?;
            rounds.entry(peer.name()).or_default().push(cost);
        }
    }
    Ok(rounds.into_iter().map(|(name, costs)| (name, Cost::middle(&costs))).collect())
}

fn report(scenario: &Scenario, costs: &BTreeMap<&'static str, Cost>, figures: &mut Figures) {
    let of = |peer: Peer| costs.get(peer.name()).cloned().unwrap_or_default();
    let (direct, ours) = (of(Peer::Direct), of(Peer::Mooring));
    let name = scenario.name;
    for peer in Peer::ALL {
        let cost = of(peer);
        let peer_name = peer.name();
        figures.add(format!("{name}: {peer_name}, calls a second"), cost.rate, "1/s", None);
        if peer == Peer::Direct {
            continue;
        }
        figures.add(format!("{name}: {peer_name}, CPU for 1,000 calls"), cost.cpu(), "ms", None);
        figures.add(format!("{name}: {peer_name}, added p50"), cost.p50 - direct.p50, "µs", None);
        figures.add(format!("{name}: {peer_name}, added p99"), cost.p99 - direct.p99, "µs", None);
    }
    for (peer, aim) in [(Peer::Envoy, "0.4"), (Peer::Nginx, "1"), (Peer::McpProxy, "0.5")] {
        figures.add(format!("{name}: CPU of ours / {}", peer.name()), ours.cpu() / of(peer).cpu(), "", Some(aim));
    }
    let nginx = of(Peer::Nginx);
    for (what, part) in [("p50", (|cost| cost.p50) as fn(&Cost) -> f64), ("p99", |cost| cost.p99)] {
        let added = |cost| part(cost) - part(&direct);
        figures.add(format!("{name}: added {what} of ours / nginx"), added(&ours) / added(&nginx), "", Some("1"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_set_beside_nginx() {
        let cost = |p50, p99| Cost { rate: 1.0, each: vec![1.0], p50, p99 };
        let costs = [(Peer::Direct, 10.0, 20.0), (Peer::Mooring, 16.0, 50.0), (Peer::Nginx, 14.0, 80.0)];
        let costs = costs.map(|(peer, p50, p99)| (peer.name(), cost(p50, p99))).into();
        let mut figures = Figures::default();
        report(&SCENARIOS[0], &costs, &mut figures);
        for (what, expected) in [("p50", 1.5), ("p99", 0.5)] {
            let name = format!("1 session: added {what} of ours / nginx");
            let found = figures.0.iter().find(|figure| figure.what == name && figure.aim.as_deref() == Some("1"));
            assert!(found.is_some_and(|figure| (figure.value - expected).abs() < 0.01), "{what}: {found:?}");
        }
    }
}
