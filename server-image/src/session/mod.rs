//! Sessions that stay on their pod, whatever pod a request reaches, with nothing stored anywhere.
//!
//! `initialize` is answered by the backend of the pod that got it. The id that the backend gives is sealed, together with
//! the pod's own uid and address, into a [`token`], and the client gets that. Any pod opens it ([`place`]): its own
//! session goes to the backend under the backend's id ([`part`]), another's is streamed to the pod that it names
//! ([`forward`]), whose [`peer`] listener lets in only pods of the same server ([`proof`]). What cannot be opened, or
//! whose pod cannot be reached, is answered 404, and the client begins anew.
//!
//! Where there is no pod that knows itself, ids pass as they are. In one that has no session key yet no session begins and
//! none is found: the server's own ids never leave it.

pub mod base62;
pub mod forward;
pub mod keys;
pub mod part;
pub mod peer;
pub mod place;
pub mod pod;
pub mod proof;
pub mod registry;
pub mod seats;
pub mod silence;
pub mod token;
pub mod uuid;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http::HeaderValue;
use jiff::Timestamp;
use mooring_contract::door_status::{RefusedKey, SessionKeyIds};

use crate::clock;
use crate::directory::Entries;
use crate::door::Door;
use crate::rules::Rules;
use crate::who::Subject;
use forward::Peers;
use keys::Ring;
use pod::Pod;
use registry::Owned;
use seats::Seats;
use token::{Contents, Place, Scope};

/// What a front door knows of sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    me: Option<Pod>,
    ring: ArcSwapOption<Ring>,
    refused: ArcSwap<Vec<RefusedKey>>,
    /// Those of the backend that this pod owns.
    pub owned: Arc<Owned>,
    /// All that this process has, against how many it may have.
    pub seats: Seats,
    /// The way to other pods.
    pub peers: Peers,
}

impl Sessions {
    /// Those of a pod, whose peers listen at `peer_port`.
    pub fn of(me: Pod, peer_port: u16) -> Self {
        Self { me: Some(me), peers: Peers::at(peer_port), ..Self::default() }
    }

    /// Brings the keys of the mounted Secret into force. Where none of them seals, those before stay: a Secret that was
    /// deleted comes back with others, and until then no client may get an id that is not sealed.
    pub fn enforce(&self, entries: &Entries) {
        let (ring, refused) = Ring::build(entries);
        for key in &refused {
            tracing::warn!(entry = key.entry, reason = key.reason, "session key refused");
        }
        self.refused.store(Arc::new(refused));
        if let Some(ring) = ring {
            let before = self.ring.load();
            if before.as_ref().is_none_or(|before| before.ids() != ring.ids()) {
                tracing::info!(current = ring.ids().current, sealing = self.me.is_some(), "session keys in force");
            }
            self.ring.store(Some(Arc::new(ring)));
        } else if self.lack_keys() {
            tracing::warn!("there is no session key: no session begins, and none is found, until there is one");
        }
    }

    /// The keys in force.
    pub fn ring(&self) -> Option<Arc<Ring>> {
        self.ring.load_full()
    }

    /// Entries that are no keys.
    pub fn refused(&self) -> Arc<Vec<RefusedKey>> {
        self.refused.load_full()
    }

    /// What seals here, once there is a key; `None` also where ids pass as they are.
    pub fn sealing(&self) -> Option<Sealing> {
        Some(Sealing { me: self.me?, ring: self.ring()? })
    }

    /// Whether nothing seals here that should: the Secret is not mounted yet, or was deleted before this process began.
    pub fn lack_keys(&self) -> bool {
        self.me.is_some() && self.ring.load().is_none()
    }
}

/// What seals and opens.
#[derive(Clone, Debug)]
pub struct Sealing {
    me: Pod,
    ring: Arc<Ring>,
}

impl Sealing {
    /// The ids of the keys.
    pub fn ids(&self) -> SessionKeyIds {
        self.ring.ids()
    }

    /// The token of a session of this pod; `None` where its id cannot be sealed.
    pub fn seal(&self, rules: &Rules, subject: &Subject, place: Place, id: Bytes, now: Timestamp) -> Option<String> {
        let scope = Scope { server: &rules.server.uid, subject, place };
        let contents = Contents { owner: self.me, issued: now, id };
        token::seal(self.ring.current(), &scope, &contents, entropy().ok()?)
    }
}

/// The value of a header that nobody logs.
fn secret(bytes: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(bytes).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[expect(clippy::disallowed_methods, reason = "the rim: randomness for tokens and proofs")]
fn entropy<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// How often idle sessions are looked for while one may be idle.
const LOOKS: u32 = 8;
/// Shortest and longest pause between two looks.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(30)];

/// Ends the sessions that nobody uses, forever.
pub async fn expire(door: Arc<Door>) {
    let (mut changes, mut looked) = (door.changes(), clock::instant());
    loop {
        let [shortest, longest] = PAUSE;
        let idle = door.rules().map_or(longest * LOOKS, |rules| rules.sessions.idle_timeout);
        tokio::select! {
            () = tokio::time::sleep_until(looked + (idle / LOOKS).clamp(shortest, longest)) => {}
            // The time may be another now, but does not begin anew: keys may change all the time.
            Ok(()) = changes.changed() => continue,
        }
        looked = clock::instant();
        let Some(rules) = door.rules() else { continue };
        for id in door.sessions.owned.expire(looked, rules.sessions.idle_timeout) {
            part::end(&door, &rules, &id);
        }
    }
}
