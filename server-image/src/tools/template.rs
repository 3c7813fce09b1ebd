//! URL templates: `https://host/v1/{city}?days={days}`. Arguments fill places in path and query, and can change nothing
//! else: scheme and authority have no places, every value is percent-encoded, and a value that would change the path's
//! structure is refused. What is a template at all, [`url_template`] decides.

use std::collections::BTreeSet;

use mooring_contract::url_template;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::arguments::Arguments;

/// Everything but RFC 3986's unreserved characters is encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A piece of a path segment or query pair.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Argument(String),
}

type Pieces = Vec<Piece>;

/// A compiled template.
#[derive(Clone, Debug)]
pub struct Template {
    origin: String,
    segments: Vec<Pieces>,
    pairs: Vec<Pieces>,
}

impl Template {
    /// Compiles a template; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        url_template::parse(text).map_err(|error| error.to_string())?;
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let (before_query, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let authority_end = before_query.find('/').unwrap_or(before_query.len());
        let (authority, path) = before_query.split_at(authority_end);
        let segments = path.split('/').skip(1).map(pieces).collect::<Result<Vec<_>, _>>()?;
        let pairs = query.into_iter().flat_map(|query| query.split('&')).map(pieces).collect::<Result<Vec<_>, _>>()?;
        let template = Self { origin: format!("{scheme}://{authority}"), segments, pairs };
        // What is left once every argument is a plain word must be a URL.
        let words = |pieces: &Pieces| join(pieces, |_| Ok(Some("x".to_owned())));
        let url = template.assemble(words, words).unwrap_or_default();
        url.parse::<http::Uri>().map_err(|error| error.to_string())?;
        Ok(template)
    }

    /// The arguments that it uses.
    pub fn arguments(&self) -> BTreeSet<&str> {
        let pieces = self.segments.iter().chain(&self.pairs).flatten();
        let name = |piece: &'_ Piece| match piece {
            Piece::Argument(_) => true,
            Piece::Literal(_) => false,
        };
        pieces
            .filter(|piece| name(piece))
            .map(|piece| match piece {
                Piece::Argument(text) | Piece::Literal(text) => text.as_str(),
            })
            .collect()
    }

    /// Fills the places. An absent argument (or null) drops its query pair, and is an error in the path.
    pub fn expand(&self, arguments: &Arguments<'_>) -> Result<String, String> {
        let segment = |pieces: &Pieces| {
            let filled = join(pieces, |name| {
                let text =
                    text_of(arguments, name)?.ok_or_else(|| format!("{name} is missing; it is part of the URL"))?;
                in_path(name, &text)?;
                Ok(Some(encoded(&text)))
            })?;
            let own = pieces.iter().any(|piece| matches!(piece, Piece::Argument(_)));
            match filled {
                Some(text) if own && matches!(text.as_str(), "" | "." | "..") => {
                    Err("an argument in the URL's path must not be empty, . or ..".to_owned())
                }
                filled => Ok(filled),
            }
        };
        let pair = |pieces: &Pieces| join(pieces, |name| Ok(text_of(arguments, name)?.map(|text| encoded(&text))));
        self.assemble(segment, pair)
    }

    fn assemble(
        &self,
        segment: impl Fn(&Pieces) -> Result<Option<String>, String>,
        pair: impl Fn(&Pieces) -> Result<Option<String>, String>,
    ) -> Result<String, String> {
        let mut url = self.origin.clone();
        for pieces in &self.segments {
            url.push('/');
            url.push_str(&segment(pieces)?.unwrap_or_default());
        }
        let mut separator = '?';
        for pieces in &self.pairs {
            if let Some(text) = pair(pieces)? {
                url.push(separator);
                url.push_str(&text);
                separator = '&';
            }
        }
        Ok(url)
    }
}

fn pieces(text: &str) -> Result<Pieces, String> {
    let mut pieces = Pieces::new();
    let mut rest = text;
    while let Some(start) = rest.find(['{', '}']) {
        let (literal, place) = rest.split_at(start);
        let inner = place.strip_prefix('{').and_then(|place| place.split_once('}'));
        let (name, after) = inner.ok_or_else(|| format!("a brace in {text:?} has no partner"))?;
        if name.is_empty() || name.contains('{') {
            return Err(format!("a place in {text:?} has no name"));
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.to_owned()));
        }
        pieces.push(Piece::Argument(name.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.to_owned()));
    }
    Ok(pieces)
}

/// Joins pieces; `None` where an argument is absent.
fn join(pieces: &Pieces, fill: impl Fn(&str) -> Result<Option<String>, String>) -> Result<Option<String>, String> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => text.push_str(literal),
            Piece::Argument(name) => match fill(name)? {
                Some(filled) => text.push_str(&filled),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(text))
}

/// The text that stands for an argument: a string's own, everything else as it was written.
fn text_of(arguments: &Arguments<'_>, name: &str) -> Result<Option<String>, String> {
    let Some(raw) = arguments.get(name) else { return Ok(None) };
    match raw.get() {
        "null" => Ok(None),
        text if text.starts_with('"') => {
            serde_json::from_str(text).map(Some).map_err(|_| format!("{name} is not readable text"))
        }
        text if text.starts_with(['[', '{']) => {
            let value: Value = serde_json::from_str(text).map_err(|_| format!("{name} is not readable"))?;
            Ok(Some(value.to_string()))
        }
        text => Ok(Some(text.to_owned())),
    }
}

/// Servers may decode a path before they split it, so an encoded `../` would still climb.
fn in_path(name: &str, text: &str) -> Result<(), String> {
    let climbs = text.split(['/', '\\']).any(|part| matches!(part, "." | ".."));
    if climbs || text.contains(|character: char| character.is_control()) {
        return Err(format!("{name} must not contain control characters or the path parts . and .."));
    }
    Ok(())
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use serde_json::value::{RawValue, to_raw_value};

    use super::*;

    fn expand(template: &str, arguments: &Value) -> Result<String, String> {
        let raws: Vec<(String, Box<RawValue>)> = arguments
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), to_raw_value(value).unwrap()))
            .collect();
        let arguments = raws.iter().map(|(name, raw)| (name.clone(), raw.as_ref())).collect();
        Template::parse(template).unwrap().expand(&arguments)
    }

    #[test]
    fn places_are_filled() {
        let cases = [
            ("http://api:8000/v1/forecast?city={city}", json!({"city": "São Paulo"})),
            ("http://api:8000/v1/forecast?city={city}", json!({})),
            ("http://api/f?city={city}&days={days}", json!({"days": 3})),
            ("http://api/f?city={city}&days={days}", json!({"city": null, "days": 3.50})),
            ("http://api/f?fixed=1&q={q}", json!({"q": "a&b=c#d?e"})),
            ("http://api/f?range={from}..{to}", json!({"from": 1, "to": true})),
            ("http://api/f?range={from}..{to}", json!({"from": 1})),
            ("http://api/f?tags={tags}", json!({"tags": ["a", "b"]})),
            ("https://api/users/{id}/posts", json!({"id": "a/b?c#d%2e@:"})),
            ("https://api/users/{id}", json!({"id": 7})),
            ("https://api/users/{id}", json!({})),
            ("https://api/users/{id}", json!({"id": ""})),
            ("https://api/users/{id}", json!({"id": ".."})),
            ("https://api/users/{id}", json!({"id": "../../admin"})),
            ("https://api/users/{id}", json!({"id": "a\\..\\b"})),
            ("https://api/users/{id}", json!({"id": "a\nb"})),
            ("https://api/users/{a}{b}", json!({"a": ".", "b": "."})),
            ("https://api/users/v{a}", json!({"a": ""})),
            ("https://api", json!({})),
            ("https://api?x={x}", json!({"x": 1})),
        ];
        let lines: Vec<_> = cases
            .iter()
            .map(|(text, arguments)| format!("{text} {arguments} -> {:?}", expand(text, arguments)))
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn wrong_templates_are_told() {
        for text in [
            "",
            "api/v1",
            "ftp://api/",
            "http://{host}/",
            "http://api:{port}/",
            "http://user@api/",
            "http://api{x}/",
            "http:///x",
            "http://api/{",
            "http://api/}",
            "http://api/{}",
            "http://api/{a{b}}",
            "http://api/x#f",
            "http://api/a b",
            "{scheme}://api/",
            "http://127.0.0.1:99999/x",
            "http://127.0.0.1:105437",
            "http://api:abc/",
            "http://api:/",
            "http://api:0/",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_argument_never_changes_host_path_or_query(a in "\\PC{1,12}|[./%?#&@:\\\\]{1,8}", b in "\\PC{0,12}|[./%?#&=@]{1,8}") {
            let text = "https://api.example.com:8443/v1/{a}/x?b={b}&c=1";
            if let Ok(url) = expand(text, &json!({"a": a, "b": b})) {
                let uri: http::Uri = url.parse().unwrap();
                prop_assert_eq!(uri.authority().unwrap().as_str(), "api.example.com:8443");
                let segments: Vec<_> = uri.path().split('/').collect();
                prop_assert_eq!(segments.len(), 4);
                prop_assert_eq!((segments[1], segments[3]), ("v1", "x"));
                let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
                prop_assert_eq!(decode(segments[2]), a);
                let pairs: Vec<_> = uri.query().unwrap().split('&').collect();
                prop_assert_eq!(pairs.len(), 2);
                prop_assert_eq!(decode(pairs[0]), format!("b={b}"));
                prop_assert_eq!(pairs[1], "c=1");
            }
        }

        #[test]
        fn any_text_is_judged_without_a_panic(text in "(https?://)?[a-z{}/?&=@#:]{0,24}") {
            let _ = Template::parse(&text);
        }
    }
}
