//! How many sessions there are in this process, of whatever kind, against how many there may be.

use std::sync::Arc;

use tokio::sync::watch;

use crate::metrics::{Kept, Metrics};
use crate::refusal::Refusal;

/// All seats.
#[derive(Debug, Default)]
pub struct Seats(Arc<watch::Sender<usize>>);

/// One session's, until it is dropped.
#[derive(Debug)]
pub struct Seat {
    taken: Arc<watch::Sender<usize>>,
    _counted: Kept,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.taken.send_modify(|taken| *taken = taken.saturating_sub(1));
    }
}

impl Seats {
    /// A seat for a new session; 503 where `limit` are taken.
    pub fn take(&self, limit: usize, metrics: &Metrics) -> Result<Seat, Refusal> {
        let free = self.0.send_if_modified(|taken| {
            let free = *taken < limit;
            *taken += usize::from(free);
            free
        });
        if free { Ok(self.seat(metrics)) } else { Err(Refusal::SessionsFull) }
    }

    /// A seat for a session that is there already.
    pub fn add(&self, metrics: &Metrics) -> Seat {
        self.0.send_modify(|taken| *taken += 1);
        self.seat(metrics)
    }

    fn seat(&self, metrics: &Metrics) -> Seat {
        Seat { taken: Arc::clone(&self.0), _counted: metrics.session() }
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        *self.0.borrow()
    }

    /// Resolves when none is taken.
    pub async fn empty(&self) {
        // It cannot fail: the sender is here.
        let _ = self.0.subscribe().wait_for(|taken| *taken == 0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_to_come_is_turned_away_and_who_is_there_already_is_not() {
        let (seats, metrics) = (Seats::default(), Metrics::default());
        let first = seats.take(1, &metrics).unwrap();
        assert_eq!(seats.take(1, &metrics).unwrap_err(), Refusal::SessionsFull);
        let adopted = seats.add(&metrics);
        assert_eq!(seats.taken(), 2);
        drop((first, adopted));
        seats.empty().await;
        assert!(seats.take(1, &metrics).is_ok());
    }
}
