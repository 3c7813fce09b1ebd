//! Header hygiene at both sides: what belongs to one connection stays there, what only we may say is taken away.

use std::iter;
use std::net::IpAddr;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT,
    FORWARDED, HOST, HeaderName, ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue};

use crate::host;
use crate::location::Public;
use crate::refusal::Refusal;
use crate::who::API_KEY;

/// The id of one exchange, kept or made, passed on, echoed and logged.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Tells nginx and its kin not to hold an event stream back.
pub const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Names a legacy session.
pub const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Names the revision of the protocol.
pub const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Says the method of a modern request.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Says which tool, prompt, resource or task a modern request is about.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Where a legacy stream goes on.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Headers of one connection (RFC 9110 section 7.6.1).
const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Headers that are the front door's to read, or the HTTP library's to write.
const ENDS_HERE: [HeaderName; 6] = [FORWARDED, ORIGIN, AUTHORIZATION, API_KEY, EXPECT, CONTENT_LENGTH];
/// Headers that [`to_backend`] writes in place of the client's.
const REPLACED: [HeaderName; 3] = [HOST, ACCEPT_ENCODING, REQUEST_ID];

/// Headers that pass, after they were judged.
const JUDGED: [HeaderName; 5] = [SESSION, VERSION, METHOD, NAME, LAST_EVENT_ID];

/// Further headers that are read or written here.
const READ: [HeaderName; 7] =
    [ACCEPT, CONTENT_TYPE, CONTENT_ENCODING, COOKIE, FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST];

/// Headers by which a client could speak in the name of a proxy or gateway (the last four: of one for MCP, see
/// GHSA-g53w-w6mj-hrpp). All of `x-forwarded-*` goes, too, but for what [`to_backend`] takes from a trusted proxy.
const PROXY_CLAIMS: [&str; 11] = [
    "x-real-ip",
    "x-original-url",
    "x-original-uri",
    "x-original-host",
    "x-rewrite-url",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-mcp-authorized",
    "mcp-init-host",
    "router-key",
    "x-key-id",
];

/// What the front door saw of a request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Address of the peer.
    pub peer: IpAddr,
    /// Whether that is a trusted proxy, which says what it saw itself.
    pub proxied: bool,
    /// The accepted authority.
    pub host: HeaderValue,
    /// The request's id.
    pub request_id: HeaderValue,
}

/// Most addresses of a way that are told, those nearest to the front door.
const HOPS: usize = 32;
/// Most bytes of one of them. The longest address has 45; some proxies add a port, or write a name in its place.
const HOP: usize = 64;

/// Writes the headers for the backend: the client's, without connection, credential, origin and claims; with what was seen
/// here, and by a trusted proxy.
pub fn to_backend(client: &HeaderMap, authority: &HeaderValue, seen: &Seen, mut write: impl FnMut(&HeaderName, &[u8])) {
    let named = named_by_connection(client);
    let ends = |name| HOP_BY_HOP.contains(name) || ENDS_HERE.contains(name) || REPLACED.contains(name);
    let mut cookies = Vec::new();
    for (name, value) in client {
        if ends(name) || named.contains(name) || is_claim(name.as_str()) || reads_as_ours(name.as_str()) {
            continue;
        }
        if *name == COOKIE {
            cookies.push(value.as_bytes());
        } else {
            write(name, value.as_bytes());
        }
    }
    // HTTP/2 may cut this one in pieces, which HTTP/1 does not know (RFC 9113 section 8.2.3).
    if !cookies.is_empty() {
        write(&COOKIE, &cookies.join(&b"; "[..]));
    }
    write(&HOST, authority.as_bytes());
    write(&ACCEPT_ENCODING, b"identity"); // a compressed stream arrives in lumps
    write(&REQUEST_ID, seen.request_id.as_bytes());
    let public = public(client, seen);
    write(&FORWARDED_PROTO, public.scheme);
    write(&FORWARDED_FOR, &forwarded_for(client, seen));
    write(&FORWARDED_HOST, public.authority.as_bytes());
}

/// What the client called, as the backend is told it.
pub fn public<'a>(client: &'a HeaderMap, seen: &'a Seen) -> Public<'a> {
    let scheme = told(client, seen, &FORWARDED_PROTO, is_scheme).map_or(&b"http"[..], HeaderValue::as_bytes);
    let authority = told(client, seen, &FORWARDED_HOST, host::is_authority).unwrap_or(&seen.host);
    Public { scheme, authority }
}

/// What a trusted proxy says in a header, where that is one value in its form.
fn told<'a>(
    client: &'a HeaderMap,
    seen: &Seen,
    name: &HeaderName,
    has_form: fn(&HeaderValue) -> bool,
) -> Option<&'a HeaderValue> {
    let mut values = client.get_all(name).iter();
    values.next().filter(|value| seen.proxied && values.next().is_none() && has_form(value))
}

fn is_scheme(value: &HeaderValue) -> bool {
    ["http", "https"].iter().any(|scheme| value.as_bytes().eq_ignore_ascii_case(scheme.as_bytes()))
}

/// The way of the request: what a trusted proxy says of it, then the peer. What can be no address is left out, so that the
/// backend reads a list of them whatever a client has told the proxy.
fn forwarded_for(client: &HeaderMap, seen: &Seen) -> Vec<u8> {
    let peer = seen.peer.to_canonical().to_string();
    if !seen.proxied {
        return peer.into_bytes();
    }
    let hops = client
        .get_all(FORWARDED_FOR)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    let legal = |hop: &&[u8]| (1..=HOP).contains(&hop.len()) && hop.iter().all(u8::is_ascii_graphic);
    let mut way: Vec<&[u8]> = iter::once(peer.as_bytes()).chain(hops.filter(legal).rev().take(HOPS)).collect();
    way.reverse();
    way.join(&b", "[..])
}

/// Headers for the client: the backend's, without connection and CORS.
pub fn to_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    crate::origin::strip(headers);
    if is_event_stream(headers) {
        headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
}

fn is_claim(name: &str) -> bool {
    name.starts_with("x-forwarded-") || PROXY_CLAIMS.contains(&name)
}

/// Whether a backend that keeps headers as variables (RFC 3875 section 4.1.18; WSGI, too), where `_` is what `-` is, takes
/// this for a header that is judged or written here.
fn reads_as_ours(name: &str) -> bool {
    name.contains('_') && {
        let read = name.replace('_', "-");
        let ours = [&HOP_BY_HOP[..], &ENDS_HERE, &REPLACED, &JUDGED];
        is_claim(&read) || ours.iter().any(|some| some.iter().any(|own| *own == *read))
    }
}

/// Removes what belongs to one connection.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named = named_by_connection(headers);
    let own = |name: &&HeaderName| HOP_BY_HOP.contains(name) || named.contains(name);
    let foreign: Vec<HeaderName> = headers.keys().filter(own).cloned().collect(); // mostly none
    for name in foreign {
        headers.remove(name);
    }
}

/// Headers that `Connection` makes headers of the connection, too. Those that are read or written here are for whoever the
/// message is for, and may not be named (RFC 9110 section 7.6.1); whoever names them changes nothing, on no pod.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lists = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().parse().ok());
    names.filter(|name| !is_of_message(name)).collect()
}

fn is_of_message(name: &HeaderName) -> bool {
    let ours = [&ENDS_HERE[..], &REPLACED, &JUDGED, &READ];
    name.as_str().starts_with("mcp-") || ours.iter().any(|some| some.contains(name))
}

/// Whether an answer is an event stream.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    essence(headers).eq_ignore_ascii_case("text/event-stream")
}

/// Whether an answer is compressed, though the backend is asked for `identity`.
pub fn is_coded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Media type without parameters; empty where there is none.
pub fn essence(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// Whether `Accept` admits a media type. Without `Accept` everything is admitted.
pub fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if values.peek().is_none() {
        return true;
    }
    let family = media_type.split('/').next().unwrap_or_default();
    let fits = |range: &str| {
        range == "*/*"
            || range.eq_ignore_ascii_case(media_type)
            || range.strip_suffix("/*").is_some_and(|range| range.eq_ignore_ascii_case(family))
    };
    values.flat_map(|value| value.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let range = parts.next().unwrap_or_default();
        let zero = |weight: &str| weight.trim_end_matches('0').trim_end_matches('.').trim_end_matches('0').is_empty();
        let refused = parts.any(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")).is_some_and(zero));
        fits(range) && !refused
    })
}

/// Whether `Accept` names a media type itself. A browser's `*/*` does not ask for an event stream.
pub fn asks(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = values.flat_map(|value| value.split(',')).map(|item| item.split(';').next().unwrap_or_default());
    ranges.any(|range| range.trim().eq_ignore_ascii_case(media_type))
}

/// Refuses a header of the protocol that is there twice: who reads the first would understand another request than who
/// reads the last.
pub fn single(headers: &HeaderMap) -> Result<(), Refusal> {
    let names = [
        (SESSION, "Mcp-Session-Id"),
        (VERSION, "MCP-Protocol-Version"),
        (METHOD, "Mcp-Method"),
        (NAME, "Mcp-Name"),
        (LAST_EVENT_ID, "Last-Event-ID"),
    ];
    match names.iter().find(|(name, _)| headers.get_all(name).iter().nth(1).is_some()) {
        Some((_, spelling)) => Err(Refusal::HeaderRepeated(spelling)),
        None => Ok(()),
    }
}

/// Refuses a session id outside of visible ASCII (2025-11-25, "Session Management").
pub fn legal_session(headers: &HeaderMap) -> Result<(), Refusal> {
    let legal = |id: &HeaderValue| !id.is_empty() && id.as_bytes().iter().all(u8::is_ascii_graphic);
    if headers.get(SESSION).is_none_or(legal) { Ok(()) } else { Err(Refusal::SessionIllegal) }
}

/// Longest id of a request that is kept.
const REQUEST_ID_MAXIMUM: usize = 128;

/// The client's request id, if it is one: short, visible ASCII.
pub fn request_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(REQUEST_ID)?;
    let bytes = value.as_bytes();
    let legal = (1..=REQUEST_ID_MAXIMUM).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    legal.then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn the_backend_sees_the_client_and_not_its_claims() {
        let client = headers(&[
            ("host", "mcp.example.com"),
            ("origin", "https://app.example.com"),
            ("authorization", "Bearer secret"),
            ("x-api-key", "secret"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "12"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("accept-encoding", "gzip"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-host", "evil"),
            ("x-forwarded-prefix", "/evil"),
            ("x-real-ip", "1.2.3.4"),
            ("x-original-url", "/evil"),
            ("x-mcp-authorized", "tools"),
            ("mcp-init-host", "evil"),
            ("router-key", "evil"),
            ("x-key-id", "evil"),
            ("x_forwarded_for", "1.2.3.4"),
            ("x-real_ip", "1.2.3.4"),
            ("x_api_key", "secret"),
            ("mcp_session-id", "evil"),
            ("mcp-session-id", "s"),
            ("mcp-param-city", "Oslo"),
            ("mcp-param-home_town", "Oslo"),
            ("other_id", "a"),
            ("x-other", "a"),
            ("x-other", "b"),
            ("cookie", "c=1"),
            ("cookie", "d=2; e=3"),
        ]);
        let seen = Seen {
            peer: "::ffff:10.0.0.9".parse().unwrap(),
            proxied: false,
            host: HeaderValue::from_static("mcp.example.com"),
            request_id: HeaderValue::from_static("r1"),
        };
        let mut lines = Vec::new();
        to_backend(&client, &HeaderValue::from_static("localhost:8000"), &seen, |name, value| {
            lines.push(format!("{name}: {}", String::from_utf8_lossy(value)));
        });
        lines.sort();
        insta::assert_snapshot!(lines.join("\n"));
    }

    /// `X-Forwarded-For`, `-Proto` and `-Host`, as the backend gets them.
    fn forwarded(client: &HeaderMap, peer: &str, proxied: bool) -> [String; 3] {
        let (peer, host) = (peer.parse().unwrap(), HeaderValue::from_static("mcp.example.com"));
        let seen = Seen { peer, proxied, host, request_id: HeaderValue::from_static("r1") };
        let mut written = HeaderMap::new();
        to_backend(client, &HeaderValue::from_static("localhost:8000"), &seen, |name, value| {
            written.append(name, HeaderValue::from_bytes(value).unwrap());
        });
        [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST].map(|name| {
            let values: Vec<_> = written.get_all(&name).iter().map(|value| value.to_str().unwrap()).collect();
            let [value] = values[..] else { panic!("{name}: {values:?}") };
            value.to_owned()
        })
    }

    #[test]
    fn the_way_is_extended_for_a_trusted_proxy_and_begun_for_anybody_else() {
        let cases: &[(&[&'static str], &str, &str)] = &[
            (&[], "10.0.0.9", "10.0.0.9"),
            (&["203.0.113.7"], "10.0.0.9", "203.0.113.7, 10.0.0.9"),
            (&["203.0.113.7"], "::ffff:10.0.0.9", "203.0.113.7, 10.0.0.9"),
            (&["2001:db8::7"], "fd00::9", "2001:db8::7, fd00::9"),
            (&["1.1.1.1, 2.2.2.2"], "10.0.0.9", "1.1.1.1, 2.2.2.2, 10.0.0.9"),
            (&["1.1.1.1,2.2.2.2", "3.3.3.3"], "10.0.0.9", "1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.9"),
            (&["3.3.3.3", "1.1.1.1"], "10.0.0.9", "3.3.3.3, 1.1.1.1, 10.0.0.9"),
            // Other spellings of proxies.
            (
                &["203.0.113.7:5678, [2001:db8::7]:80, unknown, _hidden"],
                "10.0.0.9",
                "203.0.113.7:5678, [2001:db8::7]:80, unknown, _hidden, 10.0.0.9",
            ),
            // What a client made a proxy say does not hide what the proxy added.
            (&["", " , ,\t", "a b, 203.0.113.7 ,"], "10.0.0.9", "203.0.113.7, 10.0.0.9"),
            (&["\"x\ty\", 203.0.113.7"], "10.0.0.9", "203.0.113.7, 10.0.0.9"),
        ];
        for (values, peer, expected) in cases {
            let client = headers(&values.iter().map(|value| ("x-forwarded-for", *value)).collect::<Vec<_>>());
            assert_eq!(forwarded(&client, peer, true)[0], *expected, "{values:?}");
            let alone = peer.trim_start_matches("::ffff:");
            assert_eq!(forwarded(&client, peer, false)[0], alone, "{values:?}");
        }
    }

    #[test]
    fn a_way_is_short_whatever_was_claimed_and_ends_with_what_was_seen() {
        let long = "1".repeat(HOP + 1);
        let many = vec!["198.51.100.1"; 5000].join(",");
        let claims: [&[u8]; 5] = [many.as_bytes(), long.as_bytes(), b"\xff\xfe", b"\x80, evil\xff", &[b','; 9000]];
        for claim in claims {
            let mut client = HeaderMap::new();
            client.append(FORWARDED_FOR, HeaderValue::from_bytes(claim).unwrap());
            client.append(FORWARDED_FOR, HeaderValue::from_static("203.0.113.7"));
            let [way, ..] = forwarded(&client, "10.0.0.9", true);
            assert!(way.ends_with("203.0.113.7, 10.0.0.9") && way.split(", ").count() <= HOPS + 1, "{way}");
            assert!(way.split(", ").all(|hop| hop.parse::<IpAddr>().is_ok()), "{way}");
        }
    }

    #[test]
    fn scheme_and_host_are_a_trusted_proxys_where_it_says_one_of_each() {
        type Said = &'static [(&'static str, &'static str)];
        let cases: &[(Said, &str, &str)] = &[
            (&[], "http", "mcp.example.com"),
            (
                &[("x-forwarded-proto", "https"), ("x-forwarded-host", "public.example.com:8443")],
                "https",
                "public.example.com:8443",
            ),
            (&[("x-forwarded-proto", "http"), ("x-forwarded-host", "[2001:db8::1]:80")], "http", "[2001:db8::1]:80"),
            (&[("x-forwarded-proto", "HTTPS")], "HTTPS", "mcp.example.com"),
            // Two are none.
            (&[("x-forwarded-proto", "https"), ("x-forwarded-proto", "https")], "http", "mcp.example.com"),
            (&[("x-forwarded-proto", "https, http"), ("x-forwarded-host", "a, b")], "http", "mcp.example.com"),
            (&[("x-forwarded-host", "a"), ("x-forwarded-host", "b")], "http", "mcp.example.com"),
            // What is neither.
            (&[("x-forwarded-proto", "javascript"), ("x-forwarded-host", "evil/path")], "http", "mcp.example.com"),
            (&[("x-forwarded-proto", ""), ("x-forwarded-host", "")], "http", "mcp.example.com"),
            (&[("x-forwarded-proto", "https "), ("x-forwarded-host", "user@evil")], "http", "mcp.example.com"),
            (&[("x-forwarded-host", "a:99999")], "http", "mcp.example.com"),
            // The front door says none of these, and the backend gets none.
            (
                &[("x-forwarded-port", "443"), ("forwarded", "proto=https;host=evil"), ("x-real-ip", "1.1.1.1")],
                "http",
                "mcp.example.com",
            ),
        ];
        for (said, proto, host) in cases {
            let client = headers(said);
            assert_eq!(forwarded(&client, "10.0.0.9", true)[1..], [*proto, *host], "{said:?}");
            assert_eq!(forwarded(&client, "10.0.0.9", false)[1..], ["http", "mcp.example.com"], "{said:?}");
        }
    }

    #[test]
    fn connection_takes_away_nothing_that_a_proxy_says_of_the_way() {
        let mut client = headers(&[
            ("connection", "X-Forwarded-For, x-forwarded-proto, X-Forwarded-Host, x-hop"),
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "public.example.com"),
            ("x-hop", "1"),
        ]);
        let expected = ["203.0.113.7, 10.0.0.9", "https", "public.example.com"];
        assert_eq!(forwarded(&client, "10.0.0.9", true), expected);
        strip_hop_by_hop(&mut client); // on the way to another pod
        assert!(!client.contains_key("x-hop"));
        assert_eq!(forwarded(&client, "10.0.0.9", true), expected);
    }

    #[test]
    fn connection_takes_away_nothing_that_is_read_here() {
        let passes = ["accept", "content-type", "cookie", "mcp-session-id", "mcp-param-city", "last-event-id"];
        let ends = ["authorization", "x-api-key", "origin"];
        for name in passes.iter().chain(&ends) {
            let mut client = headers(&[("connection", "keep-alive, X-Hop"), ("x-hop", "1"), (name, "a")]);
            client.append(CONNECTION, HeaderValue::from_static(name));
            let seen = Seen {
                peer: [10, 0, 0, 9].into(),
                proxied: false,
                host: HeaderValue::from_static("mcp.example.com"),
                request_id: HeaderValue::from_static("r1"),
            };
            let mut written = Vec::new();
            to_backend(&client, &seen.host, &seen, |name, _| written.push(name.clone()));
            assert_eq!(written.iter().any(|written| written == name), passes.contains(name), "{name}");
            assert!(!written.iter().any(|written| written == "x-hop"));
            strip_hop_by_hop(&mut client);
            assert_eq!(client.keys().map(HeaderName::as_str).collect::<Vec<_>>(), [*name]);
        }
    }

    #[test]
    fn accept_is_understood() {
        let (json, events) = ("application/json", "text/event-stream");
        let cases: &[(&[&'static str], bool, bool, bool)] = &[
            (&[], true, true, false),
            (&["*/*"], true, true, false),
            (&["application/json, text/event-stream"], true, true, true),
            (&["application/json", "text/event-stream"], true, true, true),
            (&["Application/JSON"], true, false, false),
            (&["text/event-stream"], false, true, true),
            (&["text/*"], false, true, false),
            (&["text/html"], false, false, false),
            (&["application/json;q=0, text/event-stream;q=0.5"], false, true, true),
            (&["application/json;q=0.000"], false, false, false),
            (&["application/json; charset=utf-8; q=1"], true, false, false),
            (&[""], false, false, false),
        ];
        for (values, expected_json, expected_events, expected_asks) in cases {
            let mut map = HeaderMap::new();
            for value in *values {
                map.append(ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(accepts(&map, json), *expected_json, "{values:?}");
            assert_eq!(accepts(&map, events), *expected_events, "{values:?}");
            assert_eq!(asks(&map, events), *expected_asks, "{values:?}");
        }
    }

    #[test]
    fn a_request_id_is_short_and_visible() {
        assert!(request_id(&headers(&[("x-request-id", "a-1")])).is_some());
        assert!(request_id(&headers(&[("x-request-id", "a b")])).is_none());
        assert!(request_id(&headers(&[("x-request-id", "")])).is_none());
        assert!(request_id(&headers(&[])).is_none());
    }
}
