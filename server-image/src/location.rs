//! Where a reference in the backend's own answer leads (`Location`, the address of the older transport): to a target at the
//! backend itself, or elsewhere. Decides from text alone. Scheme and authority only decide whether it stays inside: the way
//! to the backend is always the same, so nothing that is written here leads to another host, port or protocol.

use std::borrow::Cow;

use http::HeaderValue;
use http::uri::PathAndQuery;

use crate::host::{self, Authority, LOOPBACK};

/// What the backend may call itself.
#[derive(Clone, Copy, Debug)]
pub struct Inside<'a> {
    /// Its port on loopback.
    pub port: u16,
    /// What its client called, where it was told: servers write their own address from that.
    pub public: Option<Public<'a>>,
}

/// The public side of a request, as the backend is told it.
#[derive(Clone, Copy, Debug)]
pub struct Public<'a> {
    /// `X-Forwarded-Proto`.
    pub scheme: &'a [u8],
    /// `X-Forwarded-Host`.
    pub authority: &'a HeaderValue,
}

impl Inside<'_> {
    /// Whether `authority` means the backend, whatever of the two schemes it has: which of them is the client's is told by
    /// proxies, and not by all.
    fn has(&self, scheme: Scheme, authority: &str) -> bool {
        let Some((name, port)) = scheme.parse(authority) else { return false };
        if LOOPBACK.contains(&name.as_ref()) && port.unwrap_or(scheme.port()) == self.port {
            return true;
        }
        let public = self.public.and_then(|public| public.scheme().parse(public.authority.to_str().ok()?));
        public.is_some_and(|public| public == (name, port))
    }
}

impl Public<'_> {
    fn scheme(&self) -> Scheme {
        if self.scheme.eq_ignore_ascii_case(b"https") { Scheme::Https } else { Scheme::Http }
    }
}

#[derive(Clone, Copy)]
enum Scheme {
    Http,
    Https,
}

impl Scheme {
    fn of(name: &str) -> Option<Self> {
        match name {
            name if name.eq_ignore_ascii_case("http") => Some(Self::Http),
            name if name.eq_ignore_ascii_case("https") => Some(Self::Https),
            _ => None,
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// A name, and a port where it is not the scheme's own.
    fn parse(self, authority: &str) -> Option<Authority<'_>> {
        let (name, port) = host::parse(authority)?;
        Some((name, port.filter(|port| *port != self.port())))
    }
}

/// The target that `reference` means in the answer to a request for `base` (RFC 3986 section 5.2), if it is inside.
pub fn target(reference: &str, base: &PathAndQuery, inside: &Inside<'_>) -> Option<PathAndQuery> {
    // Some take a backslash for a slash. No reference has one, or a space, or a character that is not visible.
    if !reference.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return None;
    }
    let (reference, _) = reference.split_once('#').unwrap_or((reference, ""));
    let (hierarchy, query) = match reference.split_once('?') {
        Some((hierarchy, query)) => (hierarchy, Some(query)),
        None => (reference, None),
    };
    let (scheme, rest) = match hierarchy.split_once(':') {
        Some((scheme, rest)) if !scheme.contains('/') => (Some(Scheme::of(scheme)?), rest),
        _ => (None, hierarchy),
    };
    let (path, query) = match (scheme, rest.strip_prefix("//")) {
        (scheme, Some(rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let scheme = scheme.or(inside.public.map(|public| public.scheme())).unwrap_or(Scheme::Http);
            if !inside.has(scheme, authority) {
                return None;
            }
            (path.into(), query)
        }
        (Some(_), None) => return None,
        (None, None) if rest.is_empty() => (Cow::from(base.path()), query.or(base.query())),
        (None, None) if rest.starts_with('/') => (rest.into(), query),
        (None, None) => (format!("{}/{rest}", base.path().rsplit_once('/')?.0).into(), query),
    };
    let path = without_dots(&path);
    // Some servers take what follows two slashes for an authority.
    if path.starts_with("//") {
        return None;
    }
    match query {
        Some(query) => format!("{path}?{query}").parse().ok(),
        None => path.parse().ok(),
    }
}

/// A path without the segments `.` and `..` (RFC 3986 section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/').peekable();
    while let Some(segment) = segments.next() {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
        if matches!(segment, "." | "..") && segments.peek().is_none() {
            kept.push(""); // it names a folder
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    static PUBLIC: HeaderValue = HeaderValue::from_static("mcp.example.com");

    fn lead(reference: &str, base: &'static str, inside: &Inside<'_>) -> Option<String> {
        target(reference, &PathAndQuery::from_static(base), inside).map(|target| target.to_string())
    }

    #[test]
    fn what_the_backend_calls_itself_is_inside() {
        let inside = [
            ("http://localhost:8000/mcp/", "/mcp/"),
            ("https://localhost:8000/mcp/", "/mcp/"),
            ("HTTPS://LocalHost:8000/mcp/", "/mcp/"),
            ("http://127.0.0.1:8000/mcp/?a=1#part", "/mcp/?a=1"),
            ("https://[::1]:8000/", "/"),
            ("https://[0:0:0:0:0:0:0:1]:8000", "/"),
            ("http://localhost:8000?a=/b", "/?a=/b"),
            ("http://localhost:08000/", "/"),
            ("//localhost:8000/mcp/", "/mcp/"),
            // What the client called.
            ("https://mcp.example.com/mcp/", "/mcp/"),
            ("https://MCP.example.com:443/mcp/", "/mcp/"),
            ("http://mcp.example.com/mcp/", "/mcp/"),
            ("http://mcp.example.com:80/mcp/", "/mcp/"),
            ("//mcp.example.com/mcp/", "/mcp/"),
            ("//mcp.example.com:443/mcp/", "/mcp/"),
            // What only looks like another place.
            ("/http://evil.example.com/", "/http://evil.example.com/"),
            ("/@evil.example.com", "/@evil.example.com"),
            ("?next=https://evil.example.com/", "/a/mcp?next=https://evil.example.com/"),
        ];
        let both = Inside { port: 8000, public: Some(Public { scheme: b"https", authority: &PUBLIC }) };
        for (reference, expected) in inside {
            assert_eq!(lead(reference, "/a/mcp", &both).as_deref(), Some(expected), "{reference:?}");
        }
        let alone = Inside { port: 8000, public: None };
        for (reference, expected) in inside {
            let expected = Some(expected).filter(|_| !reference.to_ascii_lowercase().contains("//mcp.example.com"));
            assert_eq!(lead(reference, "/a/mcp", &alone).as_deref(), expected, "{reference:?}");
        }
    }

    #[test]
    fn nothing_else_is_inside() {
        let outside = [
            "http://localhost:8001/mcp/",
            "http://localhost/mcp/",
            "https://localhost/mcp/",
            "https://mcp.example.com:8000/mcp/",
            "https://mcp.example.com:8443/mcp/",
            "http://mcp.example.com:443/mcp/",
            "https://mcp.example.com./mcp/",
            "https://mcp.example.com.evil.example.com/mcp/",
            "https://evil.example.com/mcp/",
            "http://evil.example.com:8000/mcp/",
            "//evil.example.com/mcp/",
            "///evil.example.com/mcp/",
            "////evil.example.com/mcp/",
            "http://127.0.0.2:8000/",
            "http://127.1:8000/",
            "http://2130706433:8000/",
            "http://0.0.0.0:8000/",
            "http://[::ffff:127.0.0.1]:8000/",
            "http://[::1%25lo]:8000/",
            "http://169.254.169.254/latest/meta-data/",
            // User parts, and what others take for the end of an authority.
            "http://localhost:8000@evil.example.com/",
            "http://user@localhost:8000/",
            "http://user:password@localhost:8000/",
            "http://@localhost:8000/",
            "http://evil.example.com#@localhost:8000/",
            "http://evil.example.com?@localhost:8000/",
            "http://localhost:8000;@evil.example.com/",
            "http://localhost:8000:80/",
            "http://localhost:/",
            "http://:8000/",
            "http://localhost%3a8000/",
            "http://localhost:8000%2f@evil.example.com/",
            "http://localhost,evil.example.com:8000/",
            // Backslashes.
            "\\\\evil.example.com/",
            "/\\evil.example.com/",
            "\\/evil.example.com/",
            "http:\\\\evil.example.com/",
            "http://evil.example.com\\@localhost:8000/",
            "http://localhost:8000\\@evil.example.com/",
            "/mcp\\..\\",
            // What is not visible.
            "/mcp\r\nHost: evil",
            "/mcp HTTP/1.1",
            "/mcp\t",
            "/\t/evil.example.com/",
            "\t//evil.example.com/",
            " http://localhost:8000/",
            "/mcp\0",
            "/mcp\x7f",
            "/b\u{fc}cher",
            "http://localhost:8000/\u{2028}",
            // Double slashes, also those that are only there once dots are gone.
            "http://localhost:8000//evil.example.com/",
            "/.//evil.example.com/",
            "/..//evil.example.com/",
            "/mcp/..//evil.example.com/",
            "..//evil.example.com/",
            // Other schemes, and none of which anything can be said.
            "ftp://localhost:8000/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "http:/mcp/",
            "http:mcp",
            "https:",
            "://localhost:8000/",
            ":8000/mcp",
            "localhost:8000/mcp/",
            "http://",
            "http:///mcp/",
            "//",
        ];
        let both = Inside { port: 8000, public: Some(Public { scheme: b"https", authority: &PUBLIC }) };
        for reference in outside {
            assert_eq!(lead(reference, "/a/mcp", &both), None, "{reference:?}");
        }
    }

    #[test]
    fn the_public_port_is_one_of_the_public_name() {
        let cases = [
            ("http", "a", "http://a/x", true),
            ("http", "a:80", "http://a/x", true),
            ("HTTPS", "a:443", "https://a/x", true),
            ("https", "a:443", "http://a/x", true),
            ("https", "A:8443", "https://a:8443/x", true),
            ("https", "a:8443", "http://a:8443/x", true),
            ("https", "a:8443", "https://a/x", false),
            ("https", "a", "https://a:80/x", false),
            ("http", "a", "https://a:80/x", false),
            ("https", "[2001:DB8::1]:8443", "https://[2001:db8:0::1]:8443/x", true),
            ("https", "user@a", "https://a/x", false),
            ("https", "user@a", "https://user@a/x", false),
            ("https", "", "https:///x", false),
        ];
        for (scheme, authority, reference, expected) in cases {
            let authority = HeaderValue::from_static(authority);
            let public = Public { scheme: scheme.as_bytes(), authority: &authority };
            let inside = Inside { port: 8000, public: Some(public) };
            assert_eq!(lead(reference, "/", &inside).is_some(), expected, "{scheme} {authority:?} {reference}");
        }
    }

    #[test]
    fn a_server_at_the_port_of_a_scheme_may_leave_it_out() {
        for (port, reference) in [(80, "http://localhost/x"), (443, "https://localhost/x"), (80, "//localhost/x")] {
            let inside = Inside { port, public: None };
            assert_eq!(lead(reference, "/", &inside).as_deref(), Some("/x"), "{reference}");
        }
    }

    /// The examples of RFC 3986 section 5.4, as far as they have no other authority, on `http://a/b/c/d;p?q`.
    #[test]
    fn references_are_resolved() {
        let cases = [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("g?y#s", "/b/c/g?y"),
            (";x", "/b/c/;x"),
            ("g;x", "/b/c/g;x"),
            ("g;x?y#s", "/b/c/g;x?y"),
            ("", "/b/c/d;p?q"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("../../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            (".g", "/b/c/.g"),
            ("g..", "/b/c/g.."),
            ("..g", "/b/c/..g"),
            ("./../g", "/b/g"),
            ("./g/.", "/b/c/g/"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("g;x=1/./y", "/b/c/g;x=1/y"),
            ("g;x=1/../y", "/b/c/y"),
            ("g?y/./x", "/b/c/g?y/./x"),
            ("g?y/../x", "/b/c/g?y/../x"),
            ("g#s/./x", "/b/c/g"),
            ("./g:h", "/b/c/g:h"),
            ("g//h", "/b/c/g//h"),
        ];
        let inside = Inside { port: 80, public: None };
        for (reference, expected) in cases {
            assert_eq!(lead(reference, "/b/c/d;p?q", &inside).as_deref(), Some(expected), "{reference:?}");
        }
        assert_eq!(lead("mcp/", "/mcp", &inside).as_deref(), Some("/mcp/"));
    }
}
