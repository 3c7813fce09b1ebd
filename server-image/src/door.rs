//! What is in force, shared by all steps: rules, keys, readiness. It holds and tells; it decides nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;
use mooring_contract::DoorStatus;
use mooring_contract::config::Limits;
use mooring_contract::door_status::Handshake;
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::admit::OnlyEra;
use crate::clients::Clients;
use crate::clock;
use crate::era::Era;
use crate::keys::KeySet;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::rules::Rules;
use crate::session::Sessions;
use crate::session::pod::Pod;
use crate::session::seats::Seat;
use crate::sse::Sse;
use crate::who::Principal;
use crate::wire::limits::WireLimits;
use crate::wire::load::Load;

/// Where the front door is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It serves.
    #[default]
    Serving,
    /// It was told to stop: not ready, but serving, because whoever routes here learns of it late.
    Leaving,
    /// It begins no session any more; those that there are live on, reached through their tokens.
    Draining,
    /// It accepts nothing new; running calls go on.
    Stopping,
}

/// What the backend answered to the front door's own handshake.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// Whether it can be reached now.
    pub reachable: bool,
    /// The last handshake that succeeded.
    pub handshake: Option<Handshake>,
    /// The era that it speaks, where it is certain that it speaks one only.
    pub only: Option<Era>,
    /// Why the last try failed, when it did.
    pub error: Option<String>,
}

impl Answered {
    /// The one era that the backend speaks, with the revisions that it named. Nothing is certain of one that is away: it
    /// may come back as another.
    pub fn only_era(&self) -> OnlyEra<'_> {
        let handshake = self.handshake.as_ref().filter(|_| self.reachable)?;
        Some((self.only?, &handshake.protocol_versions))
    }
}

/// The bearer token for `/status`; it is compared and never shown.
struct StatusToken(String);

impl std::fmt::Debug for StatusToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("StatusToken")
    }
}

/// The shared state of one front door.
#[derive(Debug, Default)]
pub struct Door {
    rules: ArcSwapOption<Rules>,
    keys: ArcSwap<KeySet>,
    status_token: ArcSwapOption<StatusToken>,
    config_error: ArcSwapOption<String>,
    answered: ArcSwap<Answered>,
    phase: watch::Sender<Phase>,
    changed: watch::Sender<u64>,
    requests: AtomicU64,
    /// HTTP clients.
    pub clients: Clients,
    /// Calls that run on when their client has gone; a stop waits for them.
    pub calls: TaskTracker,
    /// What is in use of what may be.
    pub load: Load,
    /// Sessions that stay on their pod.
    pub sessions: Sessions,
    /// Sessions of the older transport.
    pub sse: Sse,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Door {
    /// A front door with nothing in force. Its request ids count from `first`, a random number, so that they are unlike
    /// those of others.
    pub fn new(first: u64) -> Self {
        Self { requests: AtomicU64::new(first), ..Self::default() }
    }

    /// The same in a pod, whose peers listen at `peer_port`.
    #[must_use]
    pub fn in_pod(self, pod: Pod, peer_port: u16) -> Self {
        Self { sessions: Sessions::of(pod, peer_port), ..self }
    }

    /// Room for a session more; 503 where there are as many as may be.
    pub fn seat(&self, rules: &Rules) -> Result<Seat, Refusal> {
        self.sessions.seats.take(rules.sessions.max_per_pod, &self.metrics)
    }

    /// The rules in force, once there are any.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        self.rules.load_full()
    }

    /// The limits of the wire in force.
    pub fn wire_limits(&self) -> WireLimits {
        let rules = self.rules.load();
        rules.as_ref().map_or_else(|| WireLimits::from(&Limits::default()), |rules| rules.wire)
    }

    /// The keys in force.
    pub fn keys(&self) -> Arc<KeySet> {
        self.keys.load_full()
    }

    /// Puts new rules and keys into force, both at once for whoever waits on [`Door::changes`].
    pub fn enforce(&self, rules: Option<Arc<Rules>>, keys: Arc<KeySet>) {
        self.keys.store(keys);
        if rules.is_some() {
            self.rules.store(rules);
        }
        self.metrics.reloaded();
        self.changed.send_modify(|generation| *generation += 1);
    }

    /// Why the newest configuration is not in force.
    pub fn set_config_error(&self, error: Option<String>) {
        self.config_error.store(error.map(Arc::new));
    }

    /// The bearer token for `/status`; without one, nobody reads it.
    pub fn set_status_token(&self, token: Option<String>) {
        self.status_token.store(token.map(|token| Arc::new(StatusToken(token))));
    }

    /// Whether `/status` may be told to whoever presents this.
    pub fn admits(&self, presented: &str) -> bool {
        let token = self.status_token.load();
        token.as_ref().is_some_and(|token| token.0.as_bytes().ct_eq(presented.as_bytes()).into())
    }

    /// Tells of changes of rules and keys.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Tells of changes of the phase.
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// The phase now.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Moves to a later phase.
    pub fn enter(&self, phase: Phase) {
        self.phase.send_modify(|current| *current = phase.max(*current));
    }

    /// What the handshake task found.
    pub fn set_answered(&self, answered: Answered) {
        self.answered.store(Arc::new(answered));
    }

    /// What the handshake task found last.
    pub fn answered(&self) -> Arc<Answered> {
        self.answered.load_full()
    }

    /// Whether new clients should come here, and could begin a session where the server has any.
    pub fn is_ready(&self) -> bool {
        let serves = |rules: &Arc<Rules>| !(rules.gives_sessions() && self.sessions.lack_keys());
        self.phase() == Phase::Serving
            && self.rules.load().as_ref().is_some_and(serves)
            && self.answered.load().reachable
    }

    /// An id for a request that brought none.
    pub fn next_request_id(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Resolves when the caller is not welcome any more: key revoked or expired, anonymous access closed, or the front
    /// door stops. A running call may go on through a stop, a stream without end may not.
    pub async fn until_unwelcome(self: Arc<Self>, principal: Principal, running_call: bool) {
        let mut changes = self.changes();
        let mut phases = self.phases();
        loop {
            let now = clock::wall();
            let anonymous = self.rules.load().as_ref().is_some_and(|rules| rules.anonymous);
            if !principal.is_welcome(&self.keys.load(), anonymous, now) {
                return;
            }
            if !running_call && *phases.borrow_and_update() == Phase::Stopping {
                return;
            }
            let waited = tokio::select! {
                result = changes.changed() => result,
                result = phases.changed() => result,
                () = expiry(principal.expires(), now) => Ok(()),
            };
            if waited.is_err() {
                return;
            }
        }
    }

    /// The document at `/status`.
    pub fn status(&self) -> DoorStatus {
        let (keys, answered, rules) = (self.keys.load(), self.answered.load(), self.rules.load());
        DoorStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: self.is_ready(),
            config_revision: rules.as_ref().map(|rules| rules.revision.clone()).unwrap_or_default(),
            config_error: self.config_error.load().as_deref().cloned(),
            keys_revision: keys.revision.clone(),
            key_secret_revisions: keys.secret_revisions.clone(),
            refused_keys: keys.refused().iter().chain(self.sessions.refused().iter()).cloned().collect(),
            handshake: answered.handshake.clone(),
            handshake_error: answered.error.clone(),
            keys_last_used: keys.last_used(),
            session_keys: self.sessions.sealing().map(|sealing| sealing.ids()).unwrap_or_default(),
            sessions: self.sessions.seats.taken() as u64,
            unreachable_peers: self.sessions.peers.unreachable(clock::instant()),
        }
    }
}

/// Longest sleep towards an expiry: wall clocks are set, so it is looked at again.
const RECHECK_SECONDS: i64 = 60;

async fn expiry(expires: Option<Timestamp>, now: Timestamp) {
    let Some(expires) = expires else { return std::future::pending().await };
    let left = expires.duration_since(now).as_millis().clamp(1, i128::from(RECHECK_SECONDS) * 1000);
    tokio::time::sleep(std::time::Duration::from_millis(u64::try_from(left).unwrap_or(1))).await;
}
