//! Which era of the protocol one message speaks, and whether its headers say what its body says. Told per message, from
//! headers and `params._meta`; nothing is remembered.
//!
//! Modern (2026-07-28) is what carries its revision in `_meta`, or names it in the version header. What it demands of
//! headers is in "Server Validation" of its Streamable HTTP page, for tasks in SEP-2663: everybody who reads the body
//! refuses a request whose headers say something else, because others on the way may have gone by the headers.
//! `Mcp-Param-*` is left to whoever knows the tool's schema. A legacy request may carry any of these headers.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue};

use crate::headers::{METHOD, NAME, VERSION};
use crate::peek::{Call, Message, Seen};
use crate::refusal::Refusal;

/// The modern revision: no session, no handshake, every request complete in itself.
pub const MODERN: &str = "2026-07-28";
/// The revisions with a handshake, newest first.
pub const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The one revision with batches; a request that names none may speak it.
pub const BATCHES: &str = "2025-03-26";
/// The key in `params._meta` that makes a request modern.
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// How a message is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28, and what comes after it.
    Modern,
}

impl Era {
    /// The era of a revision. Revisions are dates; what is none is told apart by nobody, and legacy.
    pub fn of_revision(revision: &str) -> Self {
        if is_date(revision) && revision >= MODERN { Self::Modern } else { Self::Legacy }
    }
}

fn is_date(text: &str) -> bool {
    let digit_or_dash = |(place, byte): (usize, u8)| match place {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == MODERN.len() && text.bytes().enumerate().all(digit_or_dash)
}

/// What the body of a message says of its era. It is all that there is where messages have no headers.
pub fn in_body(message: &Message<'_>) -> Option<Era> {
    let seen = message.call()?.params.meta.version.as_ref()?;
    Some(match seen {
        Seen::Text(revision) if is_date(revision) => Era::of_revision(revision),
        // Whatever it says, it claims to be complete in itself.
        _ => Era::Modern,
    })
}

/// Tells the era of a message, and refuses a modern one whose headers are not what its body says.
pub fn tell(headers: &HeaderMap, message: &Message<'_>) -> Result<Era, Refusal> {
    let in_header = version(headers);
    let header_era = in_header.map_or(Era::Legacy, Era::of_revision);
    let Some(call) = message.call() else { return Ok(header_era) };
    let is_request = matches!(message, Message::Request(..));
    // A handshake may name any revision in its header.
    let header_counts = call.method != "initialize";
    if in_body(message) != Some(Era::Modern) && !(header_counts && header_era == Era::Modern) {
        return Ok(Era::Legacy);
    }
    match call.params.meta.version.as_ref().map(Seen::text) {
        Some(Some(revision)) => agree("MCP-Protocol-Version", in_header, Some(revision), is_request)?,
        None if !is_request => {}
        None | Some(None) => return Err(Refusal::MetaMissing(META_VERSION)),
    }
    let method = headers.get(METHOD).map(|value| text(value).ok_or_else(|| mismatch("Mcp-Method"))).transpose()?;
    agree("Mcp-Method", method, Some(&call.method), is_request)?;
    name_agrees(headers, call, is_request)?;
    Ok(Era::Modern)
}

/// `Mcp-Name` says which of its kind a call is about.
fn name_agrees(headers: &HeaderMap, call: &Call<'_>, required: bool) -> Result<(), Refusal> {
    let name = match call.method.as_ref() {
        "tools/call" | "prompts/get" => &call.params.name,
        "resources/read" => &call.params.uri,
        "tasks/get" | "tasks/update" | "tasks/cancel" => &call.params.task_id,
        _ => return Ok(()),
    };
    let name = name.as_ref().and_then(Seen::text).map(AsRef::as_ref);
    let header = headers.get(NAME).map(|value| decoded(value).ok_or_else(|| mismatch("Mcp-Name"))).transpose()?;
    agree("Mcp-Name", header.as_deref(), name, required)
}

/// Header and body must say the same. A notification may leave headers out (the revision says nothing of them), but not
/// contradict itself.
fn agree(name: &'static str, header: Option<&str>, body: Option<&str>, required: bool) -> Result<(), Refusal> {
    match (header, body) {
        (None, Some(_)) if !required => Ok(()),
        (header, body) if header == body => Ok(()),
        _ => Err(mismatch(name)),
    }
}

fn mismatch(header: &'static str) -> Refusal {
    Refusal::HeaderMismatch(header.into())
}

/// The revision that the version header names.
pub fn version(headers: &HeaderMap) -> Option<&str> {
    headers.get(VERSION).and_then(text)
}

/// A header's text, without the white space around it.
fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().map(|text| text.trim_matches([' ', '\t']))
}

/// The value of `Mcp-Name` or `Mcp-Param-*`: plain, or written `=?base64?…?=` where it has characters that a header cannot
/// carry. `None` where it is neither.
pub fn decoded(value: &HeaderValue) -> Option<Cow<'_, str>> {
    let text = text(value)?;
    match text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => Some(String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?.into()),
        None => Some(text.into()),
    }
}

#[cfg(test)]
mod tests;
