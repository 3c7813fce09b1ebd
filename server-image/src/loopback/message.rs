//! A request to the server, as it is written.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method};

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
    head: BytesMut,
    posts: bool,
}

/// What most heads fit into.
const HEAD: usize = 1024;

impl Writing {
    /// A request with this target, in origin form.
    pub fn new(method: &Method, target: &PathAndQuery) -> Self {
        let mut writing = Self { head: BytesMut::with_capacity(HEAD), posts: method == Method::POST };
        writing.put([method.as_str(), " ", target.as_str(), " HTTP/1.1\r\n"].map(str::as_bytes));
        writing
    }

    /// Adds a header. `Content-Length` is not one of them.
    pub fn header(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.put([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    }

    /// The request with this body.
    pub fn body(mut self, body: Bytes) -> Message {
        // A POST without a body says so (RFC 9110 section 8.6).
        if self.posts || !body.is_empty() {
            self.header(&CONTENT_LENGTH, &HeaderValue::from(body.len()));
        }
        self.put([b"\r\n"]);
        Message { head: self.head.freeze(), body }
    }

    fn put<const N: usize>(&mut self, parts: [&[u8]; N]) {
        for part in parts {
            self.head.put_slice(part);
        }
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
            writing.header(&http::header::HOST, &HeaderValue::from_static("localhost"));
            let message = writing.body(Bytes::from_static(body.as_bytes()));
            assert_eq!((message.head.as_ref(), message.body.as_ref()), (expected.as_bytes(), body.as_bytes()));
        }
    }
}
