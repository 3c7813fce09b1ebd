//! What is in use now, against what may be: requests of all callers, and event streams of each. Whoever comes last is
//! turned away; what runs goes on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::refusal::Refusal;
use crate::who::Principal;

/// What is in use.
#[derive(Clone, Debug, Default)]
pub struct Load(Arc<Used>);

#[derive(Debug, Default)]
struct Used {
    requests: AtomicUsize,
    streams: Mutex<HashMap<String, usize>>,
}

/// Room for one request or one stream, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    load: Load,
    /// Whose stream it is; none for a request.
    stream_of: Option<String>,
}

impl Load {
    /// Room for one request more, where fewer than `limit` are being answered.
    pub fn request(&self, limit: usize) -> Result<Permit, Refusal> {
        let before = self.0.requests.fetch_add(1, Ordering::Relaxed);
        let permit = Permit { load: self.clone(), stream_of: None };
        if before < limit { Ok(permit) } else { Err(Refusal::Busy) }
    }

    /// Room for one event stream more of that caller, who has fewer than `limit`.
    pub fn stream(&self, principal: &Principal, limit: usize) -> Result<Permit, Refusal> {
        let mut streams = self.streams();
        let open = streams.get(principal.name()).copied().unwrap_or_default();
        if open >= limit {
            return Err(Refusal::TooManyStreams { limit });
        }
        streams.insert(principal.name().to_owned(), open + 1);
        Ok(Permit { load: self.clone(), stream_of: Some(principal.name().to_owned()) })
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(name) = &self.stream_of else {
            self.load.0.requests.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let mut streams = self.load.streams();
        match streams.get_mut(name) {
            Some(open) if *open > 1 => *open -= 1,
            _ => drop(streams.remove(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_come_is_turned_away() {
        let load = Load::default();
        let (first, second) = (load.request(2).unwrap(), load.request(2).unwrap());
        assert_eq!(load.request(2).unwrap_err(), Refusal::Busy);
        drop(first);
        let third = load.request(2).unwrap();
        assert!(load.request(2).is_err());
        assert!(load.request(0).is_err());
        drop((second, third));
        assert!(load.request(1).is_ok());
    }

    #[test]
    fn streams_are_counted_for_each_caller() {
        let load = Load::default();
        let stream = load.stream(&Principal::Anonymous, 1).unwrap();
        assert_eq!(load.stream(&Principal::Anonymous, 1).unwrap_err(), Refusal::TooManyStreams { limit: 1 });
        drop(stream);
        assert!(load.streams().is_empty());
        assert!(load.stream(&Principal::Anonymous, 1).is_ok());
        assert!(load.stream(&Principal::Anonymous, 0).is_err());
        assert!(load.streams().is_empty());
    }
}
