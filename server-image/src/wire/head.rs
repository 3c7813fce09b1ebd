//! The head of one request as RFC 9112 has it: finds where it ends and which body follows, and refuses what two parsers
//! could read in two ways. What the headers mean otherwise is not known here.
//!
//! Each line is looked at once, when it is whole, so the verdict does not depend on how the bytes arrive.

use http::Uri;
use memchr::memchr;

use super::fault::Fault;
use super::limits::WireLimits;

/// What follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    /// Nothing.
    Nothing,
    /// So many bytes.
    Sized(u64),
    /// Chunks.
    Chunked,
}

/// A head that is being read.
#[derive(Debug, Default)]
pub struct Head {
    /// Where the line begins that is not whole.
    line: usize,
    /// How far its end was looked for.
    seen: usize,
    /// The one empty line that may stand before a request (RFC 9112 section 2.2).
    blank: bool,
    /// Whether the request line is there.
    requested: bool,
    /// Number of headers.
    count: usize,
    /// HTTP/1.0.
    old: bool,
    length: Option<u64>,
    chunked: bool,
}

/// Longest method that is not counted against the target.
const METHOD_AND_VERSION: usize = 64;

impl Head {
    /// Reads on in `bytes`, which begin where the head begins, and hold at least what they held before. Returns the head's
    /// length and what follows, once it is whole.
    pub fn read(&mut self, bytes: &[u8], limits: &WireLimits) -> Result<Option<(usize, Coming)>, Fault> {
        loop {
            self.check_begin(bytes)?;
            let found = memchr(b'\n', bytes.get(self.seen..).unwrap_or_default());
            let end = found.map_or(bytes.len(), |at| self.seen + at + 1);
            if end > limits.header_bytes {
                return Err(self.too_large(limits));
            }
            self.seen = end;
            if found.is_none() {
                return Ok(None);
            }
            let line = bytes.get(self.line..end).unwrap_or_default();
            self.line = end;
            let line = line.strip_suffix(b"\r\n").ok_or(Fault::BareLineFeed)?;
            if line.iter().fold(false, |bad, byte| bad | is_control(*byte)) {
                return Err(Fault::Control);
            }
            match (self.requested, line.is_empty()) {
                (false, true) if self.blank => return Err(Fault::RequestLine),
                (false, true) => self.blank = true,
                (false, false) => self.request_line(line, limits)?,
                (true, true) => return Ok(Some((end, self.coming()?))),
                (true, false) => self.field(line, limits)?,
            }
        }
    }

    /// Whether anything of a request was there, besides an empty line.
    pub fn has_begun(&self) -> bool {
        self.requested || self.seen > self.line || self.count > 0
    }

    /// What is no HTTP at all is told from its first byte: nobody waits for the end of its first line.
    fn check_begin(&self, bytes: &[u8]) -> Result<(), Fault> {
        match bytes.get(self.line) {
            Some(first) if !self.requested && *first != b'\r' && !is_token(*first) => Err(Fault::RequestLine),
            _ => Ok(()),
        }
    }

    fn too_large(&self, limits: &WireLimits) -> Fault {
        if self.requested || limits.header_bytes < limits.uri_bytes + METHOD_AND_VERSION {
            Fault::HeadTooLarge { limit: limits.header_bytes }
        } else {
            Fault::UriTooLong { limit: limits.uri_bytes }
        }
    }

    fn request_line(&mut self, line: &[u8], limits: &WireLimits) -> Result<(), Fault> {
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Fault::RequestLine);
        };
        let legal = !method.is_empty()
            && method.iter().all(|byte| is_token(*byte))
            && !target.is_empty()
            && target.iter().all(u8::is_ascii_graphic);
        if !legal {
            return Err(Fault::RequestLine);
        }
        match version {
            b"HTTP/1.1" => {}
            b"HTTP/1.0" => self.old = true,
            [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
                return Err(Fault::Version);
            }
            _ => return Err(Fault::RequestLine),
        }
        if target.len() > limits.uri_bytes {
            return Err(Fault::UriTooLong { limit: limits.uri_bytes });
        }
        if !has_form(target, method) {
            return Err(Fault::RequestLine);
        }
        self.requested = true;
        Ok(())
    }

    fn field(&mut self, line: &[u8], limits: &WireLimits) -> Result<(), Fault> {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(Fault::Folded);
        }
        let (name, value) = memchr(b':', line).and_then(|colon| line.split_at_checked(colon)).ok_or(Fault::Name)?;
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(Fault::Name);
        }
        self.count += 1;
        if self.count > limits.header_count {
            return Err(Fault::TooManyHeaders { limit: limits.header_count });
        }
        let value = || value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            if self.length.replace(number(value())?).is_some() {
                return Err(Fault::Length);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if self.chunked || self.old || !value().eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::Coding);
            }
            self.chunked = true;
        }
        Ok(())
    }

    fn coming(&self) -> Result<Coming, Fault> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err(Fault::BothFramings),
            (None, true) => Ok(Coming::Chunked),
            (Some(0) | None, false) => Ok(Coming::Nothing),
            (Some(length), false) => Ok(Coming::Sized(length)),
        }
    }
}

/// A length: digits alone, and no more than a file can have.
fn number(digits: &[u8]) -> Result<u64, Fault> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Length);
    }
    let text = std::str::from_utf8(digits).map_err(|_| Fault::Length)?;
    text.parse::<i64>().map_err(|_| Fault::Length).map(i64::unsigned_abs)
}

/// Whether a target is in a form that the method has (RFC 9112 section 3.2), and one for the library's own parser, which takes
/// more and less: an authority alone for any method, a fragment, but not every visible character in its place.
fn has_form(target: &[u8], method: &[u8]) -> bool {
    let Ok(uri) = Uri::try_from(target) else { return false };
    let is_legal = match (method, target) {
        (b"CONNECT", _) => uri.authority().is_some() && uri.scheme().is_none(),
        (_, b"*") => method == b"OPTIONS",
        _ => uri.authority().is_none() || uri.scheme().is_some(),
    };
    is_legal && memchr(b'#', target).is_none()
}

/// RFC 9110 section 5.6.2.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// What no line may hold: all control characters but the tab.
pub fn is_control(byte: u8) -> bool {
    matches!(byte, 0..=8 | 10..=31 | 127)
}
