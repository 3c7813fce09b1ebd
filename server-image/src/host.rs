//! Step 1: which names this server answers to. Decides from the request line and headers alone, against DNS rebinding:
//! a page on the internet may resolve its own name to this address, but cannot change the `Host` its browser sends.
//! It knows nothing of keys, origins or backends.
//!
//! What is no authority at all (RFC 9110 section 7.2, RFC 3986 section 3.2) gets 400; one that is not ours gets 421.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::Ipv6Addr;

use http::HeaderValue;
use http::header::HOST;
use http::request::Parts;
use http::uri::Scheme;

use crate::refusal::Refusal;

/// The names that are accepted, in canonical form.
#[derive(Debug, Default)]
pub struct HostRules {
    any_port: HashSet<String>,
    exact: HashSet<Authority<'static>>,
}

/// A name and a port.
pub type Authority<'a> = (Cow<'a, str>, Option<u16>);

/// Names of this machine for itself. They are accepted without being listed where nobody but this machine (or
/// `kubectl port-forward`) can send them.
pub const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl HostRules {
    /// `hosts` are names with any port; `allowed` are authorities, exact or `name:*`; `loopback`: whether loopback names
    /// count, too. An entry that cannot match is told in the error, because it is a mistake; so is a list that leaves
    /// nobody a way in.
    pub fn new(hosts: &[String], allowed: &[String], loopback: bool) -> Result<Self, String> {
        let mut rules = Self::default();
        if loopback {
            rules.any_port.extend(LOOPBACK.map(str::to_owned));
        } else if hosts.is_empty() && allowed.is_empty() {
            return Err("security.hosts: an address other than loopback is listened on, so the names under which clients \
                        call must be listed: in security.hosts (any port), or with --allowed-host name, name:port or name:*"
                .to_owned());
        }
        for host in hosts {
            let (name, port) = entry(host).ok_or_else(|| format!("security.hosts: {host:?} is no host name"))?;
            if port.is_some() {
                return Err(format!("security.hosts: {host:?} has a port; list it in allowedHosts"));
            }
            rules.any_port.insert(name.into_owned());
        }
        for text in allowed {
            match self::allowed(text).map_err(|error| format!("security.allowedHosts: {error}"))? {
                Allowed::AnyPort(name) => drop(rules.any_port.insert(name)),
                Allowed::Exactly(authority) => drop(rules.exact.insert(authority)),
            }
        }
        Ok(rules)
    }

    fn accept(&self, authority: &Authority<'_>) -> bool {
        self.any_port.contains(authority.0.as_ref()) || self.exact.contains(authority)
    }

    /// The names for the line that is printed at start.
    pub fn describe(&self) -> Vec<String> {
        let any = self.any_port.iter().map(|name| format!("{name}:*"));
        let exact = self.exact.iter().map(|(name, port)| match port {
            Some(port) => format!("{name}:{port}"),
            None => name.to_string(),
        });
        let mut names: Vec<_> = any.chain(exact).collect();
        names.sort_unstable();
        names
    }
}

/// What an entry of the second list accepts.
enum Allowed {
    AnyPort(String),
    Exactly(Authority<'static>),
}

fn allowed(text: &str) -> Result<Allowed, String> {
    let wildcard = text.strip_suffix(":*");
    let (name, port) =
        entry(wildcard.unwrap_or(text)).ok_or_else(|| format!("{text:?} is neither host, host:port nor host:*"))?;
    match (wildcard, port) {
        (Some(_), None) => Ok(Allowed::AnyPort(name.into_owned())),
        (Some(_), Some(_)) => Err(format!("{text:?} has two ports")),
        (None, port) => Ok(Allowed::Exactly((name.into_owned().into(), port))),
    }
}

/// What is wrong with an entry of the second list.
pub fn check_allowed(text: &str) -> Result<(), String> {
    allowed(text).map(|_| ())
}

/// The one authority that a request names, or why it has none: missing, repeated, or in conflict with the request
/// target (`:authority` in HTTP/2, the absolute form in HTTP/1).
fn authority(parts: &Parts) -> Result<HeaderValue, Refusal> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let header = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::HostAmbiguous);
    }
    match (header, parts.uri.authority()) {
        (Some(header), Some(target)) if !header.as_bytes().eq_ignore_ascii_case(target.as_str().as_bytes()) => {
            Err(Refusal::HostAmbiguous)
        }
        (Some(header), _) => Ok(header.clone()),
        (None, Some(target)) => HeaderValue::from_str(target.as_str()).map_err(|_| Refusal::HostMalformed),
        (None, None) => Err(Refusal::HostMissing),
    }
}

/// The accepted authority: 400 where it is missing, malformed or ambiguous, 421 where it is not ours, or where the target is of
/// another scheme than those of HTTP: it names something that this server has no say in.
pub fn check(rules: &HostRules, parts: &Parts) -> Result<HeaderValue, Refusal> {
    let of_http = |scheme: &Scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme);
    if !parts.uri.scheme().is_none_or(of_http) {
        return Err(Refusal::SchemeUnknown);
    }
    let authority = authority(parts)?;
    let parsed = parsed(&authority).ok_or(Refusal::HostMalformed)?;
    if rules.accept(&parsed) { Ok(authority) } else { Err(Refusal::HostUnknown) }
}

/// Whether a value is an authority, as `Host` has it.
pub fn is_authority(value: &HeaderValue) -> bool {
    parsed(value).is_some()
}

fn parsed(value: &HeaderValue) -> Option<Authority<'_>> {
    value.to_str().ok().and_then(parse)
}

/// An entry of a list. With a trailing dot it would be another name than the one that clients send.
fn entry(text: &str) -> Option<Authority<'_>> {
    parse(text).filter(|(name, _)| !name.ends_with('.'))
}

/// Parses an authority without user part into its canonical name (lower case; IPv6 compressed, in brackets) and port.
///
/// A trailing dot is part of the name: `name.` reaches no ingress rule for `name`, so whoever sends it did not come by
/// the way that the owner opened.
pub fn parse(authority: &str) -> Option<Authority<'_>> {
    let (name, rest) = if let Some(bracketed) = authority.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        (format!("[{address}]").into(), rest)
    } else {
        let end = authority.find(':').unwrap_or(authority.len());
        let (name, rest) = authority.split_at(end);
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || !name.bytes().all(legal) {
            return None;
        }
        let upper = name.bytes().any(|byte| byte.is_ascii_uppercase());
        (if upper { name.to_ascii_lowercase().into() } else { name.into() }, rest)
    };
    if rest.is_empty() {
        return Some((name, None));
    }
    let digits = rest.strip_prefix(':')?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((name, Some(digits.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn rules(loopback: bool) -> HostRules {
        HostRules::new(
            &list(&["mcp.example.com", "weather.demo.svc"]),
            &list(&["10.0.0.5:8443", "mcp.internal:*", "[2001:db8::1]:443", "bare.example"]),
            loopback,
        )
        .unwrap()
    }

    fn judge(rules: &HostRules, host: &str) -> u16 {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.headers.insert(HOST, HeaderValue::try_from(host).unwrap());
        check(rules, &parts).map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
    }

    #[test]
    fn names_are_matched_as_authorities() {
        let ours = [
            "mcp.example.com",
            "mcp.example.com:443",
            "MCP.Example.COM:8443",
            "weather.demo.svc:80",
            "10.0.0.5:8443",
            "mcp.internal",
            "mcp.internal:1",
            "[2001:db8::1]:443",
            "[2001:DB8:0:0::1]:443",
            "bare.example",
        ];
        let loopback = ["localhost", "LocalHost", "localhost:24080", "127.0.0.1:1234", "[::1]", "[0:0:0:0:0:0:0:1]:80"];
        let foreign = [
            "evil.example.com",
            "mcp.example.com.",
            "mcp.example.com.:443",
            "xmcp.example.com",
            "mcp.example.com.evil.com",
            "10.0.0.5",
            "10.0.0.5:8444",
            "010.0.0.5:8443",
            "bare.example:80",
            "[2001:db8::1]",
            "[2001:db8::2]:443",
            "[::ffff:127.0.0.1]",
            "127.0.0.2",
            "127.1",
            "2130706433",
            "localhost.",
            "a.localhost",
        ];
        let malformed = [
            "",
            "mcp.example.com:80.evil.com",
            "mcp.example.com:",
            "mcp.example.com:+80",
            "mcp.example.com:65536",
            "mcp.example.com:80:80",
            "mcp.example.com@evil.com",
            "evil@mcp.example.com",
            "user:password@mcp.example.com",
            "mcp.internal:*",
            "*",
            "[::1",
            "::1",
            "[::1]x",
            "[fe80::1%25eth0]",
            "[127.0.0.1]",
            "mcp.example.com/",
            "http://mcp.example.com",
            " mcp.example.com",
            "mcp.example.com,evil.com",
            "mcp.example.com evil.com",
            "mcp%2eexample.com",
            "b\u{fc}cher.example",
        ];
        let (pod, public) = (rules(true), rules(false));
        for (hosts, in_pod, on_public_address) in
            [(&ours[..], 200, 200), (&loopback, 200, 421), (&foreign, 421, 421), (&malformed, 400, 400)]
        {
            for host in hosts {
                assert_eq!((judge(&pod, host), judge(&public, host)), (in_pod, on_public_address), "{host:?}");
            }
        }
    }

    #[test]
    fn a_rule_that_cannot_match_is_told() {
        let bad = [
            ("a b", "x"),
            ("a:80", "x"),
            ("*", "x"),
            ("a.", "x"),
            ("a", "*"),
            ("a", "x:*:*"),
            ("a", "x:80:*"),
            ("a", "x.:80"),
        ];
        for (hosts, allowed) in bad {
            assert!(HostRules::new(&list(&[hosts]), &list(&[allowed]), true).is_err(), "{hosts} {allowed}");
        }
        assert!(HostRules::new(&[], &[], true).is_ok());
        assert!(HostRules::new(&[], &[], false).unwrap_err().contains("--allowed-host"));
        assert_eq!(HostRules::new(&[], &list(&["a:*"]), false).unwrap().describe(), ["a:*"]);
    }

    #[test]
    fn one_request_names_one_authority() {
        let parts = |uri: &str, hosts: &[&str]| {
            let mut request = http::Request::builder().uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            request.body(()).unwrap().into_parts().0
        };
        let label = |result: Result<HeaderValue, Refusal>| result.map_err(|refusal| refusal.status().as_u16());
        assert_eq!(label(authority(&parts("/mcp", &["a"]))), Ok(HeaderValue::from_static("a")));
        assert_eq!(label(authority(&parts("http://a/mcp", &[]))), Ok(HeaderValue::from_static("a")));
        assert_eq!(label(authority(&parts("http://a/mcp", &["A"]))), Ok(HeaderValue::from_static("A")));
        assert_eq!(label(authority(&parts("http://a/mcp", &["b"]))), Err(400));
        assert_eq!(label(authority(&parts("http://a:80/mcp", &["a"]))), Err(400));
        assert_eq!(label(authority(&parts("/mcp", &["a", "a"]))), Err(400));
        assert_eq!(label(authority(&parts("/mcp", &[]))), Err(400));
    }

    proptest! {
        #[test]
        fn nothing_but_the_name_itself_is_accepted(text in "\\PC{0,40}") {
            let rules = HostRules::new(&["mcp.example.com".to_owned()], &[], false).unwrap();
            let name = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
            prop_assert!(name == "mcp.example.com" || parse(&text).is_none_or(|parsed| !rules.accept(&parsed)));
        }

        #[test]
        fn what_surrounds_a_name_never_helps(before in "[a-z.@/]{1,6}", after in "[a-z.@/:*]{1,6}") {
            let rules = HostRules::new(&["mcp.example.com".to_owned()], &[], true).unwrap();
            for text in [format!("{before}mcp.example.com"), format!("mcp.example.com{after}")] {
                prop_assert!(parse(&text).is_none_or(|parsed| !rules.accept(&parsed)));
            }
        }
    }
}
