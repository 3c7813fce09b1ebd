//! What is asked, judged as a whole before the backend is: the era of each message, the rules of batches, and whether
//! the backend speaks that era at all. Knows nothing of what the methods do.

use http::HeaderMap;

use crate::era::{self, Era};
use crate::headers::{self, VERSION};
use crate::peek::{Message, Reading, Seen, Unread};
use crate::pipeline::Refused;
use crate::refusal::{INVALID_PARAMS, INVALID_REQUEST, Refusal, Waiting};

/// The request whose answer may take long.
const CALL: &str = "tools/call";
/// A modern request whose answer is a stream without end, so that no call timeout holds.
const LISTEN: &str = "subscriptions/listen";

/// What the exchange needs to know of a request.
#[derive(Debug)]
pub struct Admitted {
    /// Its era.
    pub era: Era,
    /// Who waits for the answer.
    pub waiting: Waiting,
    /// How many messages it has.
    pub messages: usize,
    /// Whether its answer may take long.
    pub slow: bool,
    /// Whether its answer may never end.
    pub endless: bool,
}

impl Admitted {
    /// The request was admitted, and is refused all the same.
    pub fn refused(&self, refusal: Refusal) -> Refused {
        Refused { refusal, waiting: self.waiting.clone(), cors: None }
    }
}

/// The one era that a backend speaks, with the revisions that it named; `None` where it speaks both, or nobody knows yet.
pub type OnlyEra<'a> = Option<(Era, &'a [String])>;

/// Judges a whole request. One message that is refused refuses all of a batch.
pub fn admit(headers: &HeaderMap, reading: &Reading<'_>, backend: OnlyEra<'_>) -> Result<Admitted, Refused> {
    judged(headers, reading, |message| one(headers, message, backend))
}

/// Judges what comes by the older transport. No header there says anything of a message.
pub fn admit_older(headers: &HeaderMap, reading: &Reading<'_>) -> Result<Admitted, Refused> {
    judged(headers, reading, |message| Ok(era::in_body(message).unwrap_or(Era::Legacy)))
}

fn judged(
    headers: &HeaderMap,
    reading: &Reading<'_>,
    one: impl Fn(&Message<'_>) -> Result<Era, Refusal>,
) -> Result<Admitted, Refused> {
    let (messages, era) = match reading {
        Reading::One(message) => (1, headers::single(headers).and_then(|()| one(message))),
        Reading::Batch(elements) => {
            (elements.len(), headers::single(headers).and_then(|()| batch(headers, elements, one)))
        }
    };
    let has = |wanted: &str| match reading {
        Reading::One(message) => message.method() == Some(wanted),
        Reading::Batch(elements) => elements.iter().flatten().any(|message| message.method() == Some(wanted)),
    };
    let waiting = reading.waiting();
    match era {
        Ok(era) => Ok(Admitted { era, waiting, messages, slow: has(CALL), endless: has(LISTEN) }),
        Err(refusal) => Err(Refused { refusal, waiting, cors: None }),
    }
}

fn one(headers: &HeaderMap, message: &Message<'_>, backend: OnlyEra<'_>) -> Result<Era, Refusal> {
    let era = era::tell(headers, message)?;
    if era == Era::Legacy {
        headers::legal_session(headers)?;
    }
    match backend {
        Some((only, supported)) if only != era => Err(Refusal::VersionUnsupported {
            requested: requested(headers, message),
            supported: supported.to_vec(),
            // The modern code for it would name this server a modern one, and a client that speaks both eras (rmcp) would
            // not begin anew with `initialize`; see 2026-07-28, "Backward Compatibility" of Streamable HTTP. The legacy
            // code is the one of 2025-11-25, "Lifecycle".
            code: if era == Era::Modern { INVALID_REQUEST } else { INVALID_PARAMS },
        }),
        _ => Ok(era),
    }
}

fn batch(
    headers: &HeaderMap,
    elements: &[Result<Message<'_>, Unread<'_>>],
    one: impl Fn(&Message<'_>) -> Result<Era, Refusal>,
) -> Result<Era, Refusal> {
    if headers.contains_key(VERSION) && era::version(headers) != Some(era::BATCHES) {
        return Err(Refusal::BatchUnknown);
    }
    for (position, element) in (1..).zip(elements) {
        let judge = |message: &Message<'_>| match one(message)? {
            _ if message.method() == Some("initialize") => Err(Refusal::BatchedInitialize),
            Era::Modern => Err(Refusal::BatchUnknown),
            Era::Legacy => Ok(()),
        };
        let judged = element.as_ref().map_err(|unread| unread.refusal.clone()).and_then(judge);
        judged.map_err(|refusal| Refusal::InBatch { position, refusal: Box::new(refusal) })?;
    }
    Ok(Era::Legacy)
}

/// The revision that a message speaks, as far as it says so.
fn requested(headers: &HeaderMap, message: &Message<'_>) -> String {
    let text = |seen: &Option<Seen<'_>>| Some(seen.as_ref()?.text()?.to_string());
    let params = message.call().map(|call| &call.params);
    params
        .and_then(|params| text(&params.meta.version).or_else(|| text(&params.protocol_version)))
        .or_else(|| era::version(headers).map(str::to_owned))
        .unwrap_or_else(|| era::BATCHES.to_owned()) // what is assumed of a request that says nothing
}
