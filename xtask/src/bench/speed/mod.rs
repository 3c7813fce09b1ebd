//! What the front door costs beside other proxies: the same tiny server behind all, callers and server on one processor, the proxy alone on another. Rounds go
//! through all proxies in turn, and the median counts, so that a busy moment of the machine touches all alike.

mod backend;
mod load;
mod memory;
mod peers;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use mooring_tests::product::Product;
use tokio::runtime::Handle;

use load::{Call, Outcome};
use peers::{Peer, Running};

use super::{Figures, percentile};

/// Processor of the callers and the backend.
const CALLERS: usize = 0;
/// Processor of the proxy.
const PROXY: usize = 1;
/// How often everything is measured.
const ROUNDS: usize = 3;
/// How long one measurement takes.
const LENGTH: Duration = Duration::from_secs(2);
/// Calls a second where latency is measured: what every proxy can do.
const RATE: f64 = 1000.0;

/// One kind of load.
struct Scenario {
    name: &'static str,
    callers: usize,
    call: Call,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario { name: "1 session", callers: 1, call: Call::Small },
    Scenario { name: "100 sessions", callers: 100, call: Call::Small },
    Scenario { name: "100 sessions, 64 KiB answers", callers: 100, call: Call::Large },
    Scenario { name: "100 sessions, 64 KiB questions", callers: 100, call: Call::LargeQuestion },
    Scenario { name: "100 sessions, new connections", callers: 100, call: Call::NewConnection },
];

/// What one proxy did in one scenario, median of the rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Calls a second at most.
    rate: f64,
    /// CPU seconds of the proxy for 1,000 calls.
    cpu: f64,
    /// Milliseconds at a fixed rate.
    p50: f64,
    /// Likewise.
    p99: f64,
}

/// Measures, with the proxies' files below `folder`.
pub async fn measure(door: &Product, folder: &Path, figures: &mut Figures) -> Result<()> {
    ensure!(
        std::thread::available_parallelism()?.get() > PROXY,
        "two processors are needed: one for the callers, one for the proxy"
    );
    for peer in Peer::ALL {
        tokio::task::spawn_blocking(move || peer.install()).await??;
    }
    let side = backend::runtime(CALLERS)?;
    let callers = side.handle().clone();
    let outcome = measure_from(door, folder, &callers, figures).await;
    side.shutdown_background();
    outcome
}

async fn measure_from(door: &Product, folder: &Path, callers: &Handle, figures: &mut Figures) -> Result<()> {
    let (listener, address) = callers.spawn(backend::listen()).await??;
    callers.spawn(backend::serve(listener));
    let mut running = Vec::new();
    for peer in Peer::ALL {
        running.push((peer, peer.start(door, folder, address, PROXY).await?));
    }
    for scenario in &SCENARIOS {
        let costs = costs(callers, &running, scenario).await?;
        report(scenario, &costs, figures);
    }
    for (_, proxy) in running {
        proxy.stop().await?;
    }
    memory::measure(door, folder, callers, address, figures).await
}

async fn costs(
    callers: &Handle,
    running: &[(Peer, Running)],
    scenario: &Scenario,
) -> Result<BTreeMap<&'static str, Cost>> {
    let mut rounds: BTreeMap<&'static str, Vec<Cost>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (peer, proxy) in running {
            let before = proxy.cpu()?;
            let load = load::busy(proxy.target.clone(), scenario.callers, scenario.call, LENGTH);
            let busy: Outcome = callers.spawn(load).await??;
            let cpu = (proxy.cpu()? - before) / busy.calls as f64 * 1000.0;
            let load = load::steady(proxy.target.clone(), scenario.callers, scenario.call, RATE, LENGTH);
            let steady: Outcome = callers.spawn(load).await??;
            let millisecond = |share| percentile(&steady.latencies, share) * 1000.0;
            let cost =
                Cost { rate: busy.calls as f64 / busy.seconds, cpu, p50: millisecond(0.5), p99: millisecond(0.99) };
            rounds.entry(peer.name()).or_default().push(cost);
        }
    }
    Ok(rounds.into_iter().map(|(name, costs)| (name, median(&costs))).collect())
}

fn median(costs: &[Cost]) -> Cost {
    let of = |part: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = costs.iter().map(part).collect();
        values.sort_by(f64::total_cmp);
        percentile(&values, 0.5)
    };
    Cost { rate: of(|cost| cost.rate), cpu: of(|cost| cost.cpu), p50: of(|cost| cost.p50), p99: of(|cost| cost.p99) }
}

fn report(scenario: &Scenario, costs: &BTreeMap<&'static str, Cost>, figures: &mut Figures) {
    let of = |peer: Peer| costs.get(peer.name()).copied().unwrap_or_default();
    let (direct, ours) = (of(Peer::Direct), of(Peer::Mooring));
    let name = scenario.name;
    for peer in Peer::ALL {
        let cost = of(peer);
        let peer_name = peer.name();
        figures.add(format!("{name}: {peer_name}, calls a second"), cost.rate, "1/s", None);
        if peer == Peer::Direct {
            continue;
        }
        figures.add(format!("{name}: {peer_name}, CPU for 1,000 calls"), cost.cpu * 1000.0, "ms", None);
        figures.add(format!("{name}: {peer_name}, added p50"), (cost.p50 - direct.p50) * 1000.0, "µs", None);
        figures.add(format!("{name}: {peer_name}, added p99"), (cost.p99 - direct.p99) * 1000.0, "µs", None);
    }
    for (peer, aim) in [(Peer::Envoy, "0.4"), (Peer::Nginx, "1"), (Peer::McpProxy, "0.5")] {
        figures.add(format!("{name}: CPU of ours / {}", peer.name()), ours.cpu / of(peer).cpu, "", Some(aim));
    }
}
