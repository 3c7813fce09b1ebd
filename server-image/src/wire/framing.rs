//! The byte stream of one HTTP/1.1 connection, followed just closely enough to know where each request begins and ends.
//! It tells which bytes may pass to the HTTP library, which is more lenient than a front door may be (RFC 9112 section
//! 11.2). It does no I/O, keeps no bytes, and knows no header but those that frame.

use super::chunked::{Chunked, Progress};
use super::fault::Fault;
use super::head::{Coming, Head};
use super::limits::WireLimits;

/// Where the stream stands.
#[derive(Debug, Default)]
pub struct Framing {
    at: At,
    heads: u64,
}

#[derive(Debug)]
enum At {
    /// Within a head, or before it.
    Head(Head),
    /// Within a body with so many bytes to come.
    Sized(u64),
    /// Within a chunked body.
    Chunked(Chunked),
}

impl Default for At {
    fn default() -> Self {
        Self::Head(Head::default())
    }
}

/// What may be done with the bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// So many may pass. What is left is a head that is not whole: it is to be shown again, with what comes after it.
    pub bytes: usize,
    /// What comes next is no request; nothing may pass any more.
    pub fault: Option<Fault>,
}

impl Framing {
    /// Follows `bytes`: those that were left over by the last call, and new ones.
    pub fn follow(&mut self, bytes: &[u8], limits: &WireLimits) -> Passed {
        let mut passed = 0;
        let mut fault = None;
        while let Some(rest) = bytes.get(passed..)
            && !rest.is_empty()
        {
            match &mut self.at {
                At::Head(head) => match head.read(rest, limits) {
                    Ok(None) => break,
                    Ok(Some((length, coming))) => {
                        passed += length;
                        self.heads += 1;
                        self.at = match coming {
                            Coming::Nothing => At::default(),
                            Coming::Sized(length) => At::Sized(length),
                            Coming::Chunked => At::Chunked(Chunked::default()),
                        };
                    }
                    Err(found) => {
                        fault = Some(found);
                        break;
                    }
                },
                At::Sized(left) => {
                    let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    passed += taken;
                    *left -= taken as u64;
                    if *left == 0 {
                        self.at = At::default();
                    }
                }
                At::Chunked(chunked) => match chunked.read(rest, limits) {
                    Progress::More => passed = bytes.len(),
                    Progress::Done(taken) => {
                        passed += taken;
                        self.at = At::default();
                    }
                    Progress::Fault(taken, found) => {
                        passed += taken;
                        fault = Some(found);
                        break;
                    }
                },
            }
        }
        Passed { bytes: passed, fault }
    }

    /// How many heads have passed.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether a body is on its way.
    pub fn is_in_body(&self) -> bool {
        !matches!(self.at, At::Head(_))
    }

    /// Whether a request has begun whose head is not whole.
    pub fn is_in_head(&self) -> bool {
        matches!(&self.at, At::Head(head) if head.has_begun())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Method, Uri};
    use mooring_contract::config::Limits;
    use proptest::prelude::*;

    use super::*;

    fn limits() -> WireLimits {
        let limits = Limits { header_bytes: 512, header_count: 6, uri_bytes: 64, ..Limits::default() };
        WireLimits::from(&limits)
    }

    /// How many bytes passed of those that came in these pieces, what stopped them, and how many heads there were.
    fn followed(pieces: &[&[u8]]) -> (usize, Option<Fault>, u64) {
        let (mut framing, mut held, mut passed) = (Framing::default(), Vec::new(), 0);
        for piece in pieces {
            held.extend_from_slice(piece);
            let step = framing.follow(&held, &limits());
            passed += step.bytes;
            held.drain(..step.bytes);
            if step.fault.is_some() {
                return (passed, step.fault, framing.heads());
            }
        }
        (passed, None, framing.heads())
    }

    fn in_any_pieces(bytes: &[u8]) -> (usize, Option<Fault>, u64) {
        let whole = followed(&[bytes]);
        for size in [1, 2, 3, 7, 64] {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            assert_eq!(followed(&pieces), whole, "in pieces of {size}: {:?}", String::from_utf8_lossy(bytes));
        }
        whole
    }

    #[test]
    fn good_requests_pass_whole() {
        let good: &[(&str, u64)] = &[
            ("GET / HTTP/1.1\r\n\r\n", 1),
            ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", 1),
            ("\r\nGET / HTTP/1.1\r\n\r\n", 1),
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            ("GET http://a/b?c HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            ("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            ("CONNECT [::1]:80 HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 1),
            ("GET //a/{\"b\"}?{} HTTP/1.1\r\nHost: a\r\n\r\n", 1),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n", 2),
            ("POST / HTTP/1.1\r\ncontent-LENGTH:\t 0005 \t\r\n\r\n\r\n\r\n\rGET / HTTP/1.1\r\n\r\n", 2),
            ("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n", 2),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", 2),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0A;a=\"b\"\r\n0123456789\r\n000\r\n\r\n", 1),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1 \t;a\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n",
                2,
            ),
            ("GET / HTTP/1.1\r\nX: h\u{e9}\r\nEmpty:\r\n\r\n", 1),
        ];
        for (text, heads) in good {
            assert_eq!(in_any_pieces(text.as_bytes()), (text.len(), None, *heads), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_whole_is_held() {
        for (text, passed) in [
            ("", 0),
            ("\r\n", 0),
            ("GET / HTTP/1.1\r\nHost: a\r\n", 0),
            ("GET / HTTP/1.1\r\n\r\nGET", 18),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhel", 41),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5", 48),
        ] {
            assert_eq!(in_any_pieces(text.as_bytes()).0, passed, "{text:?}");
            assert_eq!(in_any_pieces(text.as_bytes()).1, None, "{text:?}");
        }
    }

    #[test]
    fn bad_heads_are_refused_and_nothing_of_them_passes() {
        let lines = |lines: &[u8]| [b"GET / HTTP/1.1\r\nHost: a\r\n", lines, b"\r\n\r\n"].concat();
        let length = |value: &str| lines(format!("Content-Length: {value}").as_bytes());
        let coding = |value: &str| lines(format!("Transfer-Encoding: {value}").as_bytes());
        let first = |line: &[u8]| [line, b"\r\nHost: a\r\n\r\n"].concat();
        let cases: Vec<(Vec<u8>, Fault)> = vec![
            (length(""), Fault::Length),
            (length("+5"), Fault::Length),
            (length("-5"), Fault::Length),
            (length("5 5"), Fault::Length),
            (length("5,5"), Fault::Length),
            (length("5, 6"), Fault::Length),
            (length("0x5"), Fault::Length),
            (length("5.0"), Fault::Length),
            (length("\u{661}"), Fault::Length),
            (length("9223372036854775808"), Fault::Length),
            (length("99999999999999999999999"), Fault::Length),
            (length("5\r\nContent-Length: 5"), Fault::Length),
            (length("5\r\ncontent-length: 6"), Fault::Length),
            (length("0\r\nContent-Length: 5"), Fault::Length),
            (length("5\r\nTransfer-Encoding: chunked"), Fault::BothFramings),
            (coding("chunked\r\nContent-Length: 0"), Fault::BothFramings),
            (coding(""), Fault::Coding),
            (coding("identity"), Fault::Coding),
            (coding("gzip, chunked"), Fault::Coding),
            (coding("chunked, chunked"), Fault::Coding),
            (coding("chunked, identity"), Fault::Coding),
            (coding("chunked;q=1"), Fault::Coding),
            (coding("\"chunked\""), Fault::Coding),
            (coding("xchunked"), Fault::Coding),
            (coding(",chunked"), Fault::Coding),
            (coding("chunked\r\nTransfer-Encoding: chunked"), Fault::Coding),
            (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), Fault::Coding),
            (coding("\x0bchunked"), Fault::Control),
            (lines(b"Content-Length : 5"), Fault::Name),
            (lines(b"Transfer-Encoding\t: chunked"), Fault::Name),
            (lines(b"Content Length: 5"), Fault::Name),
            (lines(b": 5"), Fault::Name),
            (lines(b"no colon"), Fault::Name),
            (lines(b"N\xc3\xa4me: a"), Fault::Name),
            (lines(b"A: b\r\n c"), Fault::Folded),
            (lines(b"A: b\r\n\tc: d"), Fault::Folded),
            (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_vec(), Fault::Folded),
            (lines(b"A: b\nContent-Length: 5"), Fault::BareLineFeed),
            (b"GET / HTTP/1.1\nHost: a\r\n\r\n".to_vec(), Fault::BareLineFeed),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\n".to_vec(), Fault::BareLineFeed),
            (lines(b"A: b\rC: d"), Fault::Control),
            (lines(b"A: b\r"), Fault::Control),
            (lines(b"A: \0"), Fault::Control),
            (lines(b"A: \x7f"), Fault::Control),
            (lines(b"A\0: b"), Fault::Control),
            (first(b"GET  / HTTP/1.1"), Fault::RequestLine),
            (first(b"GET / HTTP/1.1 "), Fault::RequestLine),
            (first(b" GET / HTTP/1.1"), Fault::RequestLine),
            (first(b"GET / x HTTP/1.1"), Fault::RequestLine),
            (first(b"GET /"), Fault::RequestLine),
            (first(b"GET"), Fault::RequestLine),
            (first(b"GET / http/1.1"), Fault::RequestLine),
            (first(b"GET / HTTP/1.1x"), Fault::RequestLine),
            (first(b"GET / HTTP/11"), Fault::RequestLine),
            (first(b"GE(T / HTTP/1.1"), Fault::RequestLine),
            (first(b"GET /\xc3\xa9 HTTP/1.1"), Fault::RequestLine),
            (first(b"GET\t/ HTTP/1.1"), Fault::RequestLine),
            (first(b"GET a HTTP/1.1"), Fault::RequestLine),
            (first(b"GET localhost HTTP/1.1"), Fault::RequestLine),
            (first(b"POST localhost:80 HTTP/1.1"), Fault::RequestLine),
            (first(b"GET * HTTP/1.1"), Fault::RequestLine),
            (first(b"OPTIONS ** HTTP/1.1"), Fault::RequestLine),
            (first(b"CONNECT / HTTP/1.1"), Fault::RequestLine),
            (first(b"CONNECT http://a/ HTTP/1.1"), Fault::RequestLine),
            (first(b"GET http:/a HTTP/1.1"), Fault::RequestLine),
            (first(b"GET http:///a HTTP/1.1"), Fault::RequestLine),
            (first(b"GET http://[::1 HTTP/1.1"), Fault::RequestLine),
            (first(b"GET /a?\" HTTP/1.1"), Fault::RequestLine),
            (first(b"GET /a?< HTTP/1.1"), Fault::RequestLine),
            (first(b"GET /` HTTP/1.1"), Fault::RequestLine),
            (first(b"GET /a#b HTTP/1.1"), Fault::RequestLine),
            (first(b"GET /a?b#c HTTP/1.1"), Fault::RequestLine),
            (first(b"GET http://a#b HTTP/1.1"), Fault::RequestLine),
            (first(b"GET /\0 HTTP/1.1"), Fault::Control),
            (first(b"GET / HTTP/1.2"), Fault::Version),
            (first(b"GET / HTTP/2.0"), Fault::Version),
            (first(b"GET / HTTP/0.9"), Fault::Version),
            (first(b"\r\n\r\nGET / HTTP/1.1"), Fault::RequestLine),
            (first(b"\nGET / HTTP/1.1"), Fault::RequestLine),
            (b"\x16\x03\x01\x02\x00\x01".to_vec(), Fault::RequestLine),
        ];
        for (bytes, fault) in cases {
            assert_eq!(in_any_pieces(&bytes), (0, Some(fault), 0), "{:?}", String::from_utf8_lossy(&bytes));
            // Nor after a good one.
            let good = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
            assert_eq!(in_any_pieces(&[&good[..], &bytes].concat()), (good.len(), Some(fault), 1));
        }
    }

    #[test]
    fn bad_chunks_end_where_they_are_bad() {
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let long = format!("1;{}\r\n", "a".repeat(2000));
        let trailers = format!("0\r\n{}\r\n", "A: b\r\n".repeat(7));
        let cases: &[(&str, usize, Fault)] = &[
            ("\r\n", 0, Fault::Chunk),
            ("+5\r\nhello", 0, Fault::Chunk),
            ("-5\r\nhello", 0, Fault::Chunk),
            (" 5\r\nhello", 0, Fault::Chunk),
            (";a\r\n", 0, Fault::Chunk),
            ("0x5\r\nhello", 1, Fault::Chunk),
            ("5 \r\nhello", 2, Fault::Chunk),
            ("5 5\r\nhello", 2, Fault::Chunk),
            ("5g\r\n", 1, Fault::Chunk),
            ("5\nhello", 1, Fault::Chunk),
            ("5\rhello", 2, Fault::Chunk),
            ("5\r\nhellox", 8, Fault::Chunk),
            ("5\r\nhello\n", 8, Fault::Chunk),
            ("5\r\nhello\rx", 9, Fault::Chunk),
            ("5\r\nhello0\r\n", 8, Fault::Chunk),
            ("ffffffffffffffff\r\n", 15, Fault::Chunk),
            ("0000000000000000\r\n", 15, Fault::Chunk),
            ("5;a\nhello", 3, Fault::Chunk),
            ("5;a\rb\r\nhello", 4, Fault::Chunk),
            ("5;\0\r\nhello", 2, Fault::Chunk),
            (&long, 1026, Fault::Extensions),
            ("0\r\nno colon\r\n", 5, Fault::Trailer),
            ("0\r\n folded\r\n", 3, Fault::Trailer),
            ("0\r\nA: b\n\r\n", 7, Fault::Trailer),
            ("0\r\nA: b\rC", 8, Fault::Trailer),
            ("0\r\n\n", 3, Fault::Trailer),
            ("0\r\n\rx", 4, Fault::Chunk),
            (&trailers, 39, Fault::Trailer),
        ];
        for (body, good, fault) in cases {
            let bytes = format!("{head}{body}");
            assert_eq!(in_any_pieces(bytes.as_bytes()), (head.len() + good, Some(*fault), 1), "{body:?}");
        }
    }

    #[test]
    fn limits_hold_to_the_byte() {
        let head = |target: usize, headers: usize, length: usize| {
            let mut text = format!("GET /{} HTTP/1.1\r\n", "a".repeat(target - 1));
            text += &"A: b\r\n".repeat(headers - 1);
            let rest = length - text.len() - "P: \r\n\r\n".len();
            text + &format!("P: {}\r\n\r\n", "x".repeat(rest))
        };
        let cases = [
            (head(64, 6, 512), None),
            (head(65, 6, 512), Some(Fault::UriTooLong { limit: 64 })),
            (head(64, 7, 512), Some(Fault::TooManyHeaders { limit: 6 })),
            (head(64, 6, 513), Some(Fault::HeadTooLarge { limit: 512 })),
            (format!("GET /{}", "a".repeat(600)), Some(Fault::UriTooLong { limit: 64 })),
            (format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(600)), Some(Fault::HeadTooLarge { limit: 512 })),
        ];
        for (text, fault) in cases {
            assert_eq!(in_any_pieces(text.as_bytes()).1, fault, "{text}");
        }
    }

    /// Pieces of requests, good and bad, in any order.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let fragment = prop::sample::select(vec![
            &b"GET / HTTP/1.1\r\n"[..],
            b"POST /a HTTP/1.1\r\n",
            b"POST /a HTTP/1.0\r\n",
            b"Host: a\r\n",
            b"Content-Length: 3\r\n",
            b"Content-Length: 3",
            b"Transfer-Encoding: chunked\r\n",
            b"X: \xff y\r\n",
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"\r",
            b" ",
            b":",
            b"abc",
            b"3\r\nabc\r\n",
            b"3;x=y\r\nabc\r\n",
            b"0\r\n",
            b"0\r\n\r\n",
            b"\0",
        ]);
        prop::collection::vec(fragment, 0..14).prop_map(|fragments| fragments.concat())
    }

    /// A head whose parts are well formed more often than not.
    fn one_head() -> impl Strategy<Value = Vec<u8>> {
        let method = "GET|CONNECT|OPTIONS|[!-~]{1,3}";
        let target = "/[!-~]{0,12}|(https?|ftp|[!-~]{1,3})://[!-~]{0,8}|[!-~]{1,4}";
        let value = prop::collection::vec(any::<u8>(), 0..8);
        (method, target, "Host|[!-~]{1,3}", value).prop_map(|(method, target, name, value)| {
            [format!("{method} {target} HTTP/1.1\r\n{name}: ").as_bytes(), &value, b"\r\n\r\n"].concat()
        })
    }

    proptest! {
        #[test]
        fn the_verdict_does_not_depend_on_the_pieces(
            bytes in prop_oneof![stream(), prop::collection::vec(any::<u8>(), 0..200)],
            cuts in prop::collection::vec(0_usize..300, 0..8),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(followed(&pieces), followed(&[&bytes]));
        }

        /// A head that passes is one for the library's parsers, too, and ends at the same byte.
        #[test]
        fn what_passes_is_parsed_alike(bytes in prop_oneof![stream(), one_head()]) {
            let mut head = Head::default();
            if let Ok(Some((length, _))) = head.read(&bytes, &limits()) {
                let mut headers = [httparse::EMPTY_HEADER; 8];
                let mut request = httparse::Request::new(&mut headers);
                prop_assert_eq!(request.parse(&bytes), Ok(httparse::Status::Complete(length)));
                prop_assert!(Method::from_bytes(request.method.unwrap().as_bytes()).is_ok());
                prop_assert!(Uri::try_from(request.path.unwrap()).is_ok());
                for header in request.headers.iter() {
                    prop_assert!(HeaderName::from_bytes(header.name.as_bytes()).is_ok());
                    prop_assert!(HeaderValue::from_bytes(header.value).is_ok());
                }
            }
        }
    }
}
