//! URL templates of declared tools: a fixed scheme and host, then path and query with `{argument}` placeholders.

/// A placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placeholder<'a> {
    /// The argument.
    pub(crate) name: &'a str,
    /// Whether it stands in the path; otherwise it stands in the query.
    pub(crate) in_path: bool,
}

/// A URL that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template<'a> {
    placeholders: Vec<Placeholder<'a>>,
}

/// Why a URL is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    /// Another scheme, or none.
    #[error("the URL must begin with http:// or https://")]
    Scheme,
    /// The host is empty or has a placeholder: a caller must not choose where a request goes.
    #[error("the host must be written down; {{argument}} may stand in path and query only")]
    Host,
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
    pub(crate) fn placeholders(&self) -> &[Placeholder<'a>] {
        &self.placeholders
    }
}

/// Understands a URL.
pub(crate) fn parse(url: &str) -> Result<Template<'_>, TemplateError> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).ok_or(TemplateError::Scheme)?;
    let (host, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if host.is_empty() || host.contains(['{', '}', '@']) {
        return Err(TemplateError::Host);
    }
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
        assert_eq!(parse("https://api").unwrap().placeholders(), []);
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
        ];
        for (url, expected) in cases {
            assert_eq!(parse(url).unwrap_err(), expected, "{url}");
        }
    }
}
