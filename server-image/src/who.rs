//! Step 3: who calls. Decides from the credential headers, the keys in force and the time. All refusals look alike.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, Uri};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;

use crate::keys::{KeySet, StoredKey};
use crate::refusal::Refusal;

/// The other header that carries a key.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The query parameter that is meant for a key. It ends here, whatever it says.
const QUERY_KEY: &[u8] = b"_key";

/// Who calls.
#[derive(Clone, Debug)]
pub enum Principal {
    /// Nobody in particular, where `auth.anonymous` allows it.
    Anonymous,
    /// The holder of a key.
    Key(Arc<StoredKey>),
}

/// Whom a session belongs to, and whose event streams are counted. Keys of one subject, the old and the new of a rotation, are one principal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Nobody in particular.
    Anonymous,
    /// The subject of a key.
    Key(String),
}

impl Principal {
    /// Whom the caller's sessions belong to.
    pub fn subject(&self) -> Subject {
        match self {
            Self::Anonymous => Subject::Anonymous,
            Self::Key(key) => Subject::Key(key.subject.clone()),
        }
    }

    /// What logs call the caller.
    pub fn name(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Key(key) => &key.id,
        }
    }

    /// Whether the caller may still be here.
    pub fn is_welcome(&self, keys: &KeySet, anonymous: bool, now: Timestamp) -> bool {
        match self {
            Self::Anonymous => anonymous,
            Self::Key(key) => keys.still_holds(key, now),
        }
    }

    /// When the caller stops to be welcome by itself.
    pub fn expires(&self) -> Option<Timestamp> {
        match self {
            Self::Anonymous => None,
            Self::Key(key) => key.expires(),
        }
    }
}

/// 401 without a key in force. A key that was presented and fails is 401 even where `anonymous` is set.
pub fn check(keys: &KeySet, anonymous: bool, headers: &HeaderMap, now: Timestamp) -> Result<Principal, Refusal> {
    match presented(headers)? {
        None if anonymous => Ok(Principal::Anonymous),
        None => Err(Refusal::Unauthorized),
        Some(text) => {
            let key = keys.find(text, now).ok_or(Refusal::Unauthorized)?;
            key.used(now);
            Ok(Principal::Key(Arc::clone(key)))
        }
    }
}

/// The one credential that a request presents. Two headers may carry it if they agree; everything else is refused.
fn presented(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let single = |name| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(|text| Some(text.trim())).map_err(|_| Refusal::Unauthorized),
            _ => Err(Refusal::Unauthorized),
        }
    };
    let bearer = match single(AUTHORIZATION)? {
        None => None,
        Some(text) => {
            let (scheme, token) = text.split_once(' ').ok_or(Refusal::Unauthorized)?;
            let bearer = scheme.eq_ignore_ascii_case("bearer");
            Some(if bearer { token.trim() } else { return Err(Refusal::Unauthorized) })
        }
    };
    match (bearer, single(API_KEY)?) {
        (Some(bearer), Some(key)) if bearer != key => Err(Refusal::Unauthorized),
        (bearer, key) => Ok(bearer.or(key)),
    }
}

/// Takes a key out of the query of a target, so that neither a backend nor another pod is told it.
pub fn strip_key(uri: &mut Uri) {
    let Some(rest) = uri.query().and_then(without_key) else { return };
    let target = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{rest}", uri.path()) };
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = PathAndQuery::try_from(target).ok(); // of parts that were one before
    *uri = Uri::from_parts(parts).unwrap_or_default();
}

/// A query without its parameters for keys, all others as they came; `None` where it has none.
fn without_key(query: &str) -> Option<String> {
    let is_key = |parameter: &&str| {
        percent_decode_str(parameter.split('=').next().unwrap_or_default()).eq(QUERY_KEY.iter().copied())
    };
    query.split('&').any(|parameter| is_key(&parameter)).then(|| {
        let others: Vec<_> = query.split('&').filter(|parameter| !is_key(parameter)).collect();
        others.join("&")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::HeaderValue;

    use super::*;
    use crate::directory::Entries;

    const KEY: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";

    #[test]
    fn a_key_is_taken_out_of_a_query_and_nothing_else_is_touched() {
        let cases = [
            ("/mcp", "/mcp"),
            ("/mcp?", "/mcp?"),
            ("/mcp?a=1&b=%2F&&c", "/mcp?a=1&b=%2F&&c"),
            ("/mcp?_keys=1&x_key=2&_KEY=3&a=_key", "/mcp?_keys=1&x_key=2&_KEY=3&a=_key"),
            ("/mcp?_key=k", "/mcp"),
            ("/mcp?_key", "/mcp"),
            ("/mcp?_key=k=&_key=l", "/mcp"),
            ("/mcp?_key=k&b=2&a=%5f", "/mcp?b=2&a=%5f"),
            ("/m%63p?b=2&_key=k&&a=1", "/m%63p?b=2&&a=1"),
            ("/mcp?a=1&%5fkey=k&%5F%6b%65%79=k", "/mcp?a=1"),
            ("http://mcp.example.com:80/mcp?_key=k&a=1", "http://mcp.example.com:80/mcp?a=1"),
        ];
        for (target, expected) in cases {
            let mut uri = target.parse().unwrap();
            strip_key(&mut uri);
            assert_eq!(uri, expected, "{target}");
        }
    }

    /// What is sent, and who that is without and with anonymous.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str);

    #[test]
    fn credentials() {
        let secret = Entries::from([("ci".to_owned(), KEY.as_bytes().to_vec())]);
        let keys = KeySet::build(&Entries::default(), &BTreeMap::from([("s".into(), secret)]), &KeySet::default());
        let bearer = format!("Bearer {KEY}");
        let lower = format!("bEaReR  {KEY} ");
        let basic = format!("Basic {KEY}");
        let list = format!("Bearer {KEY}, Bearer {KEY}");
        let cases: &[Case] = &[
            (&[], "401", "anonymous"),
            (&[("authorization", &bearer)], "s/ci", "s/ci"),
            (&[("authorization", &lower)], "s/ci", "s/ci"),
            (&[("x-api-key", KEY)], "s/ci", "s/ci"),
            (&[("authorization", &bearer), ("x-api-key", KEY)], "s/ci", "s/ci"),
            (&[("authorization", &bearer), ("x-api-key", "other")], "401", "401"),
            (&[("authorization", "Bearer other"), ("x-api-key", KEY)], "401", "401"),
            (&[("authorization", &bearer), ("authorization", &bearer)], "401", "401"),
            (&[("x-api-key", KEY), ("x-api-key", KEY)], "401", "401"),
            (&[("authorization", &basic)], "401", "401"),
            (&[("authorization", &list)], "401", "401"),
            (&[("authorization", KEY)], "401", "401"),
            (&[("authorization", "Bearer")], "401", "401"),
            (&[("authorization", "Bearer ")], "401", "401"),
            (&[("authorization", "")], "401", "401"),
            (&[("x-api-key", "")], "401", "401"),
            (&[("x-api-key", "wrong")], "401", "401"),
        ];
        let now = "2026-11-29T00:00:00Z".parse().unwrap();
        for (sent, closed, open) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in *sent {
                headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
            }
            for (anonymous, expected) in [(false, closed), (true, open)] {
                let who = check(&keys, anonymous, &headers, now);
                let who = who.as_ref().map_or("401", Principal::name);
                assert_eq!(&who, expected, "{sent:?} with anonymous {anonymous}");
            }
        }
    }
}
