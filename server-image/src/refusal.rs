//! Every answer of the front door that is a refusal or a failure: status, wording, metric label. One wording for each,
//! the same in both eras, never HTML, never with a byte of a credential.
//!
//! The body is a JSON-RPC error. Its code is the HTTP status, outside of the range that JSON-RPC and MCP reserve, except
//! where JSON-RPC itself has a code for it.

use std::borrow::Cow;

use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::body::{Body, full};
use crate::wire::fault::Fault;

/// JSON-RPC: the text is no JSON.
pub const PARSE_ERROR: i64 = -32700;
/// JSON-RPC: the JSON is no request.
pub const INVALID_REQUEST: i64 = -32600;
/// JSON-RPC: no such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// JSON-RPC: the parameters are wrong.
pub const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC: something went wrong on this side.
pub const INTERNAL_ERROR: i64 = -32603;
/// MCP 2026-07-28: headers and body disagree, or a header that the revision demands is missing.
pub const HEADER_MISMATCH: i64 = -32020;
/// MCP 2026-07-28: the revision is not served.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// What the SDKs' servers say of a session that they do not know.
pub const SESSION_NOT_FOUND: i64 = -32001;

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No configuration was ever in force.
    #[error("Not configured yet: the front door waits for its configuration")]
    NotConfigured,
    /// It was told to stop, and has nothing for streams without end any more.
    #[error("Service unavailable: this replica is stopping; try again")]
    Stopping,
    /// No request at all, or one that could be read in two ways.
    #[error(transparent)]
    Wire(#[from] Fault),
    /// `limits.connections` are open.
    #[error("Service unavailable: this replica has no connection left; try again")]
    Crowded,
    /// `limits.requests` are being answered.
    #[error("Service unavailable: this replica answers as many requests as it may; try again")]
    Busy,
    /// `limits.bodyBytesTotal` are held.
    #[error("Service unavailable: this replica holds as many bytes of request bodies as it may; try again")]
    BodiesFull,
    /// `limits.streamsPerPrincipal` are open.
    #[error("Too many requests: this caller has as many event streams open as it may have, {limit}")]
    TooManyStreams {
        /// The limit.
        limit: usize,
    },
    /// Neither `Host` nor `:authority`.
    #[error("Bad request: the Host header is missing")]
    HostMissing,
    /// No name with an optional port.
    #[error("Bad request: the Host header must be a host name with an optional port")]
    HostMalformed,
    /// Two of them, or in conflict with the request target.
    #[error("Bad request: more than one Host")]
    HostAmbiguous,
    /// A name that this server does not answer to.
    #[error(
        "Misdirected request: this server does not answer to that Host; its owner can add it to hosts or allowedHosts"
    )]
    HostUnknown,
    /// A target whose scheme is not one of HTTP (RFC 9110 section 7.4).
    #[error("Misdirected request: this server answers to http and https alone")]
    SchemeUnknown,
    /// A page that may not call.
    #[error("Forbidden: this Origin is not allowed; its owner can add it to origins")]
    OriginUnknown,
    /// No key, a wrong one, an expired one, several: one wording for all.
    #[error("Unauthorized: pass a Bearer token in Authorization, or an API key in x-api-key")]
    Unauthorized,
    /// No such path; the hint names the endpoint.
    #[error("Not found: the MCP endpoint is {endpoint}")]
    NotFound {
        /// Public path of the endpoint.
        endpoint: String,
    },
    /// A session that was never there, has ended, or belongs to somebody else.
    #[error("Session not found")]
    SessionUnknown,
    /// A message of a session that does not say which.
    #[error("Bad request: Mcp-Session-Id must be there once; initialize answers with it")]
    SessionMissing,
    /// As many sessions are kept here as may be.
    #[error("Service unavailable: this replica keeps as many sessions as it may; try again")]
    SessionsFull,
    /// There is no session key yet, so that no id can be given, and none be opened.
    #[error("Service unavailable: this replica cannot seal sessions now; try again")]
    SessionsUnsealed,
    /// A method that the endpoint does not have.
    #[error("Method not allowed: the endpoint takes {allow}")]
    MethodNotAllowed {
        /// The methods that it has.
        allow: &'static str,
    },
    /// A body that is not declared as JSON, or is compressed.
    #[error("Unsupported media type: send application/json without Content-Encoding")]
    MediaType,
    /// Neither JSON nor an event stream is accepted.
    #[error("Not acceptable: accept application/json, text/event-stream, or both")]
    NotAcceptable,
    /// A body above `limits.bodyBytes`.
    #[error("Payload too large: a request body may have {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The body did not arrive within the call timeout.
    #[error("Request timeout: the request body did not arrive in time")]
    BodySlow,
    /// The connection broke within the body.
    #[error("Bad request: the request body broke off")]
    BodyBroken,
    /// Not JSON.
    #[error("Parse error: the request body is not JSON")]
    NotJson,
    /// JSON, but no message that can be understood in one way only.
    #[error("Invalid request: {0}")]
    NotMessage(String),
    /// A header that has one meaning only as long as it has one value.
    #[error("Bad request: more than one {0}")]
    HeaderRepeated(&'static str),
    /// A session id outside of visible ASCII.
    #[error("Bad request: Mcp-Session-Id must be visible ASCII")]
    SessionIllegal,
    /// A modern request whose headers do not say what its body says.
    #[error("Header mismatch: {0} must be there and say the same as the body")]
    HeaderMismatch(Cow<'static, str>),
    /// A modern request without what each must carry.
    #[error("Invalid params: params._meta must have {0}")]
    MetaMissing(&'static str),
    /// A revision that is not served here.
    #[error("Unsupported protocol version; supported are {}", supported.join(", "))]
    VersionUnsupported {
        /// The revision that the request speaks.
        requested: String,
        /// The revisions that are served.
        supported: Vec<String>,
        /// How the asking era spells it.
        code: i64,
    },
    /// Batches exist in one revision only.
    #[error("Invalid request: only protocol version 2025-03-26 has batches")]
    BatchUnknown,
    /// The handshake stands by itself.
    #[error("Invalid request: initialize must not be part of a batch")]
    BatchedInitialize,
    /// One message of a batch is refused, and so all of it.
    #[error("Message {position} of the batch: {refusal}")]
    InBatch {
        /// Counted from 1.
        position: usize,
        /// Why it is refused.
        refusal: Box<Refusal>,
    },
    /// Nothing listens at the backend's port.
    #[error("Service unavailable: the MCP server behind this address is not reachable")]
    BackendAway,
    /// The backend broke off before its answer began.
    #[error("Bad gateway: the MCP server behind this address broke off before it answered")]
    BackendBroken,
    /// It does not speak the older HTTP+SSE transport, as it should.
    #[error("Bad gateway: the MCP server behind this address opened no event stream with an endpoint")]
    BackendWithoutEndpoint,
    /// The id of a session that the backend begins is too long, or there are two.
    #[error(
        "Bad gateway: the MCP server behind this address gave a session two ids, or one that is longer than 2048 bytes"
    )]
    BackendSession,
    /// The pod of a session broke off.
    #[error("Bad gateway: the replica that has this session broke off before it answered")]
    PeerBroken,
    /// The backend sends elsewhere.
    #[error("Bad gateway: the MCP server behind this address redirects to another place")]
    BackendRedirects,
    /// No answer within the call timeout.
    #[error("Gateway timeout: the MCP server behind this address did not answer in time")]
    BackendSlow,
}

impl Refusal {
    /// HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotConfigured
            | Self::Stopping
            | Self::Crowded
            | Self::Busy
            | Self::BodiesFull
            | Self::SessionsFull
            | Self::SessionsUnsealed
            | Self::BackendAway => StatusCode::SERVICE_UNAVAILABLE,
            Self::Wire(fault) => fault.status(),
            Self::TooManyStreams { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::HostMissing
            | Self::HostMalformed
            | Self::HostAmbiguous
            | Self::SessionMissing
            | Self::BodyBroken
            | Self::NotJson
            | Self::NotMessage(_)
            | Self::HeaderRepeated(_)
            | Self::SessionIllegal
            | Self::HeaderMismatch(_)
            | Self::MetaMissing(_)
            | Self::VersionUnsupported { .. }
            | Self::BatchUnknown
            | Self::BatchedInitialize => StatusCode::BAD_REQUEST,
            Self::InBatch { refusal, .. } => refusal.status(),
            Self::HostUnknown | Self::SchemeUnknown => StatusCode::MISDIRECTED_REQUEST,
            Self::OriginUnknown => StatusCode::FORBIDDEN,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound { .. } | Self::SessionUnknown => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodySlow => StatusCode::REQUEST_TIMEOUT,
            Self::BackendBroken
            | Self::BackendWithoutEndpoint
            | Self::BackendSession
            | Self::BackendRedirects
            | Self::PeerBroken => StatusCode::BAD_GATEWAY,
            Self::BackendSlow => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// Metric label, one of few.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotConfigured => "not_configured",
            Self::Stopping => "stopping",
            Self::Wire(fault) => fault.label(),
            Self::Crowded => "connections",
            Self::Busy => "requests",
            Self::BodiesFull => "body_bytes",
            Self::TooManyStreams { .. } => "streams",
            Self::HostMissing | Self::HostMalformed | Self::HostAmbiguous => "host_malformed",
            Self::HostUnknown | Self::SchemeUnknown => "host_unknown",
            Self::OriginUnknown => "origin",
            Self::Unauthorized => "unauthorized",
            Self::NotFound { .. } => "not_found",
            Self::SessionUnknown | Self::SessionMissing => "session",
            Self::SessionsFull => "sessions",
            Self::SessionsUnsealed => "session_keys",
            Self::MethodNotAllowed { .. } => "method",
            Self::MediaType => "media_type",
            Self::NotAcceptable => "not_acceptable",
            Self::TooLarge { .. } => "too_large",
            Self::BodySlow => "body_slow",
            Self::BodyBroken => "body_broken",
            Self::NotJson | Self::NotMessage(_) => "malformed",
            Self::HeaderRepeated(_) | Self::SessionIllegal => "header_malformed",
            Self::HeaderMismatch(_) => "header_mismatch",
            Self::MetaMissing(_) => "meta_missing",
            Self::VersionUnsupported { .. } => "version",
            Self::BatchUnknown | Self::BatchedInitialize => "batch",
            Self::InBatch { refusal, .. } => refusal.label(),
            Self::BackendAway => "backend_away",
            Self::BackendBroken => "backend_broken",
            Self::BackendWithoutEndpoint => "backend_without_endpoint",
            Self::BackendSession => "backend_session",
            Self::PeerBroken => "peer_broken",
            Self::BackendRedirects => "backend_redirects",
            Self::BackendSlow => "backend_slow",
        }
    }

    /// Whether it is the backend's fault.
    pub fn is_backend(&self) -> bool {
        matches!(
            self,
            Self::BackendAway
                | Self::BackendBroken
                | Self::BackendWithoutEndpoint
                | Self::BackendSession
                | Self::BackendRedirects
                | Self::BackendSlow
        )
    }

    fn code(&self) -> i64 {
        match self {
            Self::NotJson => PARSE_ERROR,
            Self::NotMessage(_)
            | Self::HeaderRepeated(_)
            | Self::SessionIllegal
            | Self::BatchUnknown
            | Self::BatchedInitialize => INVALID_REQUEST,
            Self::SessionUnknown => SESSION_NOT_FOUND,
            Self::HeaderMismatch(_) => HEADER_MISMATCH,
            Self::MetaMissing(_) => INVALID_PARAMS,
            Self::VersionUnsupported { code, .. } => *code,
            Self::InBatch { refusal, .. } => refusal.code(),
            other => i64::from(other.status().as_u16()),
        }
    }

    /// What a client can act on.
    fn data(&self) -> Option<Value> {
        match self {
            Self::VersionUnsupported { requested, supported, .. } => {
                Some(serde_json::json!({"supported": supported, "requested": requested}))
            }
            Self::InBatch { refusal, .. } => refusal.data(),
            _ => None,
        }
    }

    /// The JSON-RPC error, for those who wait where they are known.
    pub fn message(&self, waiting: &Waiting) -> String {
        waiting.error(self.code(), &self.to_string(), self.data().as_ref())
    }

    /// The whole answer.
    pub fn into_response(self, waiting: &Waiting) -> Response<Body> {
        let mut response = json(self.status(), self.message(waiting));
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            Self::Unauthorized => {
                // No `resource_metadata`: clients with a fixed key would drop it and begin an OAuth flow.
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Crowded => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Self::NotConfigured
            | Self::Stopping
            | Self::Busy
            | Self::BodiesFull
            | Self::SessionsFull
            | Self::SessionsUnsealed
            | Self::TooManyStreams { .. }
            | Self::BackendAway => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::MethodNotAllowed { allow } => {
                headers.insert(ALLOW, HeaderValue::from_static(allow));
            }
            Self::Wire(_) | Self::TooLarge { .. } | Self::BodySlow | Self::BodyBroken => {
                // What is left of the body is not read: this connection is of no further use.
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

/// The requests that wait for an answer, by their ids.
#[derive(Clone, Debug, Default)]
pub enum Waiting {
    /// None that is known.
    #[default]
    Nobody,
    /// One request.
    One(Box<RawValue>),
    /// The requests of a batch.
    Batch(Vec<Box<RawValue>>),
}

impl Waiting {
    /// The same error for each of them. Where nobody is known to wait, its `id` is null, as JSON-RPC has it.
    pub fn error(&self, code: i64, message: &str, data: Option<&Value>) -> String {
        let one = |id: Option<&RawValue>| error(id, code, message, data);
        match self {
            Self::Nobody => one(None),
            Self::One(id) => one(Some(id)),
            Self::Batch(ids) if ids.is_empty() => one(None),
            Self::Batch(ids) => {
                let errors: Vec<_> = ids.iter().map(|id| one(Some(id))).collect();
                format!("[{}]", errors.join(","))
            }
        }
    }
}

/// A JSON-RPC error message.
pub fn error(id: Option<&RawValue>, code: i64, message: &str, data: Option<&Value>) -> String {
    #[derive(Serialize)]
    struct Message<'a> {
        jsonrpc: &'static str,
        id: Option<&'a RawValue>,
        error: Error<'a>,
    }
    #[derive(Serialize)]
    struct Error<'a> {
        code: i64,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a Value>,
    }
    let message = Message { jsonrpc: "2.0", id, error: Error { code, message, data } };
    serde_json::to_string(&message).unwrap_or_default() // plain data: cannot fail
}

/// An answer with a JSON body.
pub fn json(status: StatusCode, text: String) -> Response<Body> {
    own(status, "application/json", text)
}

/// An answer of our own. A browser takes it for nothing but what it is, and keeps it from the pages of other sites that embed
/// it; those that may read it do so by CORS, which this does not concern. A relayed answer has the headers of its backend.
pub fn own(status: StatusCode, media_type: &'static str, text: String) -> Response<Body> {
    const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wordings() {
        let all = [
            Refusal::NotConfigured,
            Refusal::Stopping,
            Refusal::Wire(Fault::BothFramings),
            Refusal::Wire(Fault::HeadTooLarge { limit: 1 }),
            Refusal::Wire(Fault::UriTooLong { limit: 2 }),
            Refusal::Wire(Fault::HeadSlow),
            Refusal::Wire(Fault::Version),
            Refusal::Crowded,
            Refusal::Busy,
            Refusal::BodiesFull,
            Refusal::TooManyStreams { limit: 3 },
            Refusal::HostMissing,
            Refusal::HostMalformed,
            Refusal::HostAmbiguous,
            Refusal::HostUnknown,
            Refusal::SchemeUnknown,
            Refusal::OriginUnknown,
            Refusal::Unauthorized,
            Refusal::NotFound { endpoint: "/mcp".into() },
            Refusal::SessionUnknown,
            Refusal::SessionMissing,
            Refusal::SessionsFull,
            Refusal::SessionsUnsealed,
            Refusal::MethodNotAllowed { allow: "POST" },
            Refusal::MediaType,
            Refusal::NotAcceptable,
            Refusal::TooLarge { limit: 4 },
            Refusal::BodySlow,
            Refusal::BodyBroken,
            Refusal::NotJson,
            Refusal::NotMessage("two \"id\" keys".into()),
            Refusal::HeaderRepeated("Mcp-Session-Id"),
            Refusal::SessionIllegal,
            Refusal::HeaderMismatch("Mcp-Name".into()),
            Refusal::MetaMissing("io.modelcontextprotocol/protocolVersion"),
            Refusal::VersionUnsupported {
                requested: "2099-01-01".into(),
                supported: vec!["2025-11-25".into(), "2025-06-18".into()],
                code: UNSUPPORTED_VERSION,
            },
            Refusal::BatchUnknown,
            Refusal::BatchedInitialize,
            Refusal::InBatch { position: 2, refusal: Box::new(Refusal::NotMessage("method is missing".into())) },
            Refusal::BackendAway,
            Refusal::BackendBroken,
            Refusal::BackendWithoutEndpoint,
            Refusal::BackendSession,
            Refusal::PeerBroken,
            Refusal::BackendRedirects,
            Refusal::BackendSlow,
        ];
        let lines: Vec<_> = all
            .into_iter()
            .map(|refusal| {
                format!("{} {} {}", refusal.status().as_u16(), refusal.label(), refusal.message(&Waiting::Nobody))
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
