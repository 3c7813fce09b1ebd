//! Server-sent events: bytes to events and back, as the HTML standard has them (section 9.2.6). Lines end with LF, CRLF
//! or CR; a chunk may end anywhere, in the middle of a character, too. What an event means it does not know.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;

use crate::body::BodyError;

/// Most bytes of one event. What is larger ends the stream: an event must be whole before it can be passed on.
pub const EVENT_MAXIMUM: usize = 16 * 1024 * 1024;
/// The name of events that carry a JSON-RPC message. An event without a name means the same.
pub const MESSAGE: &str = "message";
/// The name of the first event of the older transport: where messages are to be sent.
pub const ENDPOINT: &str = "endpoint";

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `event`; empty means [`MESSAGE`].
    pub name: String,
    /// The lines of `data`, joined by LF; `None` where there was no such line.
    pub data: Option<Vec<u8>>,
    /// `id`, from which a broken stream can be resumed.
    pub id: Option<String>,
    /// `retry`: how long to wait before that.
    pub retry: Option<Duration>,
}

impl Event {
    /// The JSON-RPC message that it carries, if it carries one.
    pub fn message(&mut self) -> Option<Bytes> {
        let is_message = self.name.is_empty() || self.name == MESSAGE;
        self.data.take().filter(|data| is_message && !data.is_empty()).map(Bytes::from)
    }
}

/// An event is larger than [`EVENT_MAXIMUM`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {EVENT_MAXIMUM} bytes")]
pub struct TooLarge;

/// Bytes to events.
#[derive(Debug)]
pub struct Decoder {
    /// The begin of a line whose end is still to come.
    line: Vec<u8>,
    event: Event,
    /// Whether the event has a field that is understood.
    has_field: bool,
    /// Bytes since the last event.
    size: usize,
    maximum: usize,
    /// The last line ended with CR: an LF now belongs to it.
    after_carriage_return: bool,
    at_begin: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::up_to(EVENT_MAXIMUM)
    }
}

impl Decoder {
    /// Of events that have so many bytes at most.
    pub fn up_to(maximum: usize) -> Self {
        Self {
            line: Vec::new(),
            event: Event::default(),
            has_field: false,
            size: 0,
            maximum,
            after_carriage_return: false,
            at_begin: true,
        }
    }

    /// Bytes that it holds of an event which has not ended.
    #[cfg(any(test, fuzzing))]
    pub fn held(&self) -> usize {
        let Event { name, data, id, retry: _ } = &self.event;
        self.line.len() + name.len() + data.as_ref().map_or(0, Vec::len) + id.as_ref().map_or(0, String::len)
    }

    /// Takes bytes from `input` up to the end of an event, which it returns, or all of them.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Event>, TooLarge> {
        loop {
            if self.after_carriage_return && !input.is_empty() {
                self.after_carriage_return = false;
                *input = input.strip_prefix(b"\n").unwrap_or(input);
            }
            let end = input.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = input.split_at(end.unwrap_or(input.len()));
            self.size += part.len() + usize::from(end.is_some());
            if self.size > self.maximum {
                return Err(TooLarge);
            }
            let Some((terminator, rest)) = rest.split_first() else {
                self.line.extend_from_slice(part);
                *input = rest;
                return Ok(None);
            };
            self.after_carriage_return = *terminator == b'\r';
            *input = rest;
            let event = if self.line.is_empty() {
                self.end_of_line(part)
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(part);
                self.end_of_line(&line)
            };
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    fn end_of_line(&mut self, line: &[u8]) -> Option<Event> {
        let begins = std::mem::replace(&mut self.at_begin, false);
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| begins).unwrap_or(line);
        if line.is_empty() {
            self.size = 0;
            let has_field = std::mem::replace(&mut self.has_field, false);
            let event = std::mem::take(&mut self.event);
            return has_field.then_some(event);
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        self.field(field, value.strip_prefix(b" ").unwrap_or(value));
        None
    }

    fn field(&mut self, field: &[u8], value: &[u8]) {
        let text = || String::from_utf8_lossy(value).into_owned();
        match field {
            b"data" => match &mut self.event.data {
                None => self.event.data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            },
            b"event" => self.event.name = text(),
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let Ok(milliseconds) = text().parse() else { return };
                self.event.retry = Some(Duration::from_millis(milliseconds));
            }
            _ => return, // a comment, or a field that nobody knows
        }
        self.has_field = true;
    }
}

/// The bytes of an event with these data.
pub fn encode(name: &str, data: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(data.len() + name.len() + 24);
    bytes.extend_from_slice(b"event: ");
    bytes.extend_from_slice(name.as_bytes());
    let mut rest = data;
    loop {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
        bytes.extend_from_slice(b"\ndata: ");
        bytes.extend_from_slice(line);
        let Some(after) = after.strip_prefix(b"\r\n").or_else(|| after.get(1..)) else { break };
        rest = after;
    }
    bytes.extend_from_slice(b"\n\n");
    bytes.into()
}

/// Why a stream of events broke off.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection broke.
    #[error("the stream broke off: {0}")]
    Body(BodyError),
    /// An event without end.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// The events of a body.
#[derive(Debug)]
pub struct Events<B> {
    body: B,
    decoder: Decoder,
    ready: VecDeque<Event>,
}

impl<B> Events<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BodyError>,
{
    /// The events of `body`, from its begin.
    pub fn new(body: B) -> Self {
        Self { body, decoder: Decoder::default(), ready: VecDeque::new() }
    }

    /// The next event; `None` at the end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Event>, Broken> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| Broken::Body(error.into()))?;
            let Ok(data) = frame.into_data() else { continue };
            let mut input = &data[..];
            while let Some(event) = self.decoder.decode(&mut input)? {
                self.ready.push_back(event);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            let mut input = *piece;
            while let Some(event) = decoder.decode(&mut input).unwrap() {
                events.push(event);
            }
            assert!(input.is_empty());
        }
        events
    }

    fn data(text: &str) -> Event {
        Event { data: Some(text.as_bytes().to_vec()), ..Event::default() }
    }

    #[test]
    fn fields_are_read_as_the_standard_says() {
        let named = |name: &str, text: &str| Event { name: name.into(), ..data(text) };
        let cases: &[(&str, &[Event])] = &[
            ("data: a\n\n", &[data("a")]),
            ("data:a\r\n\r\n", &[data("a")]),
            ("data:  a\r\r", &[data(" a")]),
            ("\u{feff}data: a\n\n", &[data("a")]),
            ("data: a\ndata\ndata: b\n\n", &[data("a\n\nb")]),
            ("data: \n\n", &[data("")]),
            ("event: endpoint\ndata: /messages?s=1\n\n", &[named("endpoint", "/messages?s=1")]),
            (": comment\n\n:\n\ndata: é\n\n", &[data("é")]),
            ("unknown: 1\n\n", &[]),
            (
                "id: 7\nretry: 250\n\n",
                &[Event { id: Some("7".into()), retry: Some(Duration::from_millis(250)), ..Event::default() }],
            ),
            ("retry: soon\nid: a\0b\ndata: x\n\n", &[data("x")]),
            ("data: half\n", &[]),
            ("\n\n\ndata: a\n\n\n\n", &[data("a")]),
        ];
        for (text, expected) in cases {
            assert_eq!(&decode(&[text.as_bytes()]), expected, "{text:?}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut decoder = Decoder::up_to(100);
        let mut input: &[u8] = b"data: 1\n\ndata: 2\n\n";
        while decoder.decode(&mut input).unwrap().is_some() {}
        for kind in [": ", "data: ", "data: \n"] {
            let mut decoder = Decoder::up_to(100);
            let text = kind.repeat(60);
            assert_eq!(decoder.decode(&mut text.as_bytes()), Err(TooLarge), "{kind:?}");
        }
    }

    #[test]
    fn bytes_after_an_event_are_left() {
        let mut input: &[u8] = b"event: endpoint\ndata: /m\n\nevent: message\ndata: {}\n";
        let event = Decoder::default().decode(&mut input).unwrap().unwrap();
        assert_eq!((event.name.as_str(), input), ("endpoint", &b"event: message\ndata: {}\n"[..]));
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            text in "((data|event|id|retry|x|)(:| |: )?[0-9aé€𝄞 ]{0,4}(\r\n|\n|\r)|\r\n|\n|\r){0,12}",
            cuts in prop::collection::vec(0_usize..160, 0..12),
        ) {
            let bytes = text.as_bytes();
            let mut positions: Vec<_> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            positions.extend([0, bytes.len()]);
            positions.sort_unstable();
            let pieces: Vec<_> = positions.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let single: Vec<_> = bytes.chunks(1).collect();
            let whole = decode(&[bytes]);
            prop_assert_eq!(&whole, &decode(&pieces));
            prop_assert_eq!(&whole, &decode(&single));
        }

        #[test]
        fn what_is_encoded_is_decoded(text in "[ a-zé:\n]{0,24}") {
            let event = Event { name: "message".into(), ..data(&text) };
            prop_assert_eq!(decode(&[&encode("message", text.as_bytes())]), vec![event]);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            decode(&[&bytes]);
        }
    }
}
