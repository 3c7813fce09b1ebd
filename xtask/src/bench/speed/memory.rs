//! What the front door holds: for a stream on which nothing happens, after many sessions, and while a huge answer passes to a reader that takes its time.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::peers::Peer;
use crate::bench::Figures;
use crate::bench::rig::Room;
use crate::bench::rig::backend::HUGE;
use crate::bench::rig::load::{Target, answered, connect};
use crate::bench::rig::running::Running;

const STREAMS: usize = 1000;
const SESSIONS: usize = 10_000;
/// Sessions that are open at the same time.
const AT_ONCE: usize = 100;
/// Lets what was freed be freed.
const SETTLE: Duration = Duration::from_millis(500);

/// Measures all three.
pub async fn measure(room: &Room, backend: u16, figures: &mut Figures) -> Result<()> {
    for peer in [Peer::Mooring, Peer::Nginx, Peer::Envoy, Peer::Haproxy] {
        let proxy = peer.start(room, backend).await?;
        let each = idle_streams(room, &proxy).await?;
        let aim = (peer == Peer::Mooring).then_some("32");
        figures.add(format!("{}: memory of an idle GET stream, of {STREAMS}", peer.name()), each, "KiB", aim);
        proxy.stop().await?;
    }
    let proxy = Peer::Mooring.start(room, backend).await?;
    let mut rounds = Vec::new();
    for _ in 0..3 {
        room.callers.spawn(sessions(proxy.target.clone())).await??;
        tokio::time::sleep(SETTLE).await;
        rounds.push(proxy.memory("VmRSS")?);
    }
    if let [first, second, third] = rounds[..] {
        figures.add(format!("memory after {SESSIONS} sessions"), first / 1024.0, "MiB", None);
        figures.add("the same after a second round, growth", (second / first - 1.0) * 100.0, "%", Some("5"));
        figures.add("the same after a third round, growth", (third / second - 1.0) * 100.0, "%", None);
    }
    let before = proxy.memory("VmRSS")?;
    room.callers.spawn(huge(proxy.target.clone())).await??;
    figures.add(
        format!("peak memory while {} MiB pass to a slow reader", HUGE / 1024 / 1024),
        (proxy.memory("VmHWM")? - before) / 1024.0,
        "MiB more",
        Some("1"),
    );
    proxy.stop().await
}

/// KiB for each of many streams.
async fn idle_streams(room: &Room, proxy: &Running) -> Result<f64> {
    tokio::time::sleep(SETTLE).await;
    let before = proxy.memory("VmRSS")?;
    let target = proxy.target.clone();
    let open = async move { try_join_all((0..STREAMS).map(|_| stream(&target))).await };
    let streams: Vec<TcpStream> = room.callers.spawn(open).await??;
    tokio::time::sleep(SETTLE).await;
    let after = proxy.memory("VmRSS")?;
    drop(streams);
    Ok((after - before) / STREAMS as f64)
}

/// An open event stream, once its first bytes are there.
async fn stream(target: &Target) -> Result<TcpStream> {
    let (mut stream, mut received) = (connect(target.address).await?, Vec::new());
    stream.write_all(&target.request("GET", None, "", false)).await?;
    while !received.windows(2).any(|two| two == b": ") {
        anyhow::ensure!(stream.read_buf(&mut received).await? > 0, "{}", String::from_utf8_lossy(&received));
    }
    Ok(stream)
}

/// Many sessions, each opened, used once and ended.
async fn sessions(target: Target) -> Result<()> {
    let caller = |_| {
        let target = target.clone();
        tokio::spawn(async move {
            let (mut stream, mut received) = (connect(target.address).await?, Vec::new());
            for _ in 0..SESSIONS / AT_ONCE {
                let session = target.initialize(&mut stream, &mut received).await?;
                stream.write_all(&target.request("POST", Some(&session), &target.body("hello"), false)).await?;
                answered(&mut stream, &mut received).await?;
                target.end(&session, &mut stream, &mut received).await?;
            }
            Ok(())
        })
    };
    try_join_all((0..AT_ONCE).map(caller)).await?.into_iter().collect()
}

/// A huge answer, for which the reader takes its time.
async fn huge(target: Target) -> Result<()> {
    let (mut stream, mut received) = (connect(target.address).await?, Vec::new());
    let session = target.initialize(&mut stream, &mut received).await?;
    stream.write_all(&target.request("POST", Some(&session), &target.body("huge"), true)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut taken = 0;
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = stream.read(&mut piece).await.context("the answer broke off")?;
        taken += read;
        if read == 0 || taken > HUGE {
            break;
        }
    }
    anyhow::ensure!(taken > HUGE, "{taken} bytes of {HUGE}");
    Ok(())
}
