//! URL templates of declared tools: a fixed scheme, host and port, then path and query with `{argument}` placeholders.
//! Decides what is one, for the operator and the front door alike.

use std::net::Ipv6Addr;

/// Longest URL in characters.
pub const LONGEST: usize = 2048;

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placeholder<'a> {
    /// The argument.
    pub name: &'a str,
    /// Whether it stands in the path; otherwise it stands in the query.
    pub in_path: bool,
}

/// A URL that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template<'a> {
    placeholders: Vec<Placeholder<'a>>,
}

/// Why a URL is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Another scheme, or none.
    #[error("the URL must begin with http:// or https://")]
    Scheme,
    /// The host is empty or has a placeholder: a caller must not choose where a request goes.
    #[error("the host must be written down; {{argument}} may stand in path and query only")]
    Host,
    /// Characters that no host has.
    #[error("the host must be a name or an IP address (IPv6 in brackets)")]
    HostName,
    /// No port, or none that there is. A client that cannot read it would connect to port 80 in its place.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// It would end the URL, or is no part of one.
    #[error("the URL must have no fragment (#), spaces or control characters: what means itself is percent-encoded")]
    Character,
    /// Longer than [`LONGEST`].
    #[error("the URL must have at most {LONGEST} characters")]
    TooLong,
    /// Braces that do not match.
    #[error("a brace is open: a placeholder is {{argument}}, and a brace that means itself is written %7B or %7D")]
    Brace,
    /// `{}`.
    #[error("a placeholder needs the name of an argument between its braces")]
    Empty,
    /// A placeholder as the name of a query pair.
    #[error("a placeholder in the query stands for a value: name={{argument}}")]
    QueryName,
}

impl<'a> Template<'a> {
    /// The placeholders, in their order.
    pub fn placeholders(&self) -> &[Placeholder<'a>] {
        &self.placeholders
    }
}

/// Understands a URL.
pub fn parse(url: &str) -> Result<Template<'_>, TemplateError> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).ok_or(TemplateError::Scheme)?;
    if url.chars().count() > LONGEST {
        return Err(TemplateError::TooLong);
    }
    if url.contains(|character: char| character == '#' || character.is_whitespace() || character.is_control()) {
        return Err(TemplateError::Character);
    }
    let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    check_authority(authority)?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut placeholders = Vec::new();
    collect(path, true, &mut placeholders)?;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if name.contains(['{', '}']) {
            return Err(TemplateError::QueryName);
        }
        collect(value, false, &mut placeholders)?;
    }
    Ok(Template { placeholders })
}

fn check_authority(authority: &str) -> Result<(), TemplateError> {
    let (host, rest) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            address.parse::<Ipv6Addr>().map_err(|_| TemplateError::HostName)?;
            (address, rest)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    if host.is_empty() || authority.contains(['{', '}', '@']) {
        return Err(TemplateError::Host);
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if !host.bytes().all(legal) {
        return Err(TemplateError::HostName);
    }
    if rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port) { Ok(()) } else { Err(TemplateError::Port) }
}

/// Digits alone (a sign would be read, too), and none before them that means nothing.
fn is_port(text: &str) -> bool {
    text.starts_with(|digit| matches!(digit, '1'..='9')) && text.parse::<u16>().is_ok()
}

fn collect<'a>(mut text: &'a str, in_path: bool, found: &mut Vec<Placeholder<'a>>) -> Result<(), TemplateError> {
    while let Some((before, after)) = text.split_once('{') {
        let (name, rest) = after.split_once('}').ok_or(TemplateError::Brace)?;
        match name {
            _ if before.contains('}') || name.contains('{') => return Err(TemplateError::Brace),
            "" => return Err(TemplateError::Empty),
            _ => found.push(Placeholder { name, in_path }),
        }
        text = rest;
    }
    if text.contains('}') { Err(TemplateError::Brace) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_stand_in_path_and_query() {
        let template = parse("http://api:8000/v1/{city}/days?units={units}&key=1&q=a-{text}").unwrap();
        let found: Vec<_> = template.placeholders().iter().map(|found| (found.name, found.in_path)).collect();
        assert_eq!(found, [("city", true), ("units", false), ("text", false)]);
        for url in ["https://api", "http://a_b.c-d:65535/", "http://[::1]:1/x", "http://[fd00::1]?a=b"] {
            assert_eq!(parse(url).unwrap().placeholders(), [], "{url}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        let cases = [
            ("ftp://api/", TemplateError::Scheme),
            ("http://{host}/", TemplateError::Host),
            ("http:///x", TemplateError::Host),
            ("http://user:password@api/", TemplateError::Host),
            ("http://api/{city", TemplateError::Brace),
            ("http://api/city}", TemplateError::Brace),
            ("http://api/{a{b}}", TemplateError::Brace),
            ("http://api/{}", TemplateError::Empty),
            ("http://api/?{name}=1", TemplateError::QueryName),
            ("http://{host}:80/", TemplateError::Host),
            ("http://api:{port}/", TemplateError::Host),
            ("http://api:0/", TemplateError::Port),
            ("http://api:65536/", TemplateError::Port),
            ("http://api:99999/x", TemplateError::Port),
            ("http://api:105437", TemplateError::Port),
            ("http://api:abc/", TemplateError::Port),
            ("http://api:/", TemplateError::Port),
            ("http://api:080/", TemplateError::Port),
            ("http://api:+80/", TemplateError::Port),
            ("http://api:80:80/", TemplateError::Port),
            ("http://[::1]:0/", TemplateError::Port),
            ("http://[::1]80/", TemplateError::Port),
            ("http://[::1/", TemplateError::HostName),
            ("http://[localhost]/", TemplateError::HostName),
            ("http://a\\b/", TemplateError::HostName),
            ("http://api/a b", TemplateError::Character),
            ("http://api/x#f", TemplateError::Character),
        ];
        for (url, expected) in cases {
            assert_eq!(parse(url).unwrap_err(), expected, "{url}");
        }
    }
}
