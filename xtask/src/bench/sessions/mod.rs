//! What sessions cost, and which stay whole: to pass a call on to the pod of its session, to begin a session and to hold it, and all of it beside what
//! other proxies do for sessions.

mod beside;
mod forward;
mod owned;

use anyhow::Result;
use mooring_tests::parts::proxies;

use super::Figures;
use super::rig::door::Door;
use super::rig::{Room, backend, free};

/// How many pods the server has.
const PODS: u8 = 3;

/// Measures.
pub async fn measure(room: &Room, figures: &mut Figures) -> Result<()> {
    for install in [proxies::nginx, proxies::envoy, proxies::haproxy] {
        tokio::task::spawn_blocking(install).await??;
    }
    let mut pods = Vec::new();
    let peer_port = free()?.port();
    for number in 1..=PODS {
        let backend = room.callers.spawn(backend::start()).await??;
        let door = Door::in_pod(&room.door, &room.place(&format!("pod-{number}"))?, backend, number, peer_port).await?;
        pods.push(Pod { backend, door });
    }
    forward::measure(room, &pods, figures).await?;
    owned::measure(room, figures).await?;
    beside::measure(room, &pods, figures).await?;
    for pod in pods {
        pod.door.running.stop().await?;
    }
    Ok(())
}

/// One pod: a server, and the front door before it.
struct Pod {
    backend: u16,
    door: Door,
}
