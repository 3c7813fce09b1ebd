//! What a server's bytes mean (RFC 9112): the head of an answer, and the body behind it. It reads and waits for nothing,
//! and copies nothing: what it tells are pieces of the bytes that came.

use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::ParserConfig;

use crate::wire::chunked::{Chunked, Piece};
use crate::wire::limits::WireLimits;

/// Largest head of an answer.
pub const HEAD_BYTES: usize = 64 * 1024;
/// Most headers of an answer.
const HEADERS: usize = 128;

/// Why the bytes are no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// What stands there is no head of an answer.
    #[error("the head of the answer is no HTTP/1: {0}")]
    Head(String),
    /// More than [`HEAD_BYTES`].
    #[error("the head of the answer has more than {HEAD_BYTES} bytes")]
    TooLarge,
    /// RFC 9112 section 6.3: not one length.
    #[error("Content-Length of the answer is not one number")]
    Length,
    /// RFC 9110 section 15.2.2: nobody asked for another protocol.
    #[error("the answer changes to another protocol")]
    Switch,
    /// RFC 9112 section 7.1.
    #[error("a chunk of the answer is malformed")]
    Chunk,
}

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Where the body ends.
    pub body: Body,
    /// How long the server keeps the connection after it (RFC 9112 section 9.3).
    pub keeps: Keeps,
}

/// How long a server keeps a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Not at all.
    Not,
    /// For a time that it does not tell.
    Open,
    /// For so long without a request.
    For(Duration),
}

/// Reads a head at the beginning of `bytes` and takes it away; None while it is not whole. Interim answers (1xx) are passed
/// over.
pub fn head(bytes: &mut Bytes) -> Result<Option<Head>, Malformed> {
    loop {
        match one(bytes)? {
            Some(head) if head.status == StatusCode::SWITCHING_PROTOCOLS => return Err(Malformed::Switch),
            Some(head) if head.status.is_informational() => {}
            head => return Ok(head),
        }
    }
}

fn one(bytes: &mut Bytes) -> Result<Option<Head>, Malformed> {
    let mut room = [const { MaybeUninit::uninit() }; HEADERS];
    let mut answer = httparse::Response::new(&mut []);
    let read = ParserConfig::default().parse_response_with_uninit_headers(&mut answer, bytes, &mut room);
    let no_head = |error: &dyn std::fmt::Display| Malformed::Head(error.to_string());
    let length = match read.map_err(|error| no_head(&error))? {
        httparse::Status::Complete(length) if length <= HEAD_BYTES => length,
        httparse::Status::Partial if bytes.len() < HEAD_BYTES => return Ok(None),
        _ => return Err(Malformed::TooLarge),
    };
    let status = StatusCode::from_u16(answer.code.unwrap_or_default()).map_err(|error| no_head(&error))?;
    let mut headers = HeaderMap::with_capacity(answer.headers.len() + ROOM);
    for header in answer.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|error| no_head(&error))?;
        let value = bytes.slice_ref(header.value);
        headers.append(name, HeaderValue::from_maybe_shared(value).map_err(|error| no_head(&error))?);
    }
    let current = answer.version == Some(1);
    let (body, framed) = Body::of(status, &mut headers)?;
    let keeps = if current && framed { Keeps::of(&headers) } else { Keeps::Not };
    drop(bytes.split_to(length));
    Ok(Some(Head { status, headers, body, keeps }))
}

/// Headers that are added on the way to the client.
const ROOM: usize = 4;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

impl Keeps {
    /// What the headers say, `Keep-Alive` among them (RFC 2068 section 19.7.1.1).
    fn of(headers: &HeaderMap) -> Self {
        if options(headers, &CONNECTION).any(|option| option.eq_ignore_ascii_case("close")) {
            return Self::Not;
        }
        let timeout = |option: &str| {
            let (name, seconds) = option.split_once('=')?;
            name.trim_end().eq_ignore_ascii_case("timeout").then(|| seconds.trim_start().parse().ok())?
        };
        options(headers, &KEEP_ALIVE).find_map(timeout).map_or(Self::Open, |told| Self::For(Duration::from_secs(told)))
    }
}

/// The parts of a list.
fn options<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lists = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim)
}

/// A body that is being read.
#[derive(Debug)]
pub enum Body {
    /// So many bytes are to come.
    Sized(u64),
    /// Chunks are to come.
    Chunked(Chunked),
    /// Everything belongs to it until the server closes the connection.
    UntilClose,
}

/// What comes next of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Data.
    Data(Bytes),
    /// Nothing, until more was read.
    Later,
    /// It has ended.
    End,
}

impl Body {
    /// RFC 9112 section 6.3, and whether the answer says in one way only where it ends.
    fn of(status: StatusCode, headers: &mut HeaderMap) -> Result<(Self, bool), Malformed> {
        if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            headers.remove(CONTENT_LENGTH); // 204 must not have one (RFC 9110 section 8.6), and that of 304 is of no answer
            return Ok((Self::Sized(0), true));
        }
        if let Some(codings) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            let last = codings.to_str().unwrap_or_default().rsplit(',').next().unwrap_or_default();
            let chunked = last.trim().eq_ignore_ascii_case("chunked");
            let alone = headers.remove(CONTENT_LENGTH).is_none();
            let body = if chunked { Self::Chunked(Chunked::default()) } else { Self::UntilClose };
            return Ok((body, chunked && alone));
        }
        let told = headers.get_all(CONTENT_LENGTH).iter().map(|value| value.to_str().unwrap_or_default());
        let mut lengths = told.flat_map(|list| list.split(',')).map(str::trim);
        let Some(length) = lengths.next() else { return Ok((Self::UntilClose, false)) };
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let mut repeated = false;
        let mut same = |other| {
            repeated = true;
            other == length
        };
        let number = length.parse().ok().filter(|_| is_number && lengths.all(&mut same));
        let number = number.ok_or(Malformed::Length)?;
        if repeated {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(number)); // once, however often it was said
        }
        Ok((Self::Sized(number), true))
    }

    /// Takes what comes next from the beginning of `bytes`.
    pub fn next(&mut self, bytes: &mut Bytes, limits: &WireLimits) -> Result<Next, Malformed> {
        match self {
            Self::Sized(0) => Ok(Next::End),
            _ if bytes.is_empty() => Ok(Next::Later),
            Self::Sized(left) => {
                let taken = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= taken as u64;
                Ok(Next::Data(bytes.split_to(taken)))
            }
            Self::UntilClose => Ok(Next::Data(std::mem::take(bytes))),
            Self::Chunked(chunked) => {
                if between(chunked, bytes, limits)? {
                    *self = Self::Sized(0);
                    return Ok(Next::End);
                }
                let Piece::Data(taken) = chunked.next(bytes, limits) else { return Ok(Next::Later) };
                let data = bytes.split_to(taken);
                // An end that is there already is known with the last data. A fault is found again by who asks on.
                if between(chunked, bytes, limits).unwrap_or(false) {
                    *self = Self::Sized(0);
                }
                Ok(Next::Data(data))
            }
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self, Self::Sized(0))
    }

    /// How many bytes are to come, where that is known.
    pub fn left(&self) -> Option<u64> {
        if let Self::Sized(left) = self { Some(*left) } else { None }
    }

    /// Whether the close of the connection is its end.
    pub fn ends_by_close(&self) -> bool {
        matches!(self, Self::UntilClose)
    }
}

/// Takes away what stands between the data of chunks. Returns whether the body has ended.
fn between(chunked: &mut Chunked, bytes: &mut Bytes, limits: &WireLimits) -> Result<bool, Malformed> {
    while !bytes.is_empty() && !chunked.is_in_data() {
        match chunked.next(bytes, limits) {
            Piece::Data(_) => return Ok(false),
            Piece::Framing(taken) => drop(bytes.split_to(taken)),
            Piece::End(taken) => {
                drop(bytes.split_to(taken));
                return Ok(true);
            }
            Piece::Fault(taken, _) => {
                drop(bytes.split_to(taken));
                return Err(Malformed::Chunk);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use mooring_contract::config::Limits;
    use proptest::prelude::*;

    use super::*;

    /// What was read of one answer: status, body, whether the body has ended, whether the connection is kept, what is left.
    #[derive(Debug, PartialEq, Eq)]
    struct Read {
        status: u16,
        body: Vec<u8>,
        ended: bool,
        keeps: bool,
        rest: Vec<u8>,
    }

    /// Reads an answer that arrives in these pieces.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Read>, Malformed> {
        let limits = WireLimits::from(&Limits::default());
        let (mut rest, mut found, mut data) = (Bytes::new(), None, Vec::new());
        for piece in pieces {
            rest = [&rest, piece].concat().into();
            if found.is_none() {
                found = head(&mut rest)?;
            }
            if let Some(Head { body, .. }) = &mut found {
                while let Next::Data(more) = body.next(&mut rest, &limits)? {
                    data.extend_from_slice(&more);
                }
            }
        }
        Ok(found.map(|Head { status, body, keeps, .. }| Read {
            status: status.as_u16(),
            body: data,
            ended: body.has_ended(),
            keeps: keeps != Keeps::Not,
            rest: rest.to_vec(),
        }))
    }

    fn whole(text: &str) -> Result<Option<Read>, Malformed> {
        read([text.as_bytes()])
    }

    #[test]
    fn an_answer_ends_where_it_says() {
        let cases = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", true, true, ""),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\noknext", "ok", true, true, "next"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", "ok", false, true, ""),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nok", "ok", true, true, ""),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", true, true, ""),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Close\r\n\r\nok", "ok", true, false, ""),
            ("HTTP/1.1 200 OK\r\nConnection: x, close\r\nContent-Length: 2\r\n\r\nok", "ok", true, false, ""),
            ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", true, false, ""),
            ("HTTP/1.1 200 OK\r\n\r\nok", "ok", false, false, ""),
            ("HTTP/1.1 204 No Content\r\n\r\n", "", true, true, ""),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", "", true, true, ""),
            ("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", "", true, true, ""),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", true, true, ""),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n1\r\n!\r\n0\r\nt: 1\r\n\r\n+",
                "ok!",
                true,
                true,
                "+",
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n", "ok", false, true, ""),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", "ok", false, false, ""),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n",
                "ok",
                true,
                false,
                "",
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                "ok",
                true,
                true,
                "",
            ),
        ];
        for (text, body, ended, keeps, rest) in cases {
            let read = whole(text).unwrap().unwrap();
            let found = (read.body.as_slice(), read.ended, read.keeps, read.rest.as_slice());
            assert_eq!(found, (body.as_bytes(), ended, keeps, rest.as_bytes()), "{text}");
        }
    }

    #[test]
    fn an_answer_that_has_no_body_has_no_length() {
        for (status, kept) in [("204 No Content", false), ("304 Not Modified", false), ("205 Reset Content", true)] {
            let mut bytes = Bytes::from(format!("HTTP/1.1 {status}\r\nContent-Length: 36\r\n\r\n"));
            assert_eq!(head(&mut bytes).unwrap().unwrap().headers.contains_key(CONTENT_LENGTH), kept, "{status}");
        }
    }

    #[test]
    fn how_long_a_connection_is_kept_is_heard() {
        let told = |seconds| Keeps::For(Duration::from_secs(seconds));
        let cases = [
            ("", Keeps::Open),
            ("Connection: keep-alive\r\n", Keeps::Open),
            ("Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n", told(5)),
            ("Keep-Alive: max=100, Timeout = 1\r\n", told(1)),
            ("Keep-Alive: max=100\r\nKeep-Alive: timeout=0\r\n", told(0)),
            ("Keep-Alive: timeout=\r\n", Keeps::Open),
            ("Keep-Alive: timeout=-1\r\n", Keeps::Open),
            ("Keep-Alive: 5\r\n", Keeps::Open),
            ("Keep-Alive: timeout=5\r\nConnection: close\r\n", Keeps::Not),
        ];
        for (lines, keeps) in cases {
            let mut bytes = Bytes::from(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{lines}\r\n"));
            assert_eq!(head(&mut bytes).unwrap().unwrap().keeps, keeps, "{lines:?}");
        }
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(HEAD_BYTES));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(HEADERS + 1));
        let cases = [
            "SSH-2.0-OpenSSH\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx : y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: y\r\n z\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: \0\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 2,\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n",
            &long,
            &many,
        ];
        for text in cases {
            let read = whole(text);
            assert!(read.is_err(), "{text:?}: {read:?}");
        }
    }

    #[test]
    fn a_head_that_is_not_whole_is_waited_for() {
        for text in ["", "H", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nx: y\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP"]
        {
            assert_eq!(whole(text), Ok(None), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_answer_does_not_depend_on_how_it_is_cut(
            text in "(HTTP/1\\.1 100 C\r\n\r\n)?HTTP/1\\.[01] 20[04] OK\r\n(x: y\r\n)?\
                     (Content-Length: [0-9]\r\n|Transfer-Encoding: chunked\r\n)?\r\n\
                     (([1-3]\r\n[a-c]{2}\r\n){0,3}0\r\n(t: v\r\n)?\r\n|[a-z]{0,12})",
            cuts in prop::collection::vec(0_usize..160, 0..8),
        ) {
            let bytes = text.as_bytes();
            let mut positions: Vec<_> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            positions.extend([0, bytes.len()]);
            positions.sort_unstable();
            let pieces = positions.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            prop_assert_eq!(read(pieces), whole(&text));
        }

        #[test]
        fn no_bytes_are_a_surprise(bytes in prop::collection::vec(any::<u8>(), 0..200), begin in "(HTTP/1\\.1 200 OK\r\n)?") {
            let _ = read([begin.as_bytes(), bytes.as_slice()]);
        }
    }
}
