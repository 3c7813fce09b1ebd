//! What it costs to begin a session, and to hold one that nobody uses.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use tokio::net::TcpStream;

use crate::bench::rig::door::Door;
use crate::bench::rig::load::{Target, connect};
use crate::bench::rig::{LENGTH, ROUNDS, Room, backend, free};
use crate::bench::{Figures, median};

/// How many begin sessions at the same time, each on a connection of its own.
const CALLERS: usize = 100;
/// Idle sessions that are held.
const IDLE: usize = 10_000;
/// Lets what was freed be freed.
const SETTLE: Duration = Duration::from_millis(500);

/// Measures both.
pub async fn measure(room: &Room, figures: &mut Figures) -> Result<()> {
    let backend = room.callers.spawn(backend::start()).await??;
    let peer_port = free()?.port();
    let held = Door::in_pod(&room.door, &room.place("held")?, backend, 11, peer_port).await?;
    let callers = room.callers.spawn(callers(held.running.target.clone())).await??;
    let callers = room.callers.spawn(all_begin(callers, 1)).await??; // buffers have their size then
    tokio::time::sleep(SETTLE).await;
    let before = held.running.memory("VmRSS")?;
    let callers = room.callers.spawn(all_begin(callers, IDLE / CALLERS)).await??;
    tokio::time::sleep(SETTLE).await;
    let each = (held.running.memory("VmRSS")? - before) / IDLE as f64;
    figures.add(format!("memory of an idle session, of {IDLE}"), each, "KiB", Some("2"));
    drop(callers);
    held.running.stop().await?;

    let door = Door::in_pod(&room.door, &room.place("begun")?, backend, 12, peer_port).await?;
    let mut rates = Vec::new();
    let mut cpu = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (ends, cpu) in [true, false].into_iter().zip(&mut cpu) {
            let (start, before) = (Instant::now(), door.running.cpu()?);
            let begun = room.callers.spawn(busily(door.running.target.clone(), start + LENGTH, ends)).await??;
            cpu.push((door.running.cpu()? - before) * 1e6 / begun as f64);
            if ends {
                rates.push(begun as f64 / start.elapsed().as_secs_f64());
            }
        }
    }
    let [pairs, begun] = cpu.map(|cpu| median(cpu.into_iter()));
    figures.add("initialize and DELETE: pairs a second", median(rates.into_iter()), "1/s", None);
    figures.add("initialize and DELETE: CPU for 1,000 pairs", pairs, "ms", None);
    figures.add("initialize: CPU for 1,000", begun, "ms", None);
    door.running.stop().await
}

/// Who begins sessions: a connection that is kept.
struct Caller {
    target: Target,
    stream: TcpStream,
    received: Vec<u8>,
}

async fn callers(target: Target) -> Result<Vec<Caller>> {
    let caller = async || {
        anyhow::Ok(Caller { target: target.clone(), stream: connect(target.address).await?, received: Vec::new() })
    };
    try_join_all((0..CALLERS).map(|_| caller())).await
}

impl Caller {
    async fn begin(&mut self) -> Result<String> {
        self.target.begin(&mut self.stream, &mut self.received).await
    }

    async fn end(&mut self, session: &str) -> Result<()> {
        self.target.end(session, &mut self.stream, &mut self.received).await
    }
}

/// Each begins so many sessions and leaves them.
async fn all_begin(mut callers: Vec<Caller>, each: usize) -> Result<Vec<Caller>> {
    let begin = async |caller: &mut Caller| {
        for _ in 0..each {
            caller.begin().await?;
        }
        anyhow::Ok(())
    };
    try_join_all(callers.iter_mut().map(begin)).await?;
    Ok(callers)
}

/// As many sessions as can be begun, and ended at once if they are to end. Returns how many there were.
async fn busily(target: Target, end: Instant, ends: bool) -> Result<usize> {
    let busily = async |mut caller: Caller| {
        let mut begun = 0;
        while Instant::now() < end {
            let session = caller.begin().await?;
            begun += 1;
            if ends {
                caller.end(&session).await?;
            }
        }
        anyhow::Ok(begun)
    };
    Ok(try_join_all(callers(target).await?.into_iter().map(busily)).await?.into_iter().sum())
}
