//! Step 2: which pages may call, and CORS. Decides from `Origin`, the accepted Host and the preflight headers. A request
//! without `Origin` does not come from a page and passes; a page that was served under the accepted Host is our own. It
//! knows nothing of keys: a preflight never carries one.

use std::collections::HashSet;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::body::{Body, empty};
use crate::refusal::Refusal;

const METHODS: &str = "GET, POST, DELETE, OPTIONS";
const REQUEST_HEADERS: &str = "Content-Type, Accept, Authorization, x-api-key, Mcp-Session-Id, Mcp-Protocol-Version, \
                               Last-Event-ID, Mcp-Method, Mcp-Name";
const EXPOSED: &str = "Mcp-Session-Id, WWW-Authenticate, Retry-After";
const MAX_AGE: &str = "600";
/// Request headers of tool arguments (2026-07-28), whose names the page's tools choose.
const PARAM_PREFIX: &str = "mcp-param-";
/// Enough for any tool; keeps a preflight's answer small.
const PARAM_MAXIMUM: usize = 64;

/// The origin that a request came from, once it was accepted.
#[derive(Debug)]
pub struct Cors(Option<HeaderValue>);

/// 403 for an origin that is neither listed nor that of `host`, the accepted authority; and for two of them.
pub fn check(listed: &HashSet<String>, host: &str, headers: &HeaderMap) -> Result<Cors, Refusal> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let may = |origin: &str| listed.contains(origin) || is_own(origin, host);
    match (origins.next(), origins.next()) {
        (None, _) => Ok(Cors(None)),
        (Some(origin), None) if origin.to_str().is_ok_and(may) => Ok(Cors(Some(origin.clone()))),
        _ => Err(Refusal::OriginUnknown),
    }
}

/// Whether a page comes from the same authority as the request goes to. TLS may end before us, so both schemes count.
fn is_own(origin: &str, host: &str) -> bool {
    let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

impl Cors {
    /// The answer to a preflight, if the request is one.
    pub fn preflight(&self, parts: &Parts) -> Option<Response<Body>> {
        let asked = parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        if self.0.is_none() || parts.method != Method::OPTIONS || !asked {
            return None;
        }
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(&parts.headers));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
        headers.append(VARY, HeaderValue::from_static("Access-Control-Request-Method, Access-Control-Request-Headers"));
        Some(response)
    }

    /// Lets the page read the answer, whatever it is. The backend's own CORS headers were taken away by [`strip`].
    pub fn finish(&self, headers: &mut HeaderMap) {
        if let Some(origin) = &self.0 {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
            headers.append(VARY, HeaderValue::from_static("Origin"));
        }
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

fn allowed_headers(request: &HeaderMap) -> HeaderValue {
    let mut allowed = REQUEST_HEADERS.to_owned();
    let asked = request.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().filter_map(|value| value.to_str().ok());
    let parameters = asked.flat_map(|list| list.split(',')).filter_map(|name| HeaderName::try_from(name.trim()).ok());
    for name in parameters.filter(|name| name.as_str().starts_with(PARAM_PREFIX)).take(PARAM_MAXIMUM) {
        allowed.push_str(", ");
        allowed.push_str(name.as_str());
    }
    HeaderValue::try_from(allowed).unwrap_or_else(|_| HeaderValue::from_static(REQUEST_HEADERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> HashSet<String> {
        HashSet::from(["https://app.example.com".to_owned()])
    }

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn only_listed_origins_pass() {
        let cases = [
            (vec![], true),
            (vec!["https://app.example.com"], true),
            (vec!["https://mcp.example.com:8443"], true),
            (vec!["http://mcp.example.com:8443"], true),
            (vec!["https://mcp.example.com"], false),
            (vec!["https://mcp.example.com:8443.evil.com"], false),
            (vec!["https://evil.com/mcp.example.com:8443"], false),
            (vec!["ftp://mcp.example.com:8443"], false),
            (vec!["mcp.example.com:8443"], false),
            (vec!["https://app.example.com:8443"], false),
            (vec!["http://app.example.com"], false),
            (vec!["https://app.example.com.evil.com"], false),
            (vec!["https://APP.example.com"], false),
            (vec!["null"], false),
            (vec![""], false),
            (vec!["https://app.example.com", "https://app.example.com"], false),
            (vec!["https://app.example.com, https://evil.com"], false),
        ];
        for (origins, pass) in cases {
            let mut map = HeaderMap::new();
            for origin in &origins {
                map.append(ORIGIN, HeaderValue::from_static(origin));
            }
            assert_eq!(check(&listed(), "mcp.example.com:8443", &map).is_ok(), pass, "{origins:?}");
        }
    }

    #[test]
    fn a_preflight_names_what_the_transport_needs() {
        let request = http::Request::options("/mcp");
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        parts.headers = headers(&[
            ("origin", "https://app.example.com"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", "content-type, mcp-param-City, x-evil,mcp-param-b\u{20}"),
        ]);
        let cors = check(&listed(), "mcp.example.com", &parts.headers).unwrap();
        let mut response = cors.preflight(&parts).unwrap();
        cors.finish(response.headers_mut());
        insta::assert_debug_snapshot!((response.status(), response.headers()));
    }

    #[test]
    fn without_an_origin_there_is_no_preflight_and_no_header() {
        let (mut parts, ()) = http::Request::options("/mcp").body(()).unwrap().into_parts();
        parts.headers = headers(&[("access-control-request-method", "POST")]);
        let cors = check(&listed(), "mcp.example.com", &parts.headers).unwrap();
        assert!(cors.preflight(&parts).is_none());
        let mut answer = HeaderMap::new();
        cors.finish(&mut answer);
        assert!(answer.is_empty());
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
