//! The sessions that this process keeps, each found by its token and bound to the principal that opened it. A token is a
//! secret: it is compared, sent to its client, and shown nowhere.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::HeaderValue;
use mooring_contract::key::base62;

use crate::metrics::{Kept, Metrics};
use crate::refusal::Refusal;
use crate::who::Subject;

/// Most sessions of one kind in one process.
const MAXIMUM: usize = 1000;

const ENTROPY: usize = 32;
const LENGTH: usize = 43; // 62^43 > 2^256

/// Names a session: 256 random bits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(String);

impl Token {
    #[expect(clippy::disallowed_methods, reason = "the rim: randomness for session tokens")]
    fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; ENTROPY];
        getrandom::fill(&mut bytes)?;
        Ok(Self(base62(&bytes, LENGTH)))
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

    /// Takes a session in, for as long as its membership lives; 503 where there are too many.
    pub fn admit(
        self: &Arc<Self>,
        subject: Subject,
        session: Arc<S>,
        metrics: &Metrics,
    ) -> Result<Membership<S>, Refusal> {
        let token = Token::random().map_err(|_| Refusal::SessionsFull)?;
        let mut sessions = self.lock();
        if sessions.len() >= MAXIMUM {
            return Err(Refusal::SessionsFull);
        }
        sessions.insert(token.0.clone(), Entry { subject, session });
        Ok(Membership { registry: Arc::clone(self), token, _counted: metrics.session() })
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
    _counted: Kept,
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

    #[test]
    fn a_session_is_there_for_its_principal_alone_and_ends_with_its_membership() {
        let (registry, metrics) = (Arc::new(Registry::default()), Metrics::default());
        let alice = Subject::Key("alice".into());
        let membership = registry.admit(alice.clone(), Arc::new(1), &metrics).unwrap();
        let token = membership.token().clone();
        assert_eq!(token.expose().len(), LENGTH);
        assert_eq!(registry.find(token.expose(), &alice).as_deref(), Ok(&1));
        for (token, subject) in
            [(token.expose(), Subject::Anonymous), (token.expose(), Subject::Key("bob".into())), ("", alice.clone())]
        {
            assert_eq!(registry.find(token, &subject), Err(Refusal::SessionUnknown));
        }
        assert!(!format!("{registry:?} {token:?} {:?}", token.header()).contains(token.expose()));
        drop(membership);
        assert_eq!(registry.find(token.expose(), &alice), Err(Refusal::SessionUnknown));
    }

    #[test]
    fn there_is_a_cap() {
        let (registry, metrics) = (Arc::new(Registry::default()), Metrics::default());
        let admit = || registry.admit(Subject::Anonymous, Arc::new(()), &metrics);
        let mut all: Vec<_> = (0..MAXIMUM).map(|_| admit().unwrap()).collect();
        assert!(matches!(admit(), Err(Refusal::SessionsFull)));
        all.pop();
        assert!(admit().is_ok());
    }
}
