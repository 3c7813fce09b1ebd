//! Step 1: which names this server answers to. Decides from the request line and headers alone, against DNS rebinding:
//! a page on the internet may resolve its own name to this address, but cannot change the `Host` its browser sends.
//! It knows nothing of keys, origins or backends.

use std::collections::HashSet;
use std::net::Ipv6Addr;

use http::header::HOST;
use http::request::Parts;

use crate::refusal::Refusal;

/// The names that are accepted, in canonical form.
#[derive(Debug, Default)]
pub struct HostRules {
    any_port: HashSet<String>,
    exact: HashSet<(String, Option<u16>)>,
}

/// Accepted without being listed, so that `kubectl port-forward` works; no foreign page can send them.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl HostRules {
    /// `hosts` are names with any port; `allowed` are authorities, exact or `name:*`. An entry that is neither is
    /// told in the error, because a rule that cannot match is a mistake.
    pub fn new(hosts: &[String], allowed: &[String]) -> Result<Self, String> {
        let mut rules = Self::default();
        rules.any_port.extend(LOOPBACK.map(str::to_owned));
        for host in hosts {
            let (name, port) = parse(host).ok_or_else(|| format!("security.hosts: {host:?} is no host name"))?;
            if port.is_some() {
                return Err(format!("security.hosts: {host:?} has a port; list it in allowedHosts"));
            }
            rules.any_port.insert(name);
        }
        for entry in allowed {
            let wildcard = entry.strip_suffix(":*");
            let (name, port) = parse(wildcard.unwrap_or(entry))
                .ok_or_else(|| format!("security.allowedHosts: {entry:?} is neither host, host:port nor host:*"))?;
            match (wildcard, port) {
                (Some(_), None) => drop(rules.any_port.insert(name)),
                (Some(_), Some(_)) => {
                    return Err(format!("security.allowedHosts: {entry:?} has two ports"));
                }
                (None, port) => drop(rules.exact.insert((name, port))),
            }
        }
        Ok(rules)
    }

    /// Whether an authority, as sent, is accepted.
    pub fn accept(&self, authority: &str) -> bool {
        let Some((name, port)) = parse(authority) else { return false };
        self.any_port.contains(&name) || self.exact.contains(&(name, port))
    }

    /// The names for the line that is printed at start.
    pub fn describe(&self) -> Vec<String> {
        let any = self.any_port.iter().map(|name| format!("{name}:*"));
        let exact = self.exact.iter().map(|(name, port)| match port {
            Some(port) => format!("{name}:{port}"),
            None => name.clone(),
        });
        let mut names: Vec<_> = any.chain(exact).collect();
        names.sort_unstable();
        names
    }
}

/// The one authority that a request names, or why it has none: missing, repeated, or in conflict with the request
/// target (`:authority` in HTTP/2, the absolute form in HTTP/1).
fn authority(parts: &Parts) -> Result<String, Refusal> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let header = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::HostAmbiguous);
    }
    let header = header.map(|value| value.to_str().map_err(|_| Refusal::HostAmbiguous)).transpose()?;
    match (header, parts.uri.authority()) {
        (Some(header), Some(target)) if !header.eq_ignore_ascii_case(target.as_str()) => Err(Refusal::HostAmbiguous),
        (Some(header), _) => Ok(header.to_owned()),
        (None, Some(target)) => Ok(target.as_str().to_owned()),
        (None, None) => Err(Refusal::HostMissing),
    }
}

/// The accepted authority: 400 where it is missing or ambiguous, 421 where it is not ours.
pub fn check(rules: &HostRules, parts: &Parts) -> Result<String, Refusal> {
    let authority = authority(parts)?;
    if rules.accept(&authority) { Ok(authority) } else { Err(Refusal::HostUnknown) }
}

/// Parses an authority without user part into its canonical name (lower case; IPv6 compressed, in brackets) and port.
///
/// A trailing dot is not taken away: `name.` reaches no ingress rule for `name`, so whoever sends it did not come by
/// the way that the owner opened.
fn parse(authority: &str) -> Option<(String, Option<u16>)> {
    let (name, rest) = if let Some(bracketed) = authority.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        (format!("[{address}]"), rest)
    } else {
        let end = authority.find(':').unwrap_or(authority.len());
        let (name, rest) = authority.split_at(end);
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if name.is_empty() || name.ends_with('.') || !name.bytes().all(legal) {
            return None;
        }
        (name.to_ascii_lowercase(), rest)
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

    fn rules() -> HostRules {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        HostRules::new(
            &list(&["mcp.example.com", "weather.demo.svc"]),
            &list(&["10.0.0.5:8443", "mcp.internal:*", "[2001:db8::1]:443", "bare.example"]),
        )
        .unwrap()
    }

    #[test]
    fn names_are_matched_as_authorities() {
        let good = [
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
            "localhost",
            "localhost:24080",
            "127.0.0.1:1234",
            "[::1]",
            "[0:0:0:0:0:0:0:1]:80",
        ];
        let bad = [
            "",
            "evil.example.com",
            "mcp.example.com.",
            "mcp.example.com.:443",
            "mcp.example.com:80.evil.com",
            "mcp.example.com:",
            "mcp.example.com:+80",
            "mcp.example.com:65536",
            "mcp.example.com:80:80",
            "mcp.example.com@evil.com",
            "evil@mcp.example.com",
            "xmcp.example.com",
            "mcp.example.com.evil.com",
            "mcp.internal:*",
            "10.0.0.5",
            "10.0.0.5:8444",
            "010.0.0.5:8443",
            "bare.example:80",
            "[2001:db8::1]",
            "[::1",
            "::1",
            "[::1]x",
            "[::ffff:127.0.0.1]",
            "127.0.0.2",
            "localhost.",
            "mcp.example.com/",
            " mcp.example.com",
            "mcp.example.com,evil.com",
            "mcp%2eexample.com",
        ];
        let rules = rules();
        assert_eq!(good.iter().filter(|name| !rules.accept(name)).collect::<Vec<_>>(), Vec::<&&str>::new());
        assert_eq!(bad.iter().filter(|name| rules.accept(name)).collect::<Vec<_>>(), Vec::<&&str>::new());
    }

    #[test]
    fn a_rule_that_cannot_match_is_told() {
        for (hosts, allowed) in [("a b", "x"), ("a:80", "x"), ("*", "x"), ("a", "*"), ("a", "x:*:*"), ("a", "x:80:*")] {
            assert!(HostRules::new(&[hosts.to_owned()], &[allowed.to_owned()]).is_err(), "{hosts} {allowed}");
        }
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
        let label = |result: Result<String, Refusal>| result.map_err(|refusal| refusal.status().as_u16());
        assert_eq!(label(authority(&parts("/mcp", &["a"]))), Ok("a".into()));
        assert_eq!(label(authority(&parts("http://a/mcp", &[]))), Ok("a".into()));
        assert_eq!(label(authority(&parts("http://a/mcp", &["A"]))), Ok("A".into()));
        assert_eq!(label(authority(&parts("http://a/mcp", &["b"]))), Err(400));
        assert_eq!(label(authority(&parts("/mcp", &["a", "a"]))), Err(400));
        assert_eq!(label(authority(&parts("/mcp", &[]))), Err(400));
    }

    proptest! {
        #[test]
        fn nothing_but_the_name_itself_is_accepted(text in "\\PC{0,40}") {
            let rules = HostRules::new(&["mcp.example.com".to_owned()], &[]).unwrap();
            let name = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
            let ours = name == "mcp.example.com" || name == "localhost" || name == "127.0.0.1" || text.starts_with('[');
            prop_assert!(ours || !rules.accept(&text));
        }

        #[test]
        fn what_surrounds_a_name_never_helps(before in "[a-z.@/]{1,6}", after in "[a-z.@/:*]{1,6}") {
            let rules = HostRules::new(&["mcp.example.com".to_owned()], &[]).unwrap();
            let prefixed = format!("{before}mcp.example.com");
            let suffixed = format!("mcp.example.com{after}");
            prop_assert!(!rules.accept(&prefixed));
            prop_assert!(!rules.accept(&suffixed));
        }
    }
}
