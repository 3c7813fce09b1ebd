//! Step 2: which pages may call, and which of them may read the answers (CORS). Decides from `Origin`, the accepted Host
//! and the preflight headers. A request without `Origin` does not come from a page and passes; a page that was served
//! under the accepted Host is our own, and needs no CORS. It knows nothing of keys: a preflight never carries one.
//!
//! `Access-Control-Allow-Private-Network` is never sent: it would let pages of the internet reach servers in private
//! networks without a word to the person, and browsers have since put a question to that person in its place.

use std::collections::HashSet;
use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use mooring_contract::config;

use crate::body::{Body, empty};
use crate::host;
use crate::refusal::Refusal;

const METHODS: &str = "GET, POST, DELETE, OPTIONS";
/// Request headers of the transport in both eras, and of the key.
const HEADERS: &str = "Content-Type, Accept, Authorization, x-api-key, Mcp-Session-Id, Mcp-Protocol-Version, Last-Event-ID, \
                       Mcp-Method, Mcp-Name";
/// What a list of the owner's own always keeps: without them no client gets past its first request.
const KEPT: [&str; 2] = ["Mcp-Session-Id", "Mcp-Protocol-Version"];
/// Answer headers that clients need.
const EXPOSED: [&str; 3] = ["Mcp-Session-Id", "WWW-Authenticate", "Retry-After"];
/// Request headers of tool arguments (2026-07-28), whose names the page's tools choose.
const PARAM_PREFIX: &str = "mcp-param-";
/// Enough for any tool; keeps a preflight's answer small.
const PARAM_MAXIMUM: usize = 64;
/// Any origin, in a list.
const ANY: &str = "*";

/// Which origins may call, which may read, and what a preflight is answered.
#[derive(Debug)]
pub struct OriginRules {
    accepted: Listed,
    readers: Listed,
    policy: Arc<Policy>,
}

/// A list of origins.
#[derive(Debug)]
enum Listed {
    Any,
    These(HashSet<String>),
}

impl Listed {
    fn of<'a>(origins: impl Iterator<Item = &'a String>) -> Self {
        let origins: HashSet<String> = origins.cloned().collect();
        if origins.contains(ANY) { Self::Any } else { Self::These(origins) }
    }

    fn has(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::These(origins) => origins.contains(origin),
        }
    }

    fn describe(&self) -> Vec<&str> {
        match self {
            Self::Any => vec![ANY],
            Self::These(origins) => {
                let mut origins: Vec<_> = origins.iter().map(String::as_str).collect();
                origins.sort_unstable();
                origins
            }
        }
    }
}

/// What readers are told.
#[derive(Debug)]
pub struct Policy {
    /// Request headers that a page may send, besides those of tool arguments.
    pub headers: String,
    /// Answer headers that it may read.
    pub exposed: String,
    /// Whether it may send cookies and the like along.
    pub credentials: bool,
    /// How long it may keep a preflight's answer, in seconds.
    pub max_age_seconds: u64,
    told_exposed: HeaderValue,
    told_max_age: HeaderValue,
    /// Whether answers differ by origin.
    varies: bool,
}

impl OriginRules {
    /// Compiles the lists. An origin of `cors` is accepted as if it were in `origins`; an entry that no browser sends is
    /// told in the error.
    pub fn new(origins: &[String], cors: &config::Cors) -> Result<Self, String> {
        let canonical = |field: &str, list: &[String]| {
            let origins: Result<Vec<_>, _> = list.iter().map(|origin| self::canonical(origin)).collect();
            origins.map_err(|error| format!("security.{field}: {error}"))
        };
        let (origins, of_cors) = (canonical("origins", origins)?, canonical("cors.origins", &cors.origins)?);
        let accepted = Listed::of(origins.iter().chain(&of_cors));
        let readers = Listed::of(if of_cors.is_empty() { &origins } else { &of_cors }.iter());
        if cors.credentials && matches!(readers, Listed::Any) {
            return Err(
                "security.cors.credentials: browsers take no credentials with *; write the origins out".to_owned()
            );
        }
        let headers =
            if cors.headers.is_empty() { HEADERS.to_owned() } else { joined("cors.headers", &cors.headers, &KEPT)? };
        let exposed = joined("cors.exposeHeaders", &cors.expose_headers, &EXPOSED)?;
        let policy = Policy {
            headers,
            told_exposed: HeaderValue::try_from(&exposed)
                .map_err(|error| format!("security.cors.exposeHeaders: {error}"))?,
            exposed,
            credentials: cors.credentials,
            max_age_seconds: cors.max_age_seconds,
            told_max_age: HeaderValue::from(cors.max_age_seconds),
            varies: matches!(&readers, Listed::These(origins) if !origins.is_empty()),
        };
        Ok(Self { accepted, readers, policy: Arc::new(policy) })
    }

    /// Whether every page may call.
    pub fn is_open(&self) -> bool {
        matches!(self.accepted, Listed::Any)
    }

    /// The origins that may call, for the line that is printed at start.
    pub fn accepted(&self) -> Vec<&str> {
        self.accepted.describe()
    }

    /// The origins that may read, for the same.
    pub fn readers(&self) -> Vec<&str> {
        self.readers.describe()
    }

    /// What those are told.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

/// An entry as browsers send it, who leave a default port out; or what is wrong with it.
pub fn canonical(text: &str) -> Result<String, String> {
    if text != ANY && !is_origin(text) {
        return Err(format!(
            "{text:?} is no origin: write scheme://host or scheme://host:port as browsers send it, in lower case and without \
             path, or * for any"
        ));
    }
    let default = match text.split_once("://") {
        Some(("https", _)) => ":443",
        Some(("http", _)) => ":80",
        _ => return Ok(text.to_owned()),
    };
    Ok(text.strip_suffix(default).unwrap_or(text).to_owned())
}

/// Whether a browser could send this: an origin is scheme, host and port, serialised in lower case (RFC 6454 section 6.1).
fn is_origin(text: &str) -> bool {
    let authority = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, authority)| authority);
    let plain = |authority: &str| !authority.is_empty() && !authority.contains(['/', '?', '#', '@', '*']);
    let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_authority = |authority: &str| HeaderValue::try_from(authority).is_ok_and(|value| host::is_authority(&value));
    authority.is_some_and(|authority| plain(authority) && is_authority(authority))
        && lower
        && text.parse::<Uri>().is_ok()
}

/// The headers that must be there and the owner's own, each once.
fn joined(field: &str, own: &[String], always: &[&str]) -> Result<String, String> {
    let mut names = always.to_vec();
    for name in own {
        // A `*` is a legal header name, and in these lists it would mean any.
        if name == ANY || HeaderName::try_from(name.as_str()).is_err() {
            return Err(format!("security.{field}: {name:?} is no header name"));
        }
        if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    Ok(names.join(", "))
}

/// What an accepted request's origin means for its answer.
#[derive(Debug)]
pub struct Cors {
    from_page: bool,
    /// Who may read, as it is told.
    reader: Option<HeaderValue>,
    policy: Arc<Policy>,
}

/// 403 for an origin that is neither listed nor that of `host`, the accepted authority; and for two of them.
pub fn check(rules: &OriginRules, host: &HeaderValue, headers: &HeaderMap) -> Result<Cors, Refusal> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (origin, second) = (origins.next(), origins.next());
    let mut cors = Cors { from_page: origin.is_some(), reader: None, policy: Arc::clone(&rules.policy) };
    let Some(origin) = origin else { return Ok(cors) };
    let text = origin.to_str().map_err(|_| Refusal::OriginUnknown)?;
    if second.is_some() || !(rules.accepted.has(text) || is_own(text, host)) {
        return Err(Refusal::OriginUnknown);
    }
    cors.reader = rules.readers.has(text).then(|| match rules.readers {
        Listed::Any => HeaderValue::from_static(ANY),
        Listed::These(_) => origin.clone(),
    });
    Ok(cors)
}

/// Whether a page comes from the same authority as the request goes to. TLS may end before us, so both schemes count.
fn is_own(origin: &str, host: &HeaderValue) -> bool {
    let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    authority.is_some_and(|authority| authority.as_bytes().eq_ignore_ascii_case(host.as_bytes()))
}

impl Cors {
    /// The answer to a preflight, if the request is one. Who may not read is told nothing in it.
    pub fn preflight(&self, parts: &Parts) -> Option<Response<Body>> {
        let asked = parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if !self.from_page || parts.method != Method::OPTIONS || !asked {
            return None;
        }
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        if self.reader.is_some() {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
            if let Ok(allowed) = HeaderValue::try_from(self.allowed_headers(&parts.headers)) {
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
            }
            headers.insert(ACCESS_CONTROL_MAX_AGE, self.policy.told_max_age.clone());
        }
        headers.append(VARY, HeaderValue::from_static("Access-Control-Request-Method, Access-Control-Request-Headers"));
        Some(response)
    }

    /// Lets the page read the answer, whatever it is. The backend's own CORS headers were taken away by [`strip`].
    pub fn finish(&self, headers: &mut HeaderMap) {
        if let Some(reader) = &self.reader {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, reader.clone());
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.policy.told_exposed.clone());
            if self.policy.credentials {
                headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            }
        }
        if self.policy.varies {
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
    }

    fn allowed_headers(&self, request: &HeaderMap) -> String {
        let mut allowed = self.policy.headers.clone();
        let asked = request.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().filter_map(|value| value.to_str().ok());
        let names = asked.flat_map(|list| list.split(',')).filter_map(|name| HeaderName::try_from(name.trim()).ok());
        for name in names.filter(|name| name.as_str().starts_with(PARAM_PREFIX)).take(PARAM_MAXIMUM) {
            allowed.push_str(", ");
            allowed.push_str(name.as_str());
        }
        allowed
    }
}

/// Removes every `Access-Control-*` header: CORS is the front door's alone.
pub fn strip(headers: &mut HeaderMap) {
    let foreign: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("access-control-")).cloned().collect();
    for name in foreign {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const APP: &str = "https://app.example.com";
    const HOST: HeaderValue = HeaderValue::from_static("mcp.example.com:8443");

    fn rules(origins: &[&str], cors: serde_json::Value) -> Result<OriginRules, String> {
        let origins: Vec<String> = origins.iter().map(|origin| (*origin).to_owned()).collect();
        OriginRules::new(&origins, &serde_json::from_value(cors).unwrap())
    }

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    /// What a page is told: by a preflight, or on any other answer.
    fn told(rules: &OriginRules, origin: &'static str, preflight: bool) -> String {
        let (mut parts, ()) = http::Request::options("/mcp").body(()).unwrap().into_parts();
        parts.headers = headers(&[
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-private-network", "true"),
            ("access-control-request-headers", "content-type, mcp-param-City, x-evil,mcp-param-b\u{20}"),
        ]);
        let cors = match check(rules, &HOST, &parts.headers) {
            Ok(cors) => cors,
            Err(refusal) => return refusal.status().to_string(),
        };
        let mut response = if preflight { cors.preflight(&parts).unwrap() } else { Response::new(empty()) };
        cors.finish(response.headers_mut());
        let lines = response.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        std::iter::once(response.status().to_string()).chain(lines).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn origins_are_as_browsers_send_them() {
        for (written, sent) in [
            ("https://a.example:443", "https://a.example"),
            ("http://[::1]:80", "http://[::1]"),
            ("https://a.example:80", "https://a.example:80"),
            ("https://a.example:8443", "https://a.example:8443"),
            ("app://a:443", "app://a:443"),
            ("*", "*"),
        ] {
            assert_eq!(canonical(written).unwrap(), sent);
        }
        for wrong in
            ["a.example", "https://a/", "https://A", "https://a:", "https://a:x", "https://a:65536", "https://a b"]
        {
            let error = canonical(wrong).expect_err(wrong);
            assert!(error.contains("is no origin: write scheme://host"), "{error}");
        }
        let listed = rules(&["https://a.example:443"], json!({"origins": ["http://b.example:80"]})).unwrap();
        assert_eq!(
            (listed.accepted(), listed.readers()),
            (vec!["http://b.example", "https://a.example"], vec!["http://b.example"])
        );
    }

    #[test]
    fn only_listed_origins_pass() {
        let cases: &[(&[&'static str], bool)] = &[
            (&[], true),
            (&["https://app.example.com"], true),
            (&["https://mcp.example.com:8443"], true),
            (&["http://mcp.example.com:8443"], true),
            (&["https://mcp.example.com"], false),
            (&["https://mcp.example.com:8443.evil.com"], false),
            (&["https://evil.com/mcp.example.com:8443"], false),
            (&["ftp://mcp.example.com:8443"], false),
            (&["mcp.example.com:8443"], false),
            (&["https://app.example.com:8443"], false),
            (&["http://app.example.com"], false),
            (&["https://app.example.com."], false),
            (&["https://app.example.com.evil.com"], false),
            (&["https://APP.example.com"], false),
            (&["null"], false),
            (&["*"], false),
            (&[""], false),
            (&["https://app.example.com", "https://app.example.com"], false),
            (&["https://app.example.com", "https://evil.com"], false),
            (&["https://app.example.com, https://evil.com"], false),
        ];
        let rules = rules(&[APP], json!({})).unwrap();
        for (origins, pass) in cases {
            let mut map = HeaderMap::new();
            for origin in *origins {
                map.append(ORIGIN, HeaderValue::from_static(origin));
            }
            assert_eq!(check(&rules, &HOST, &map).is_ok(), *pass, "{origins:?}");
        }
    }

    #[test]
    fn who_may_read_is_told_and_nobody_else() {
        let own = "https://mcp.example.com:8443";
        let cases = [
            ("the defaults", rules(&[APP], json!({}))),
            ("no list at all", rules(&[], json!({}))),
            ("readers besides callers", rules(&["vscode-webview://abc"], json!({"origins": [APP]}))),
            ("any", rules(&[], json!({"origins": ["*"]}))),
            (
                "everything written out",
                rules(
                    &[],
                    json!({"origins": [APP], "headers": ["Content-Type", "X-Own", "x-own"], "exposeHeaders": ["X-Cost"],
                        "credentials": true, "maxAgeSeconds": 5}),
                ),
            ),
        ];
        let mut lines = Vec::new();
        for (what, rules) in cases {
            let rules = rules.unwrap();
            for origin in [APP, "vscode-webview://abc", own, "https://evil.example.com"] {
                for preflight in [true, false] {
                    let kind = if preflight { "preflight" } else { "answer" };
                    lines.push(format!("## {what}, {kind} to {origin}\n{}", told(&rules, origin, preflight)));
                }
            }
        }
        insta::assert_snapshot!(lines.join("\n"));
        // Pages without an origin of their own are any, too, and it does not matter which list has it.
        let any = [rules(&[], json!({"origins": ["*"]})), rules(&["*"], json!({}))].map(Result::unwrap);
        let [one, other] = any.each_ref().map(|rules| told(rules, "null", true));
        assert!(one == other && one.contains("access-control-allow-origin: *"), "{one}");
    }

    #[test]
    fn lists_that_cannot_work_are_told() {
        let cases = [
            (&["app.example.com"][..], json!({}), "security.origins: \"app.example.com\" is no origin"),
            (&["https://app.example.com/"], json!({}), "is no origin"),
            (&["https://APP.example.com"], json!({}), "is no origin"),
            (&["https://*.example.com"], json!({}), "is no origin"),
            (&["https://user@app.example.com"], json!({}), "is no origin"),
            (&["null"], json!({}), "is no origin"),
            (&[""], json!({}), "is no origin"),
            (&[], json!({"origins": ["https://a b"]}), "security.cors.origins"),
            (&[], json!({"origins": ["*"], "credentials": true}), "security.cors.credentials"),
            (&["*"], json!({"credentials": true}), "security.cors.credentials"),
            (&[], json!({"headers": ["a b"]}), "security.cors.headers: \"a b\" is no header name"),
            (&[], json!({"headers": ["*"]}), "security.cors.headers"),
            (&[], json!({"exposeHeaders": ["*"]}), "security.cors.exposeHeaders"),
        ];
        for (origins, cors, said) in cases {
            let error = rules(origins, cors.clone()).expect_err(said);
            assert!(error.contains(said), "{origins:?} {cors}: {error}");
        }
        for origin in ["http://localhost:3000", "http://[::1]:80", "vscode-webview://abc", "https://app.example.com"] {
            assert!(rules(&[origin], json!({"credentials": true})).is_ok(), "{origin}");
        }
    }

    #[test]
    fn without_an_origin_there_is_no_preflight_and_nothing_to_read() {
        let (mut parts, ()) = http::Request::options("/mcp").body(()).unwrap().into_parts();
        parts.headers = headers(&[("access-control-request-method", "POST")]);
        let rules = rules(&[APP], json!({})).unwrap();
        let cors = check(&rules, &HOST, &parts.headers).unwrap();
        assert!(cors.preflight(&parts).is_none());
        let mut answer = HeaderMap::new();
        cors.finish(&mut answer);
        assert_eq!(answer, headers(&[("vary", "Origin")])); // a cache must not give it to a page
    }

    #[test]
    fn the_backends_cors_headers_are_removed() {
        let mut answer = headers(&[
            ("access-control-allow-origin", "*"),
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-private-network", "true"),
            ("content-type", "application/json"),
        ]);
        strip(&mut answer);
        assert_eq!(answer.len(), 1);
    }
}
