//! The side view of a JSON-RPC message: what policy reads, and nothing more, borrowed from the bytes. The message itself
//! is forwarded as it came.
//!
//! A backend has a parser of its own. So what two parsers could read in two ways is refused: a key twice, or in another
//! case, where policy reads it; NUL; text that is not UTF-8; several values after each other; nesting that exhausts
//! somebody's stack; a request that is an answer, too. What is left has one reading.

use std::borrow::Cow;

use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::refusal::{Refusal, Waiting};

mod view;

pub use view::{Params, Seen};

/// Most messages of a batch.
const BATCH_MAXIMUM: usize = 100;
/// Deepest nesting of arrays and objects.
const DEPTH_MAXIMUM: usize = 64;

/// A whole body.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one message is the rule and needs no allocation")]
pub enum Reading<'a> {
    /// One message.
    One(Message<'a>),
    /// An array of messages (2025-03-26), each by itself, because who waits for one is answered whatever the others are.
    Batch(Vec<Result<Message<'a>, Unread<'a>>>),
}

/// A message of a batch that has no one reading.
#[derive(Debug)]
pub struct Unread<'a> {
    /// The id to answer with, where it is there once and is one.
    pub id: Option<&'a RawValue>,
    /// Why it has none.
    pub refusal: Refusal,
}

/// What a message says.
#[derive(Debug)]
pub enum Message<'a> {
    /// A request; its id byte for byte as it came.
    Request(&'a RawValue, Call<'a>),
    /// A notification, or a request whose id is null: nobody waits for an answer.
    Notification(Call<'a>),
    /// An answer to a request of the server.
    Response,
}

/// What is called.
#[derive(Debug)]
pub struct Call<'a> {
    /// The method, decoded.
    pub method: Cow<'a, str>,
    /// The members of `params` that somebody here reads.
    pub params: Params<'a>,
}

impl<'a> Message<'a> {
    /// The id to answer with.
    pub fn id(&self) -> Option<&'a RawValue> {
        match self {
            Self::Request(id, _) => Some(id),
            _ => None,
        }
    }

    /// What is called, where something is.
    pub fn call(&self) -> Option<&Call<'a>> {
        match self {
            Self::Request(_, call) | Self::Notification(call) => Some(call),
            Self::Response => None,
        }
    }

    /// The method, where there is one.
    pub fn method(&self) -> Option<&str> {
        self.call().map(|call| call.method.as_ref())
    }
}

impl Reading<'_> {
    /// Whether it is the request that begins a session.
    pub fn initializes(&self) -> bool {
        matches!(self, Self::One(Message::Request(_, call)) if call.method == "initialize")
    }

    /// Who waits for the answer, also where it is a refusal.
    pub fn waiting(&self) -> Waiting {
        match self {
            Self::One(message) => message.id().map_or(Waiting::Nobody, |id| Waiting::One(id.to_owned())),
            Self::Batch(elements) => {
                let id = |element: &Result<Message<'_>, Unread<'_>>| match element {
                    Ok(message) => message.id().map(RawValue::to_owned),
                    Err(unread) => unread.id.map(RawValue::to_owned),
                };
                let ids: Vec<_> = elements.iter().filter_map(id).collect();
                if ids.is_empty() { Waiting::Nobody } else { Waiting::Batch(ids) }
            }
        }
    }
}

/// Reads the side view of a whole body.
pub fn peek(body: &[u8]) -> Result<Reading<'_>, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::NotJson)?;
    let reading = match text.trim_ascii_start().bytes().next() {
        Some(b'[') => Reading::Batch(batch(text)?),
        _ => Reading::One(message(text)?),
    };
    if is_deep(body) {
        return Err(Refusal::NotMessage(format!("arrays and objects are nested more than {DEPTH_MAXIMUM} deep")));
    }
    Ok(reading)
}

fn batch(text: &str) -> Result<Vec<Result<Message<'_>, Unread<'_>>>, Refusal> {
    let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| refusal(&error))?;
    match elements.len() {
        0 => Err(not_message("the batch is empty")),
        1..=BATCH_MAXIMUM => Ok(elements.into_iter().map(element).collect()),
        _ => Err(Refusal::NotMessage(format!("a batch may have {BATCH_MAXIMUM} messages"))),
    }
}

fn element(raw: &RawValue) -> Result<Message<'_>, Unread<'_>> {
    /// Everything else is passed over; a second `id` is an error.
    #[derive(serde::Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    message(raw.get()).map_err(|refusal| {
        let id = serde_json::from_str::<OnlyId<'_>>(raw.get()).ok().and_then(|only| only.id);
        Unread { id: id.filter(|id| is_id(id)), refusal }
    })
}

fn message(text: &str) -> Result<Message<'_>, Refusal> {
    let seen: view::TopLevel<'_> = serde_json::from_str(text).map_err(|error| refusal(&error))?;
    let answer = seen.result || seen.error;
    match (seen.method, seen.id.filter(|id| id.get() != "null")) {
        (Some(_), _) if answer => Err(not_message("it is a request and an answer, too")),
        (Some(Seen::Text(method)), None) => Ok(Message::Notification(Call { method, params: seen.params })),
        (Some(Seen::Text(method)), Some(id)) if is_id(id) => {
            Ok(Message::Request(id, Call { method, params: seen.params }))
        }
        (Some(Seen::Text(_)), Some(_)) => Err(not_message("id must be a string or a number")),
        (Some(_), _) => Err(not_message("method must be a string")),
        (None, _) if seen.result && seen.error => Err(not_message("it has a result and an error, too")),
        (None, _) if answer => Ok(Message::Response),
        (None, _) => Err(not_message("method is missing")),
    }
}

fn is_id(id: &RawValue) -> bool {
    id.get().starts_with(|first: char| matches!(first, '"' | '-' | '0'..='9'))
}

fn not_message(reason: &str) -> Refusal {
    Refusal::NotMessage(reason.to_owned())
}

fn refusal(error: &serde_json::Error) -> Refusal {
    match error.classify() {
        Category::Data => {
            let text = error.to_string();
            not_message(text.split(" at line ").next().unwrap_or_default())
        }
        _ => Refusal::NotJson,
    }
}

/// Whether well-formed JSON is nested too deep. Most bodies have so few brackets that counting them is enough.
fn is_deep(json: &[u8]) -> bool {
    // In pieces whose count fits a byte, because that is what a processor counts many of at once.
    let opens = |byte: &u8| u8::from(byte | 0x20 == b'{'); // [ and { differ by that bit
    let count = |piece: &[u8]| usize::from(piece.iter().map(opens).sum::<u8>());
    json.chunks(usize::from(u8::MAX)).map(count).sum::<usize>() > DEPTH_MAXIMUM && deepest(json) > DEPTH_MAXIMUM
}

fn deepest(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut rest = json.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => while rest.find(|byte| matches!(byte, b'"' | b'\\')) == Some(&b'\\') && rest.next().is_some() {},
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
