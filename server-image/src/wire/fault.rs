//! What can be wrong with a request before HTTP has even read it. Names the fault, its status and its wording; what
//! happens then is not known here.

use http::StatusCode;

/// Why the bytes on a connection are no request that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// RFC 9112 section 3: not `method SP target SP version`.
    #[error("Bad request: the request line is malformed")]
    RequestLine,
    /// A version of HTTP that is neither 1.0, 1.1 nor 2.
    #[error("HTTP version not supported: use HTTP/1.1 or HTTP/2")]
    Version,
    /// RFC 9112 section 2.2: a recipient may take LF for CRLF, and two that differ in this see two requests.
    #[error("Bad request: a line of the head does not end with CRLF")]
    BareLineFeed,
    /// RFC 9110 section 5.5: CR, NUL and their kin.
    #[error("Bad request: a control character in the head")]
    Control,
    /// RFC 9112 section 5.2.
    #[error("Bad request: a header is folded over several lines")]
    Folded,
    /// RFC 9112 section 5.1: no token, or whitespace before the colon.
    #[error("Bad request: the name of a header is malformed")]
    Name,
    /// RFC 9112 section 6.3: not one decimal number.
    #[error("Bad request: Content-Length must be given once, as a number")]
    Length,
    /// RFC 9112 section 6.1: anything but `chunked`, or in HTTP/1.0.
    #[error("Bad request: Transfer-Encoding may only be chunked, given once, in HTTP/1.1")]
    Coding,
    /// RFC 9112 section 6.3: an attempt at smuggling, most likely.
    #[error("Bad request: Content-Length and Transfer-Encoding exclude each other")]
    BothFramings,
    /// RFC 9112 section 7.1.
    #[error("Bad request: a chunk of the body is malformed")]
    Chunk,
    /// More chunk extensions than anybody needs.
    #[error("Bad request: the chunk extensions are too long")]
    Extensions,
    /// RFC 9112 section 7.1.2.
    #[error("Bad request: the trailers are malformed or too long")]
    Trailer,
    /// `limits.headerBytes`.
    #[error("Request header fields too large: the head of a request may have {limit} bytes")]
    HeadTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// `limits.headerCount`.
    #[error("Request header fields too large: a request may have {limit} headers")]
    TooManyHeaders {
        /// The limit.
        limit: usize,
    },
    /// `limits.uriBytes`.
    #[error("URI too long: the target of a request may have {limit} bytes")]
    UriTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// `limits.headerTimeout`.
    #[error("Request timeout: the head of the request did not arrive in time")]
    HeadSlow,
}

impl Fault {
    /// HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::HeadTooLarge { .. } | Self::TooManyHeaders { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UriTooLong { .. } => StatusCode::URI_TOO_LONG,
            Self::HeadSlow => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Metric label, one of few.
    pub fn label(self) -> &'static str {
        match self {
            Self::HeadTooLarge { .. } | Self::TooManyHeaders { .. } => "head_too_large",
            Self::UriTooLong { .. } => "uri_too_long",
            Self::HeadSlow => "head_slow",
            _ => "framing",
        }
    }
}
