//! Leader election by a Lease: of several operators one works. Who holds it knows by its own clock until when, and exits
//! the process before that passes, so that two never work at a time.
//!
//! Every request has a time limit, and the last moment at which a renewal may still be tried, plus that limit, lies
//! before the end of the Lease. Writes carry the resourceVersion that was read, so nobody overwrites another's claim.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::clock;
use crate::fence::Fence;

/// How long a Lease lasts without renewal.
const DURATION: Duration = Duration::from_secs(15);
/// How long renewals may fail before leadership is given up.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit of each request.
const REQUEST: Duration = Duration::from_secs(4);
/// Pause between renewals.
const PAUSE: Duration = Duration::from_secs(2);
/// Longest pause between looks at another's Lease. What is seen late is taken over late.
const LOOK: Duration = Duration::from_secs(1);
/// Shortest pause between looks.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);

const _: () = assert!(RENEW_DEADLINE.as_secs() + REQUEST.as_secs() < DURATION.as_secs());

/// The Lease of this process.
#[derive(Clone, Debug)]
pub struct Election {
    api: Api<Lease>,
    name: String,
    holder: String,
}

/// What can be done about a Lease as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// It is ours.
    Ours,
    /// Nobody holds it, or its holder let it expire.
    Free,
    /// Another holds it.
    Taken,
}

/// What was seen of another's Lease: it expires when it did not change for its duration on our own clock, so that
/// clocks that differ do no harm.
#[derive(Clone, Debug, Default)]
struct Sighting {
    seen: Option<(LeaseSpec, Instant)>,
}

impl Sighting {
    fn judge(&mut self, lease: Option<&LeaseSpec>, holder: &str, now: Instant) -> Claim {
        let Some(spec) = lease else { return Claim::Free };
        match spec.holder_identity.as_deref() {
            None | Some("") => return Claim::Free,
            Some(other) if other == holder => return Claim::Ours,
            Some(_) => {}
        }
        let duration = duration(spec);
        match &self.seen {
            Some((seen, since)) if seen == spec => {
                if now.duration_since(*since) > duration {
                    Claim::Free
                } else {
                    Claim::Taken
                }
            }
            _ => {
                self.seen = Some((spec.clone(), now));
                Claim::Taken
            }
        }
    }

    /// How long to wait before the next look: not beyond the moment at which the Lease may be found expired.
    fn pause(&self, now: Instant) -> Duration {
        let expires = self.seen.as_ref().map(|(spec, since)| *since + duration(spec) + Duration::from_millis(1));
        expires.map_or(LOOK, |expires| expires.saturating_duration_since(now)).clamp(SHORTEST_LOOK, LOOK)
    }
}

fn duration(spec: &LeaseSpec) -> Duration {
    Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0))
}

impl Election {
    /// The Lease `name` in `namespace`, to be held by `holder`, which no other process may be called.
    pub fn new(client: Client, namespace: &str, name: &str, holder: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), holder: holder.to_owned() }
    }

    /// Waits until the Lease is ours; returns the moment from which its duration counts.
    pub async fn acquire(&self) -> Instant {
        let mut sighting = Sighting::default();
        let mut told = false;
        loop {
            match self.attempt(&mut sighting).await {
                Ok(Some(since)) => return since,
                Ok(None) if !told => {
                    tracing::info!(lease = self.name, "another operator leads; this one waits");
                    told = true;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "the Lease could not be taken; it is tried again");
                }
            }
            tokio::time::sleep(sighting.pause(clock::instant())).await;
        }
    }

    /// Renews until renewals failed for too long or another took the Lease, and keeps `fence` open meanwhile. When it
    /// returns, this process leads no more.
    pub async fn keep(&self, mut since: Instant, fence: &Fence) -> &'static str {
        let is_late = |since: Instant| clock::instant().duration_since(since) > RENEW_DEADLINE;
        loop {
            fence.open_until(since + DURATION);
            tokio::time::sleep(PAUSE).await;
            if is_late(since) {
                return "the Lease could not be renewed in time";
            }
            match self.attempt(&mut Sighting::default()).await {
                Ok(Some(renewed)) => since = renewed,
                Ok(None) => return "another operator took the Lease",
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "the Lease could not be renewed; it is tried again");
                }
            }
            if is_late(since) {
                return "the Lease could not be renewed in time";
            }
        }
    }

    /// Gives the Lease back, so that another need not wait for its end.
    pub async fn release(&self) {
        let released = tokio::time::timeout(REQUEST, async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(self.holder.as_str()) {
                return Ok(());
            }
            *spec = LeaseSpec {
                lease_duration_seconds: Some(1),
                lease_transitions: spec.lease_transitions,
                ..LeaseSpec::default()
            };
            self.api.replace(&self.name, &PostParams::default(), &lease).await.map(|_| ())
        });
        match released.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(lease = self.name, %error, "the Lease could not be given back"),
            Err(_) => tracing::warn!(lease = self.name, "the Lease could not be given back in time"),
        }
    }

    /// Takes or renews the Lease if it is ours to take. The duration counts from before the request.
    async fn attempt(&self, sighting: &mut Sighting) -> Result<Option<Instant>, AttemptError> {
        let since = clock::instant();
        let attempt = async {
            let lease = self.api.get_opt(&self.name).await?;
            let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
            let claim = sighting.judge(spec, &self.holder, since);
            if claim == Claim::Taken {
                return Ok(false);
            }
            let spec = claimed(spec, claim, &self.holder, clock::now());
            let params = PostParams::default();
            let written = if let Some(lease) = lease {
                self.api.replace(&self.name, &params, &Lease { spec: Some(spec), ..lease }).await
            } else {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                self.api.create(&params, &Lease { metadata, spec: Some(spec) }).await
            };
            match written {
                Ok(_) => Ok(true),
                // Somebody else wrote it at the same time. The next look tells who.
                Err(kube::Error::Api(status)) if status.code == 409 && claim == Claim::Free => Ok(false),
                Err(error) => Err(AttemptError::Kube(error)),
            }
        };
        match tokio::time::timeout(REQUEST, attempt).await {
            Ok(result) => Ok(result?.then_some(since)),
            Err(_) => Err(AttemptError::Timeout),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error("no answer within {} s", REQUEST.as_secs())]
    Timeout,
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

/// The Lease with our claim on it.
fn claimed(before: Option<&LeaseSpec>, claim: Claim, holder: &str, now: Timestamp) -> LeaseSpec {
    let before = before.cloned().unwrap_or_default();
    let transitions = before.lease_transitions.unwrap_or(0);
    let is_renewal = claim == Claim::Ours;
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: before.acquire_time.filter(|_| is_renewal).or(Some(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if is_renewal { transitions } else { transitions.saturating_add(1) }),
        ..LeaseSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str, renewed: i64) -> LeaseSpec {
        let renew_time = Some(MicroTime(Timestamp::from_second(renewed).unwrap()));
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            renew_time,
            ..LeaseSpec::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_free_once_it_did_not_change_for_its_duration() {
        let (mut sighting, now) = (Sighting::default(), clock::instant());
        let other = held_by("b", 0);
        assert_eq!(sighting.judge(Some(&other), "a", now), Claim::Taken, "however old it says it is");
        assert_eq!(sighting.judge(Some(&other), "a", now + DURATION), Claim::Taken);
        let renewed = held_by("b", 14);
        assert_eq!(sighting.judge(Some(&renewed), "a", now + DURATION), Claim::Taken);
        assert_eq!(sighting.judge(Some(&renewed), "a", now + DURATION * 2), Claim::Taken);
        assert_eq!(sighting.judge(Some(&renewed), "a", now + DURATION * 2 + Duration::from_millis(1)), Claim::Free);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_not_later_than_the_end_of_the_lease() {
        let (mut sighting, now) = (Sighting::default(), clock::instant());
        assert_eq!(sighting.pause(now), LOOK);
        let _ = sighting.judge(Some(&held_by("b", 0)), "a", now);
        assert_eq!(sighting.pause(now), LOOK);
        assert_eq!(sighting.pause(now + DURATION - Duration::from_millis(400)), Duration::from_millis(401));
        assert_eq!(sighting.pause(now + DURATION * 2), SHORTEST_LOOK);
    }

    #[tokio::test(start_paused = true)]
    async fn absent_and_released_leases_are_free_and_ones_own_is_known() {
        let (mut sighting, now) = (Sighting::default(), clock::instant());
        assert_eq!(sighting.judge(None, "a", now), Claim::Free);
        assert_eq!(sighting.judge(Some(&LeaseSpec::default()), "a", now), Claim::Free);
        assert_eq!(sighting.judge(Some(&held_by("", 0)), "a", now), Claim::Free);
        assert_eq!(sighting.judge(Some(&held_by("a", 0)), "a", now), Claim::Ours);
    }

    #[test]
    fn a_takeover_counts_as_a_transition_and_a_renewal_does_not() {
        let now = Timestamp::from_second(100).unwrap();
        let renewed = claimed(Some(&held_by("a", 1)), Claim::Ours, "a", now);
        assert_eq!(renewed.lease_transitions, Some(0));
        let taken = claimed(Some(&held_by("b", 1)), Claim::Free, "a", now);
        assert_eq!((taken.lease_transitions, taken.holder_identity.as_deref()), (Some(1), Some("a")));
        assert_eq!(taken.acquire_time, Some(MicroTime(now)));
    }
}
