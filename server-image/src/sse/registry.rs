//! The sessions that this process keeps, each found by its token and bound to the principal that opened it. A token is a
//! secret: it is compared, sent to its client, and shown nowhere.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;

use crate::refusal::Refusal;
use crate::session::seats::Seat;
use crate::session::uuid;
use crate::who::Subject;

/// Names a session: 128 random bits, in the spelling of a UUID, so that what seals it stays short.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    #[expect(clippy::disallowed_methods, reason = "the rim: randomness for session tokens")]
    fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(uuid::spell(bytes)))
    }

    /// The token itself, for its client.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The value of `Mcp-Session-Id`.
    pub fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(self.0.as_str()).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

struct Entry<S> {
    subject: Subject,
    session: Arc<S>,
}

/// Sessions of one kind.
pub struct Registry<S> {
    sessions: Mutex<HashMap<String, Entry<S>>>,
}

impl<S> Default for Registry<S> {
    fn default() -> Self {
        Self { sessions: Mutex::default() }
    }
}

impl<S> fmt::Debug for Registry<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Registry({})", self.lock().len())
    }
}

impl<S> Registry<S> {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry<S>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a session in, for as long as its membership lives.
    pub fn admit(self: &Arc<Self>, subject: Subject, session: Arc<S>, seat: Seat) -> Result<Membership<S>, Refusal> {
        let token = Token::random().map_err(|_| Refusal::SessionsFull)?;
        self.lock().insert(token.0.clone(), Entry { subject, session });
        Ok(Membership { registry: Arc::clone(self), token, _seat: seat })
    }

    /// The session with this token, for whom it belongs to. To all others it does not exist.
    pub fn find(&self, token: &str, subject: &Subject) -> Result<Arc<S>, Refusal> {
        let sessions = self.lock();
        let found = sessions.get(token).filter(|entry| entry.subject == *subject);
        found.map(|entry| Arc::clone(&entry.session)).ok_or(Refusal::SessionUnknown)
    }

    /// Ends a session for whoever looks.
    pub fn remove(&self, token: &str) {
        self.lock().remove(token);
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.lock().len()
    }
}

/// A session's place in its registry; dropping it ends the session for whoever looks.
pub struct Membership<S> {
    registry: Arc<Registry<S>>,
    token: Token,
    _seat: Seat,
}

impl<S> Membership<S> {
    /// The session's token.
    pub fn token(&self) -> &Token {
        &self.token
    }
}

impl<S> Drop for Membership<S> {
    fn drop(&mut self) {
        self.registry.remove(&self.token.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::session::seats::Seats;

    #[test]
    fn a_session_is_there_for_its_principal_alone_and_ends_with_its_membership() {
        let (registry, seats) = (Arc::new(Registry::default()), Seats::default());
        let seat = seats.take(1, &Metrics::default()).unwrap();
        let alice = Subject::Key("alice".into());
        let membership = registry.admit(alice.clone(), Arc::new(1), seat).unwrap();
        let token = membership.token().clone();
        assert_eq!(token.expose().len(), 36);
        assert_eq!(registry.find(token.expose(), &alice).as_deref(), Ok(&1));
        for (token, subject) in
            [(token.expose(), Subject::Anonymous), (token.expose(), Subject::Key("bob".into())), ("", alice.clone())]
        {
            assert_eq!(registry.find(token, &subject), Err(Refusal::SessionUnknown));
        }
        assert!(!format!("{registry:?} {token:?} {:?}", token.header()).contains(token.expose()));
        drop(membership);
        assert_eq!(seats.taken(), 0);
        assert_eq!(registry.find(token.expose(), &alice), Err(Refusal::SessionUnknown));
    }
}
