//! The peer listener: other pods of the same server bring what belongs to sessions of this one. Whoever connects proves
//! itself first; then requests come over HTTP/2 and go the whole way of any other, but for one thing: they are never passed
//! on again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, Request};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::forward::ATTEMPT;
use super::pod::Uid;
use super::{entropy, proof};
use crate::accept::{self, Open, Rim};
use crate::body::Body;
use crate::door::{Door, Phase};
use crate::metrics::Listener;
use crate::pipeline::{self, Arrival};
use crate::wire::limits::WireLimits;

/// The address of the client, or of the proxy that it came by, as the pod saw it that it reached. It counts on this listener
/// alone.
pub const CLIENT: HeaderName = HeaderName::from_static("mooring-client");

/// Longest time for a proof: longer than whoever calls waits for it, who hears nothing then, and is not hung up on. Silence
/// is a link that is slow or cut, a hang-up somebody who cannot prove who they are.
const PATIENCE: Duration = ATTEMPT.saturating_mul(2);
/// Most connections that have not proved themselves, and most of one address. A pod makes one at a time, and another that
/// makes many and says nothing keeps none of them out.
const UNPROVED: usize = 256;
const UNPROVED_OF_ONE: usize = 16;
/// Most headers of a request: `limits.headerCount` is at most 256, and the pod that passes it on adds some.
const HEADERS: usize = 256 + 8;
/// Largest head: `limits.headerBytes` is at most 64 KiB, and HTTP/2 counts 32 bytes more for each header (RFC 9113 section
/// 6.5.2).
const HEAD: usize = 64 * 1024 + 64 * HEADERS;
/// Longest target: the maximum of `limits.uriBytes`.
const URI: usize = 32 * 1024;
/// Pause after a failed accept, as at the other listeners.
const PAUSE: Duration = Duration::from_millis(50);
/// One connection carries many clients. A slow one is cut off by the pod that it reached, never all of them here.
const SLOW: Duration = Duration::from_secs(24 * 60 * 60);

/// Serves other pods as `uid` until the front door stops.
pub async fn serve(listener: TcpListener, uid: Uid, door: Arc<Door>, connections: TaskTracker) {
    let unproved = Arc::<Unproved>::default();
    let mut phases = door.phases();
    // While the front door drains, sessions are reached here as ever.
    let (phase, served) = watch::channel(Phase::Serving);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = phases.wait_for(|phase| *phase == Phase::Stopping) => break,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Some(place) = unproved.admit(peer.ip().to_canonical()) else {
            door.metrics.cut(Listener::PEER, "shed");
            continue;
        };
        let (door, served) = (Arc::clone(&door), served.clone());
        let counted = Open::of(&door.metrics.connections(Listener::PEER));
        connections.spawn(async move {
            let proved = proved(stream, uid, &door).await;
            drop(place);
            match proved {
                Some(stream) => requests(stream, peer.ip(), door, served).await,
                None => door.metrics.cut(Listener::PEER, "unproved"),
            }
            drop(counted);
        });
    }
    phase.send_replace(Phase::Stopping);
}

/// Connections that have not proved themselves, by address.
#[derive(Default)]
struct Unproved(Mutex<HashMap<IpAddr, usize>>);

/// One of them.
struct Place {
    all: Arc<Unproved>,
    address: IpAddr,
}

impl Unproved {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more, where there is room.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut all = self.lock();
        if all.values().sum::<usize>() >= UNPROVED || all.get(&address).is_some_and(|of_one| *of_one >= UNPROVED_OF_ONE)
        {
            return None;
        }
        *all.entry(address).or_default() += 1;
        Some(Place { all: Arc::clone(self), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(of_one) = all.get_mut(&self.address) {
            *of_one -= 1;
            if *of_one == 0 {
                all.remove(&self.address);
            }
        }
    }
}

async fn proved(mut stream: TcpStream, uid: Uid, door: &Door) -> Option<TcpStream> {
    let _ = stream.set_nodelay(true); // a socket without it still works
    let (ring, number) = (door.sessions.ring()?, entropy().ok()?);
    let proof = proof::answer(&mut stream, &ring, uid, number);
    tokio::time::timeout(PATIENCE, proof).await.ok()?.ok()?;
    Some(stream)
}

async fn requests(stream: TcpStream, peer: IpAddr, door: Arc<Door>, served: watch::Receiver<Phase>) {
    let limits = Arc::clone(&door);
    let rim = Rim {
        listener: Listener::PEER,
        limits: Arc::new(move || at_peers(limits.wire_limits())),
        metrics: Arc::clone(&door.metrics),
    };
    let handler = move |arrival: Arrival, mut request: Request<Body>| {
        let peer = client(request.headers_mut()).unwrap_or(arrival.peer);
        pipeline::answer(Arc::clone(&door), Arrival { peer, forwarded: true, ..arrival }, request)
    };
    accept::connection(stream, peer, false, rim, served, handler).await;
}

/// The limits of a head held where the client came in, and may have been others when this connection began. Here it may be
/// as large as any configuration allows, and as slow as the link: whether that lives, PING tells.
fn at_peers(limits: WireLimits) -> WireLimits {
    let (header_bytes, header_count, uri_bytes) = (HEAD, HEADERS, URI);
    WireLimits { header_bytes, header_count, uri_bytes, header_timeout: SLOW, write_timeout: SLOW, ..limits }
}

/// Takes the client's address out of the headers.
fn client(headers: &mut HeaderMap) -> Option<IpAddr> {
    headers.remove(CLIENT)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_no_place_of_another() {
        let unproved = Arc::<Unproved>::default();
        let of = |number: u8| unproved.admit([10, 0, 0, number].into());
        let loud: Vec<_> = (0..UNPROVED).filter_map(|_| of(1)).collect();
        assert_eq!(loud.len(), UNPROVED_OF_ONE);
        assert!(of(2).is_some());
        let many: Vec<_> = (2..=255).flat_map(|number| [of(number), of(number)]).flatten().collect();
        assert_eq!(loud.len() + many.len(), UNPROVED);
        drop((loud, many));
        assert!(unproved.lock().is_empty() && of(1).is_some());
    }
}
