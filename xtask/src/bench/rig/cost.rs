//! What calls cost on one way, with all that can be given and at a fixed rate.

use anyhow::Result;

use super::load::{self, Call, Way};
use super::running::Running;
use super::{LENGTH, Room};
use crate::bench::{median, percentile};

/// One measurement, or the middle of several.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Calls a second at most.
    pub rate: f64,
    /// CPU milliseconds of each process for 1,000 calls.
    pub each: Vec<f64>,
    /// Microseconds at the fixed rate.
    pub p50: f64,
    /// Likewise.
    pub p99: f64,
}

impl Cost {
    /// Measures, and looks at the processor time of these processes.
    pub async fn of(room: &Room, way: &Way, callers: usize, call: Call, processes: &[&Running]) -> Result<Self> {
        let cpu = || processes.iter().map(|process| process.cpu()).collect::<Result<Vec<_>>>();
        let before = cpu()?;
        let busy = room.callers.spawn(load::busy(way.clone(), callers, call, LENGTH)).await??;
        let for_thousand = 1e6 / busy.calls as f64;
        let each = cpu()?.iter().zip(before).map(|(after, before)| (after - before) * for_thousand).collect();
        let steady = room.callers.spawn(load::steady(way.clone(), callers, call, LENGTH)).await??;
        let microseconds = |share| percentile(&steady.latencies, share) * 1e6;
        Ok(Self { rate: busy.calls as f64 / busy.seconds, each, p50: microseconds(0.5), p99: microseconds(0.99) })
    }

    /// The median of each part.
    pub fn middle(costs: &[Self]) -> Self {
        let of = |part: fn(&Self) -> f64| median(costs.iter().map(part));
        let processes = costs.first().map_or(0, |cost| cost.each.len());
        let each = (0..processes).map(|number| median(costs.iter().filter_map(|cost| cost.each.get(number).copied())));
        Self { rate: of(|cost| cost.rate), each: each.collect(), p50: of(|cost| cost.p50), p99: of(|cost| cost.p99) }
    }

    /// CPU milliseconds of all processes for 1,000 calls.
    pub fn cpu(&self) -> f64 {
        self.each.iter().sum()
    }
}
