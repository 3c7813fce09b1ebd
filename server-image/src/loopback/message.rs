//! A request to the server, as it is written.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::uri::PathAndQuery;
use http::{HeaderName, Method};

/// A request.
#[derive(Clone, Debug)]
pub struct Message {
    /// Request line and headers, and the empty line behind them.
    pub head: Bytes,
    /// The body.
    pub body: Bytes,
}

/// A request whose headers are being written.
#[derive(Debug)]
pub struct Writing {
    head: Vec<u8>,
    posts: bool,
}

/// What most heads fit into.
const HEAD: usize = 1024;

impl Writing {
    /// A request with this target, in origin form.
    pub fn new(method: &Method, target: &PathAndQuery) -> Self {
        let mut head = Vec::with_capacity(HEAD);
        head.extend_from_slice(method.as_str().as_bytes());
        head.extend_from_slice(b" ");
        head.extend_from_slice(target.as_str().as_bytes());
        head.extend_from_slice(b" HTTP/1.1\r\n");
        Self { head, posts: method == Method::POST }
    }

    /// Adds a header. `Content-Length` is not one of them.
    pub fn header(&mut self, name: &HeaderName, value: &[u8]) {
        self.head.extend_from_slice(name.as_str().as_bytes());
        self.head.extend_from_slice(b": ");
        self.head.extend_from_slice(value);
        self.head.extend_from_slice(b"\r\n");
    }

    /// The request with this body.
    pub fn body(mut self, body: Bytes) -> Message {
        // A POST without a body says so (RFC 9110 section 8.6).
        if self.posts || !body.is_empty() {
            self.header(&CONTENT_LENGTH, body.len().to_string().as_bytes());
        }
        self.head.extend_from_slice(b"\r\n");
        Message { head: self.head.into(), body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_length_told() {
        let cases = [
            (Method::POST, "{}", "POST /mcp?a=1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n"),
            (Method::POST, "", "POST /mcp?a=1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"),
            (Method::GET, "", "GET /mcp?a=1 HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            (Method::DELETE, "", "DELETE /mcp?a=1 HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        ];
        for (method, body, expected) in cases {
            let mut writing = Writing::new(&method, &PathAndQuery::from_static("/mcp?a=1"));
            writing.header(&http::header::HOST, b"localhost");
            let message = writing.body(Bytes::from_static(body.as_bytes()));
            assert_eq!((message.head.as_ref(), message.body.as_ref()), (expected.as_bytes(), body.as_bytes()));
        }
    }
}
