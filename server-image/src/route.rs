//! Which part of the front door a path belongs to. Decides from method, raw path and `Accept`; paths are compared byte
//! by byte, so no spelling (`//mcp`, `/%6dcp`, `/mcp/..`) means the endpoint but its own.

use http::Method;

/// The public paths, made once from the prefix.
#[derive(Debug)]
pub struct Paths {
    prefix: String,
    endpoint: String,
    stream: String,
    messages: String,
    older: bool,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The MCP endpoint.
    Endpoint,
    /// The event stream of the older HTTP+SSE transport.
    Stream,
    /// Where its messages are sent.
    Messages,
    /// A person's browser at the bare prefix: a hint, no key needed.
    Person,
    /// Discovery documents that do not exist here: a plain 404, no key needed, so that clients stop looking.
    WellKnown,
    /// Nothing: a 404 that names the endpoint, no key needed.
    Nowhere,
}

impl Paths {
    /// Paths below `prefix`, `/` or `/weather`.
    pub fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/').to_owned();
        Self {
            endpoint: mooring_contract::config::endpoint_path(&prefix),
            stream: format!("{prefix}/sse"),
            messages: format!("{prefix}/messages"),
            older: false,
            prefix,
        }
    }

    /// The public path that people are told: the endpoint, or the stream of the older transport.
    pub fn endpoint(&self) -> &str {
        if self.older { &self.stream } else { &self.endpoint }
    }

    /// The same, which tell of the older transport where they tell of a path.
    #[must_use]
    pub fn pointing_to_older(mut self, older: bool) -> Self {
        self.older = older;
        self
    }

    /// The public path for messages of the older transport.
    pub fn messages(&self) -> &str {
        &self.messages
    }

    /// Finds the route. `event_stream`: whether the request accepts `text/event-stream`, where that matters.
    pub fn find(&self, method: &Method, path: &str, event_stream: impl FnOnce() -> bool) -> Route {
        if path == self.endpoint || path.strip_suffix('/').is_some_and(|path| path == self.endpoint) {
            return Route::Endpoint;
        }
        if path == self.stream {
            return Route::Stream;
        }
        if path == self.messages {
            return Route::Messages;
        }
        if let Some("" | "/") = path.strip_prefix(self.prefix.as_str()) {
            // People paste URLs without the path, so the bare prefix is the endpoint for whatever is not a browser.
            return match *method {
                Method::POST | Method::DELETE | Method::OPTIONS => Route::Endpoint,
                Method::GET if event_stream() => Route::Endpoint,
                Method::GET | Method::HEAD => Route::Person,
                _ => Route::Nowhere,
            };
        }
        let below = path.strip_prefix(self.prefix.as_str()).unwrap_or(path);
        let well_known = |path: &str| path == "/.well-known" || path.starts_with("/.well-known/");
        if well_known(path) || well_known(below) { Route::WellKnown } else { Route::Nowhere }
    }
}

/// Which health question a path asks, below the root or the prefix.
pub fn health<'a>(prefix: Option<&Paths>, path: &'a str) -> Option<&'a str> {
    let below = prefix.and_then(|paths| path.strip_prefix(paths.prefix.as_str()));
    [Some(path), below].into_iter().flatten().find(|path| matches!(*path, "/health" | "/health/ready"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_byte_by_byte() {
        use Route::{Endpoint, Messages, Nowhere, Person, Stream, WellKnown};
        let (get, post) = (Method::GET, Method::POST);
        let cases: &[(&str, &Method, &str, bool, Route)] = &[
            ("/", &post, "/mcp", false, Endpoint),
            ("/", &get, "/mcp", false, Endpoint),
            ("/", &post, "/mcp/", false, Endpoint),
            ("/", &Method::PUT, "/mcp", false, Endpoint),
            ("/", &post, "/", false, Endpoint),
            ("/", &Method::DELETE, "/", false, Endpoint),
            ("/", &get, "/", true, Endpoint),
            ("/", &get, "/", false, Person),
            ("/", &Method::PUT, "/", false, Nowhere),
            ("/", &post, "//mcp", false, Nowhere),
            ("/", &post, "/mcp//", false, Nowhere),
            ("/", &post, "/%6dcp", false, Nowhere),
            ("/", &post, "/mcp/..", false, Nowhere),
            ("/", &post, "/mcp;x", false, Nowhere),
            ("/", &post, "/MCP", false, Nowhere),
            ("/", &post, "/mcp_message", false, Nowhere),
            ("/", &get, "/sse", true, Stream),
            ("/", &post, "/sse", false, Stream),
            ("/", &get, "/sse/", true, Nowhere),
            ("/", &get, "//sse", true, Nowhere),
            ("/", &get, "/SSE", true, Nowhere),
            ("/", &post, "/messages", false, Messages),
            ("/", &get, "/messages", true, Messages),
            ("/", &post, "/messages/", false, Nowhere),
            ("/", &post, "/messages/x", false, Nowhere),
            ("/", &post, "/message", false, Nowhere),
            ("/", &get, "/metrics", false, Nowhere),
            ("/", &get, "/status", false, Nowhere),
            ("/", &get, "/.well-known/oauth-protected-resource", false, WellKnown),
            ("/", &get, "/.well-known/oauth-protected-resource/mcp", false, WellKnown),
            ("/", &get, "/.well-knownx", false, Nowhere),
            ("/weather", &post, "/weather/mcp", false, Endpoint),
            ("/weather", &post, "/weather", false, Endpoint),
            ("/weather", &post, "/weather/", false, Endpoint),
            ("/weather", &get, "/weather/", false, Person),
            ("/weather", &get, "/weather/sse", true, Stream),
            ("/weather", &post, "/weather/messages", false, Messages),
            ("/weather", &get, "/sse", true, Nowhere),
            ("/weather", &post, "/messages", false, Nowhere),
            ("/weather", &post, "/mcp", false, Nowhere),
            ("/weather", &post, "/", false, Nowhere),
            ("/weather", &post, "/weathermcp", false, Nowhere),
            ("/weather", &post, "/weather/../weather/mcp", false, Nowhere),
            ("/weather", &get, "/weather/.well-known/openid-configuration", false, WellKnown),
        ];
        for (prefix, method, path, event_stream, expected) in cases {
            let found = Paths::new(prefix).find(method, path, || *event_stream);
            assert_eq!(&found, expected, "{method} {path} below {prefix}");
        }
    }

    #[test]
    fn health_is_below_the_root_and_the_prefix() {
        let paths = Paths::new("/weather");
        assert_eq!(health(Some(&paths), "/health"), Some("/health"));
        assert_eq!(health(Some(&paths), "/weather/health/ready"), Some("/health/ready"));
        assert_eq!(health(None, "/health/ready"), Some("/health/ready"));
        assert_eq!(health(Some(&paths), "/healthz"), None);
        assert_eq!(health(Some(&paths), "/health/"), None);
    }
}
