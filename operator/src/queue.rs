//! Which server is reconciled next: a data structure without a clock or a task. A server is in it once, however often it
//! is asked for, and is never worked on twice at a time.
//!
//! Three lanes: changed keys go first, then servers that were begun, then new ones. So a server is finished before many
//! others are begun, and a start with thousands of servers does not delay a change that somebody just made. Every fourth
//! turn goes to the slowest lane, so that a busy one cannot starve it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::key::ServerKey;

/// How soon a server's turn comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Keys or config changed: a revoked key must stop working.
    Urgent,
    /// The server was begun, and something about it changed.
    Begun,
    /// The server is new to this process.
    Fresh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    due: Instant,
    lane: Lane,
    number: u64,
    /// Set while a failure is waited out: only a change of the spec or of keys cuts that short.
    held: bool,
}

/// What happened to a server while it was being worked on.
#[derive(Clone, Copy, Debug, Default)]
struct Meanwhile {
    asked: Option<(Instant, Lane)>,
    changed: bool,
    gone: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    tickets: HashMap<ServerKey, Ticket>,
    order: [BTreeSet<(Instant, u64, ServerKey)>; 3],
    running: HashMap<ServerKey, Meanwhile>,
    failures: HashMap<ServerKey, u32>,
    numbers: u64,
    turns: u64,
}

impl Queue {
    /// Asks for a server at `due`. What is already asked for is kept where it is sooner; a failure is waited out, except
    /// by what is urgent: a key is revoked although something else about the server cannot be done.
    pub fn add(&mut self, key: &ServerKey, lane: Lane, due: Instant) {
        if let Some(meanwhile) = self.running.get_mut(key) {
            let sooner = |(sooner, higher): (Instant, Lane)| (sooner.min(due), higher.min(lane));
            meanwhile.asked = Some(meanwhile.asked.map_or((due, lane), sooner));
            meanwhile.gone = false;
            return;
        }
        match self.tickets.get(key).copied() {
            Some(ticket) if ticket.held && lane != Lane::Urgent => {}
            Some(ticket) => self.insert(key, ticket.lane.min(lane), ticket.due.min(due), false),
            None => self.insert(key, lane, due, false),
        }
    }

    /// Asks for a server whose spec changed: at once, and earlier failures are forgotten.
    pub fn add_changed(&mut self, key: &ServerKey, lane: Lane, now: Instant) {
        self.failures.remove(key);
        if let Some(ticket) = self.tickets.get_mut(key) {
            ticket.held = false;
        }
        self.add(key, lane, now);
        if let Some(meanwhile) = self.running.get_mut(key) {
            meanwhile.changed = true;
        }
    }

    /// The next server whose turn has come, of the lanes up to `slowest`.
    pub fn pop(&mut self, now: Instant, slowest: Lane) -> Option<ServerKey> {
        self.turns = self.turns.wrapping_add(1);
        let mut lanes = [Lane::Urgent, Lane::Begun, Lane::Fresh];
        if self.turns.is_multiple_of(4) {
            lanes.swap(1, 2);
        }
        let due = |lane: &Lane| self.lane(*lane).first().filter(|(due, ..)| *due <= now).map(|(.., key)| key.clone());
        let key = lanes.iter().filter(|lane| **lane <= slowest).find_map(due)?;
        self.remove(&key);
        self.running.insert(key.clone(), Meanwhile::default());
        Some(key)
    }

    /// When the next turn comes, of the lanes up to `slowest`.
    pub fn next_due(&self, slowest: Lane) -> Option<Instant> {
        let lanes = [Lane::Urgent, Lane::Begun, Lane::Fresh].into_iter().filter(|lane| *lane <= slowest);
        lanes.filter_map(|lane| self.lane(lane).first().map(|(due, ..)| *due)).min()
    }

    /// A server was done. `again` is when it wants to be looked at without a cause.
    pub fn succeeded(&mut self, key: &ServerKey, again: Option<Instant>) {
        self.failures.remove(key);
        let meanwhile = self.running.remove(key).unwrap_or_default();
        if let Some((due, lane)) = meanwhile.asked {
            self.add(key, lane, due);
        }
        if let Some(due) = again.filter(|_| !meanwhile.gone) {
            self.add(key, Lane::Begun, due);
        }
    }

    /// A server could not be done; `wait` makes the delay of the number of failures in a row. Returns that delay.
    /// Where the spec changed meanwhile, the failure counts for nothing.
    pub fn failed(&mut self, key: &ServerKey, now: Instant, wait: impl FnOnce(u32) -> Duration) -> Duration {
        let meanwhile = self.running.remove(key).unwrap_or_default();
        if meanwhile.gone {
            return Duration::ZERO;
        }
        if let Some((due, lane)) = meanwhile.asked.filter(|_| meanwhile.changed) {
            self.add(key, lane, due);
            return Duration::ZERO;
        }
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        let delay = wait(*failures);
        self.insert(key, Lane::Begun, now + delay, true);
        delay
    }

    /// Whether the server is being worked on.
    pub fn is_running(&self, key: &ServerKey) -> bool {
        self.running.contains_key(key)
    }

    /// The server is gone.
    pub fn forget(&mut self, key: &ServerKey) {
        self.failures.remove(key);
        self.remove(key);
        if let Some(meanwhile) = self.running.get_mut(key) {
            *meanwhile = Meanwhile { gone: true, ..Meanwhile::default() };
        }
    }

    /// How many servers wait, those that wait out a failure or for a time included.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// How many servers are being worked on.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    fn lane(&self, lane: Lane) -> &BTreeSet<(Instant, u64, ServerKey)> {
        let [urgent, begun, fresh] = &self.order;
        match lane {
            Lane::Urgent => urgent,
            Lane::Begun => begun,
            Lane::Fresh => fresh,
        }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut BTreeSet<(Instant, u64, ServerKey)> {
        let [urgent, begun, fresh] = &mut self.order;
        match lane {
            Lane::Urgent => urgent,
            Lane::Begun => begun,
            Lane::Fresh => fresh,
        }
    }

    fn insert(&mut self, key: &ServerKey, lane: Lane, due: Instant, held: bool) {
        let number = self.tickets.get(key).map_or(self.numbers, |ticket| ticket.number);
        self.remove(key);
        self.numbers += 1;
        self.tickets.insert(key.clone(), Ticket { due, lane, number, held });
        self.lane_mut(lane).insert((due, number, key.clone()));
    }

    fn remove(&mut self, key: &ServerKey) {
        if let Some(ticket) = self.tickets.remove(key) {
            self.lane_mut(ticket.lane).remove(&(ticket.due, ticket.number, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ServerKey {
        ServerKey::new("demo", name)
    }

    fn drain(queue: &mut Queue, now: Instant) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(key) = queue.pop(now, Lane::Fresh) {
            queue.succeeded(&key, None);
            names.push(key.name);
        }
        names
    }

    const MOMENT: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn lanes_go_before_age_and_age_within_a_lane() {
        let (mut queue, now) = (Queue::default(), crate::clock::instant());
        queue.add(&key("new"), Lane::Fresh, now);
        queue.add(&key("newer"), Lane::Fresh, now);
        queue.add(&key("begun"), Lane::Begun, now);
        queue.add(&key("revoked"), Lane::Urgent, now);
        assert_eq!(drain(&mut queue, now), ["revoked", "begun", "new", "newer"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_lane_does_not_starve_new_servers() {
        let (mut queue, now) = (Queue::default(), crate::clock::instant());
        queue.add(&key("new"), Lane::Fresh, now);
        let mut turns = 0;
        loop {
            queue.add(&key("busy"), Lane::Begun, now);
            let next = queue.pop(now, Lane::Fresh).unwrap();
            queue.succeeded(&next, None);
            turns += 1;
            if next.name == "new" {
                break;
            }
        }
        assert!(turns <= 4, "{turns}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_worked_on_once_at_a_time_and_again_when_asked_meanwhile() {
        let (mut queue, now) = (Queue::default(), crate::clock::instant());
        queue.add(&key("a"), Lane::Fresh, now);
        let a = queue.pop(now, Lane::Fresh).unwrap();
        queue.add(&a, Lane::Begun, now);
        queue.add(&a, Lane::Urgent, now + MOMENT);
        assert_eq!(queue.pop(now, Lane::Fresh), None);
        queue.succeeded(&a, None);
        assert_eq!(queue.pop(now, Lane::Urgent), Some(a.clone()));
        queue.succeeded(&a, None);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn bursts_are_one_pass_at_the_first_due_time() {
        let (mut queue, now) = (Queue::default(), crate::clock::instant());
        queue.add(&key("a"), Lane::Begun, now + MOMENT);
        queue.add(&key("a"), Lane::Begun, now + MOMENT * 2);
        assert_eq!(queue.pop(now, Lane::Fresh), None);
        assert_eq!(queue.next_due(Lane::Fresh), Some(now + MOMENT));
        assert_eq!(drain(&mut queue, now + MOMENT), ["a"]);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_waited_out_unless_the_spec_changes() {
        let (mut queue, now) = (Queue::default(), crate::clock::instant());
        let wait = |failures: u32| MOMENT * failures;
        for failures in 1..=3 {
            queue.add_or_pop(&key("a"), now);
            assert_eq!(queue.failed(&key("a"), now, wait), MOMENT * failures);
            queue.add(&key("a"), Lane::Begun, now);
            assert_eq!(queue.pop(now, Lane::Fresh), None, "an event does not cut the wait short");
        }
        queue.add_changed(&key("a"), Lane::Begun, now);
        assert_eq!(queue.pop(now, Lane::Fresh), Some(key("a")));
        assert_eq!(queue.failed(&key("a"), now, wait), MOMENT, "and the count begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_key_does_not_wait_for_a_failure_of_something_else() {
        let (mut queue, now) = (Queue::default(), crate::clock::instant());
        queue.add_or_pop(&key("a"), now);
        queue.failed(&key("a"), now, |_| MOMENT);
        queue.add(&key("a"), Lane::Urgent, now);
        assert_eq!(queue.pop(now, Lane::Urgent), Some(key("a")));
        assert_eq!(queue.failed(&key("a"), now, |failures| MOMENT * failures), MOMENT * 2, "the count goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_gone_is_not_tried_again() {
        let (mut queue, now) = (Queue::default(), crate::clock::instant());
        queue.add(&key("a"), Lane::Fresh, now);
        let a = queue.pop(now, Lane::Fresh).unwrap();
        queue.add(&a, Lane::Begun, now);
        queue.forget(&a);
        queue.failed(&a, now, |_| MOMENT);
        assert!(queue.is_empty());
        assert_eq!(queue.running(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_spec_that_changes_during_a_failing_pass_is_tried_at_once() {
        let (mut queue, now) = (Queue::default(), crate::clock::instant());
        queue.add(&key("a"), Lane::Fresh, now);
        let a = queue.pop(now, Lane::Fresh).unwrap();
        queue.add_changed(&a, Lane::Begun, now);
        queue.failed(&a, now, |_| MOMENT);
        assert_eq!(queue.pop(now, Lane::Fresh), Some(a));
    }

    impl Queue {
        /// Puts `key` into work, waiting or not.
        fn add_or_pop(&mut self, key: &ServerKey, now: Instant) {
            self.add(key, Lane::Begun, now);
            let due = self.next_due(Lane::Fresh).unwrap().max(now);
            assert_eq!(self.pop(due, Lane::Fresh).as_ref(), Some(key));
        }
    }
}
