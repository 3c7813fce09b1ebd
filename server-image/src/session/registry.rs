//! The sessions of the backend that this pod owns: whose each is, when it was used last, and which have ended. Nothing in
//! it is needed to serve a session; one that is not here (the front door was started anew) is taken in with its first use.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::time::Instant;

use super::seats::Seat;
use crate::clock;
use crate::who::Subject;

/// So many ended sessions are remembered. Who asks for an older one hears of it from the backend.
const ENDED_MAXIMUM: usize = 10_000;

/// All of them.
#[derive(Debug, Default)]
pub struct Owned(Mutex<Sessions>);

#[derive(Debug, Default)]
struct Sessions {
    alive: HashMap<Bytes, Session>,
    /// A tree, because a hash table that is full, and from which as many go as come, doubles for their leavings.
    ended: BTreeSet<Bytes>,
    /// The same, in the order in which they ended.
    order: VecDeque<Bytes>,
}

/// For whom a session began, and when. A backend that is started anew may give an id again, and a token of the session
/// that had it before must not open the one that has it now.
#[derive(Debug)]
pub struct Whose {
    subject: Subject,
    /// In whole seconds, as in its token.
    since: i64,
}

impl Whose {
    /// A session of `subject` that began then.
    pub fn of(subject: Subject, issued: Timestamp) -> Self {
        Self { subject, since: issued.as_second() }
    }

    /// Whether who says this means the session, or a later one of the same id.
    fn may_enter(&self, session: &Self) -> bool {
        self.since > session.since || (self.since == session.since && self.subject == session.subject)
    }
}

#[derive(Debug)]
struct Session {
    whose: Whose,
    used: Instant,
    /// Exchanges that have not ended.
    running: usize,
    _seat: Seat,
}

/// A session is in use until this is dropped.
#[derive(Debug)]
pub struct InUse {
    owned: Arc<Owned>,
    id: Bytes,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(session) = self.owned.lock().alive.get_mut(&self.id) {
            session.running = session.running.saturating_sub(1);
            session.used = clock::instant();
        }
    }
}

impl Owned {
    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a session that begins.
    pub fn begin(self: &Arc<Self>, id: Bytes, whose: Whose, seat: Seat) -> InUse {
        let mut sessions = self.lock();
        // A backend that counts its sessions begins anew when it is started anew.
        if sessions.ended.remove(&id) {
            sessions.order.retain(|ended| *ended != id);
        }
        sessions.alive.insert(id.clone(), Session { whose, used: clock::instant(), running: 1, _seat: seat });
        InUse { owned: Arc::clone(self), id }
    }

    /// Notes the use of a session, and takes it in where it is not here; `None` where it has ended, or the id is by now
    /// another's.
    pub fn enter(self: &Arc<Self>, id: Bytes, whose: Whose, seat: impl FnOnce() -> Seat) -> Option<InUse> {
        let mut sessions = self.lock();
        if sessions.ended.contains(&id) {
            return None;
        }
        match sessions.alive.get_mut(&id) {
            Some(session) if !whose.may_enter(&session.whose) => return None,
            Some(session) => {
                session.whose = whose;
                session.running += 1;
            }
            None => {
                let session = Session { whose, used: clock::instant(), running: 1, _seat: seat() };
                sessions.alive.insert(id.clone(), session);
            }
        }
        Some(InUse { owned: Arc::clone(self), id })
    }

    /// The session has ended, and whoever asks for it is told so.
    pub fn end(&self, id: &Bytes) {
        self.lock().end(id);
    }

    /// The backend does not know the session now, said one that uses it. While others do, it is not over.
    pub fn forget(&self, id: &Bytes) {
        let mut sessions = self.lock();
        if sessions.alive.get(id).is_some_and(|session| session.running <= 1) {
            sessions.alive.remove(id);
        }
    }

    /// Ends the sessions that nobody has used for `idle`.
    pub fn expire(&self, now: Instant, idle: Duration) -> Vec<Bytes> {
        let mut sessions = self.lock();
        let over = |session: &Session| session.running == 0 && session.used + idle <= now;
        let expired: Vec<_> =
            sessions.alive.iter().filter(|(_, session)| over(session)).map(|(id, _)| id.clone()).collect();
        for id in &expired {
            sessions.end(id);
        }
        expired
    }
}

impl Sessions {
    fn end(&mut self, id: &Bytes) {
        self.alive.remove(id);
        if self.ended.insert(id.clone()) {
            self.order.push_back(id.clone());
        }
        while self.order.len() > ENDED_MAXIMUM {
            if let Some(oldest) = self.order.pop_front() {
                self.ended.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::session::seats::Seats;

    const IDLE: Duration = Duration::from_secs(60);

    fn whose(subject: &str, since: i64) -> Whose {
        Whose::of(Subject::Key(subject.to_owned()), Timestamp::from_second(since).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_nobody_uses_it_and_never_in_the_middle_of_something() {
        let (owned, seats, metrics) = (Arc::<Owned>::default(), Seats::default(), Metrics::default());
        let expired = || owned.expire(clock::instant(), IDLE);
        let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
        let long = owned.begin(a.clone(), whose("s", 1), seats.add(&metrics));
        drop(owned.enter(b.clone(), whose("s", 1), || seats.add(&metrics)).unwrap());
        tokio::time::advance(IDLE / 2).await;
        drop(owned.enter(b.clone(), whose("s", 1), || unreachable!()).unwrap());
        tokio::time::advance(IDLE / 2).await;
        assert!(expired().is_empty());
        tokio::time::advance(IDLE / 2).await;
        assert_eq!(expired(), std::slice::from_ref(&b));
        assert!(owned.enter(b.clone(), whose("s", 1), || unreachable!()).is_none());
        assert_eq!(seats.taken(), 1);
        tokio::time::advance(IDLE * 9).await;
        assert!(expired().is_empty(), "its call runs");
        drop(long);
        tokio::time::advance(IDLE).await;
        assert_eq!(expired(), [a]);
        drop(owned.begin(b.clone(), whose("s", 1), seats.add(&metrics)));
        assert!(owned.enter(b.clone(), whose("s", 1), || unreachable!()).is_some(), "a new one of the same name");
        owned.forget(&b);
        assert!(owned.enter(b, whose("s", 1), || seats.add(&metrics)).is_some());
    }

    #[test]
    fn an_id_that_was_given_again_is_its_new_owners_alone() {
        let (owned, seats, metrics) = (Arc::<Owned>::default(), Seats::default(), Metrics::default());
        let id = Bytes::from_static(b"1");
        let enters = |subject, since| owned.enter(id.clone(), whose(subject, since), || seats.add(&metrics)).is_some();
        drop(owned.begin(id.clone(), whose("alice", 1), seats.add(&metrics)));
        drop(owned.begin(id.clone(), whose("bob", 2), seats.add(&metrics)));
        assert_eq!(
            [enters("bob", 2), enters("alice", 1), enters("alice", 2), enters("bob", 1)],
            [true, false, false, false]
        );
        // This process was started anew, and the session before came first: the later one has the id.
        owned.forget(&id);
        assert_eq!([enters("alice", 1), enters("bob", 2), enters("alice", 1)], [true, true, false]);
        assert_eq!(seats.taken(), 1);
    }

    #[test]
    fn a_session_that_others_use_is_not_forgotten() {
        let (owned, seats, metrics) = (Arc::<Owned>::default(), Seats::default(), Metrics::default());
        let id = Bytes::from_static(b"1");
        let stream = owned.begin(id.clone(), whose("s", 1), seats.add(&metrics));
        let call = owned.enter(id.clone(), whose("s", 1), || unreachable!());
        owned.forget(&id);
        assert_eq!(seats.taken(), 1);
        drop(stream);
        owned.forget(&id);
        assert_eq!(seats.taken(), 0);
        drop(call);
    }

    #[test]
    fn only_so_many_ended_sessions_are_remembered() {
        let owned = Arc::<Owned>::default();
        for number in 0..=ENDED_MAXIMUM {
            owned.end(&Bytes::from(number.to_string()));
        }
        let sessions = owned.lock();
        assert_eq!((sessions.ended.len(), sessions.order.len()), (ENDED_MAXIMUM, ENDED_MAXIMUM));
        assert!(!sessions.ended.contains(&b"0"[..]));
    }
}
