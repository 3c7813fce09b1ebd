//! What it costs that a call reaches another pod than that of its session: the same calls to the one and to the other, and for comparison to a front
//! door that seals nothing.

use anyhow::{Result, bail};

use super::Pod;
use crate::bench::Figures;
use crate::bench::rig::cost::Cost;
use crate::bench::rig::door::Door;
use crate::bench::rig::load::{Call, Way};
use crate::bench::rig::{ROUNDS, Room};

/// Measures with one session, and with many at once.
pub async fn measure(room: &Room, pods: &[Pod], figures: &mut Figures) -> Result<()> {
    let [owner, other, ..] = pods else { bail!("two pods are needed") };
    let alone = Door::alone(&room.door, &room.place("alone")?, owner.backend).await?;
    let (owner, other) = (&owner.door.running, &other.door.running);
    let ways = [
        Way::straight(&alone.running.target),
        Way::straight(&owner.target),
        Way { begins: owner.target.clone(), calls: vec![other.target.clone()] },
    ];
    for callers in [1, 100] {
        let mut rounds = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (way, costs) in ways.iter().zip(&mut rounds) {
                let processes = [&alone.running, owner, other];
                costs.push(Cost::of(room, way, callers, Call::Small, &processes).await?);
            }
        }
        let [raw, local, forwarded] = rounds.map(|costs| Cost::middle(&costs));
        let name = if callers == 1 { "1 session".to_owned() } else { format!("{callers} sessions") };
        let costs = [("ids as they are", &raw), ("on its pod", &local), ("through another", &forwarded)];
        for (where_to, cost) in costs {
            figures.add(format!("{name}, {where_to}: calls a second"), cost.rate, "1/s", None);
            figures.add(format!("{name}, {where_to}: CPU for 1,000 calls"), cost.cpu(), "ms", None);
        }
        figures.add(format!("{name}: CPU that a sealed id adds to 1,000 calls"), local.cpu() - raw.cpu(), "ms", None);
        figures.add(format!("{name}: CPU that a forward adds to 1,000"), forwarded.cpu() - local.cpu(), "ms", None);
        figures.add(format!("{name}: p50 that a forward adds"), forwarded.p50 - local.p50, "µs", Some("150"));
        figures.add(format!("{name}: p99 that a forward adds"), forwarded.p99 - local.p99, "µs", None);
    }
    alone.running.stop().await
}
