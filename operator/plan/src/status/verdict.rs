//! A verdict on one condition, and the condition that follows from it and from what stood there before.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mooring_api::{ConditionType, Reason};

use crate::outcome::Finding;
use crate::text::cut;

/// Longest message that is written.
const MESSAGE_BYTES: usize = 2048;

/// A condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    True,
    False,
    Unknown,
}

impl State {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What is to be said of one condition.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) state: State,
    reason: String,
    message: String,
    /// A message that begins so, with the same status and reason, stays as it is: what follows differs from one look to
    /// the next and tells the same.
    keep: Option<String>,
}

impl Verdict {
    pub(super) fn new(state: State, reason: Reason, message: impl Into<String>) -> Self {
        Self { state, reason: reason.as_str().to_owned(), message: message.into(), keep: None }
    }

    /// Keeps a message that begins with `stem`.
    pub(super) fn keeping(self, stem: Option<String>) -> Self {
        Self { keep: stem, ..self }
    }

    /// The first finding's reason, and the words of all.
    pub(super) fn of_findings(state: State, findings: &[&Finding]) -> Option<Self> {
        let reason = findings.first()?.reason;
        let words: Vec<_> = findings.iter().map(|finding| format!("{}: {}", finding.field, finding.message)).collect();
        Some(Self::new(state, reason, words.join("; ")))
    }

    /// What another condition says, as the summary.
    pub(super) fn summary(state: State, condition: &Condition) -> Self {
        Self { state, reason: condition.reason.clone(), message: condition.message.clone(), keep: None }
    }

    /// What stood there, once more.
    pub(super) fn again(condition: &Condition) -> Self {
        let state = match condition.status.as_str() {
            "True" => State::True,
            "False" => State::False,
            _ => State::Unknown,
        };
        Self::summary(state, condition)
    }

    /// The condition. Its transition time moves only when the status does.
    pub(super) fn condition(
        self,
        kind: ConditionType,
        old: Option<&Condition>,
        generation: Option<i64>,
        now: Timestamp,
    ) -> Condition {
        let old = old.filter(|old| old.status == self.state.as_str());
        let begins = |old: &&Condition| self.keep.as_ref().is_some_and(|stem| old.message.starts_with(stem));
        let kept = old.filter(|old| old.reason == self.reason).filter(begins).map(|old| old.message.clone());
        Condition {
            last_transition_time: old.map_or_else(|| Time(whole_second(now)), |old| old.last_transition_time.clone()),
            message: kept.unwrap_or_else(|| cut(&self.message, MESSAGE_BYTES).to_owned()),
            observed_generation: generation,
            reason: self.reason,
            status: self.state.as_str().to_owned(),
            type_: kind.as_str().to_owned(),
        }
    }
}

/// The API server keeps whole seconds; a status that is read back must be the one that was written.
fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}
