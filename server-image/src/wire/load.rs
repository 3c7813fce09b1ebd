//! What is in use now, against what may be: requests of all callers, the bytes of their bodies, and event streams of each.
//! Whoever comes last is turned away; what runs goes on.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::gauge::Gauge;

use crate::refusal::Refusal;
use crate::who::Subject;

/// What is in use.
#[derive(Clone, Debug, Default)]
pub struct Load(Arc<Used>);

#[derive(Debug, Default)]
struct Used {
    requests: AtomicUsize,
    streams: Mutex<HashMap<Subject, usize>>,
}

/// Room for one request or one stream, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    load: Load,
    /// Whose stream it is; none for a request.
    stream_of: Option<Subject>,
}

impl Load {
    /// Room for one request more, where fewer than `limit` are being answered.
    pub fn request(&self, limit: usize) -> Result<Permit, Refusal> {
        let before = self.0.requests.fetch_add(1, Ordering::Relaxed);
        let permit = Permit { load: self.clone(), stream_of: None };
        if before < limit { Ok(permit) } else { Err(Refusal::Busy) }
    }

    /// Room for one event stream more of that caller, who has fewer than `limit`.
    pub fn stream(&self, subject: Subject, limit: usize) -> Result<Permit, Refusal> {
        let mut streams = self.streams();
        let open = streams.get(&subject).copied().unwrap_or_default();
        if open >= limit {
            return Err(Refusal::TooManyStreams { limit });
        }
        streams.insert(subject.clone(), open + 1);
        Ok(Permit { load: self.clone(), stream_of: Some(subject) })
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<Subject, usize>> {
        self.0.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(subject) = &self.stream_of else {
            self.load.0.requests.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let mut streams = self.load.streams();
        match streams.get_mut(subject) {
            Some(open) if *open > 1 => *open -= 1,
            _ => drop(streams.remove(subject)),
        }
    }
}

/// Room for the bytes of one body, until it is dropped. It begins with none.
#[derive(Debug)]
pub struct Room {
    /// The bytes of all bodies.
    all: Gauge,
    limit: i64,
    bytes: i64,
}

impl Room {
    /// Room among those that `all` counts, which together have `limit` bytes.
    pub fn among(all: &Gauge, limit: u64) -> Self {
        Self { all: all.clone(), limit: i64::try_from(limit).unwrap_or(i64::MAX), bytes: 0 }
    }

    /// Takes what it has less than `bytes`, where that is left. Whoever is refused has no more use for what it had.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Refusal> {
        let more = i64::try_from(bytes).unwrap_or(i64::MAX).saturating_sub(self.bytes).max(0);
        let before = self.all.inc_by(more);
        self.bytes += more;
        if before.saturating_add(more) > self.limit { Err(Refusal::BodiesFull) } else { Ok(()) }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.dec_by(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let stream = load.stream(Subject::Anonymous, 1).unwrap();
        assert_eq!(load.stream(Subject::Anonymous, 1).unwrap_err(), Refusal::TooManyStreams { limit: 1 });
        assert!(load.stream(Subject::Key("anonymous".into()), 1).is_ok());
        drop(stream);
        assert!(load.streams().is_empty());
        assert!(load.stream(Subject::Anonymous, 1).is_ok());
        assert!(load.stream(Subject::Anonymous, 0).is_err());
        assert!(load.streams().is_empty());
    }

    proptest! {
        /// Whatever comes and goes: all bytes that are held are counted, no more than the limit, and none when all are gone.
        #[test]
        fn room_is_given_up_to_the_limit_and_given_back(
            steps in proptest::collection::vec((0_usize..4, 0_u8..100, any::<bool>()), 0..100),
        ) {
            let all = Gauge::default();
            let mut rooms: [Option<Room>; 4] = [const { None }; 4];
            for (which, bytes, leaves) in steps {
                let room = rooms[which].get_or_insert_with(|| Room::among(&all, 150));
                let others = all.get() - room.bytes;
                let fits = others + room.bytes.max(i64::from(bytes)) <= 150;
                prop_assert_eq!(room.grow_to(bytes.into()).is_ok(), fits);
                if leaves || !fits {
                    rooms[which] = None;
                }
                prop_assert_eq!(all.get(), rooms.iter().flatten().map(|room| room.bytes).sum::<i64>());
                prop_assert!(all.get() <= 150);
            }
            drop(rooms);
            prop_assert_eq!(all.get(), 0);
        }
    }
}
