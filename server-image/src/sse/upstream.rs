//! A backend that speaks the older HTTP+SSE transport: its event stream begins with the address to which messages are
//! sent. Only an address on the backend itself is followed.

use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};

use super::event::{Decoder, ENDPOINT};
use crate::body::{self, Body, BodyError};
use crate::headers::{self, Seen, is_event_stream};
use crate::location::Public;
use crate::refusal::Refusal;
use crate::relay::{Outgoing, Relay};

/// An open event stream.
pub struct Upstream {
    /// Path and query for messages.
    pub target: String,
    /// What follows the first event.
    pub rest: Body,
}

/// Opens the backend's stream for a client with these headers.
pub async fn open(
    relay: &Relay,
    mut headers: HeaderMap,
    query: Option<String>,
    seen: &Seen,
) -> Result<Upstream, Refusal> {
    headers.remove(CONTENT_TYPE); // there is no body
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let outgoing = Outgoing { method: Method::GET, query, headers, body: Bytes::new() };
    let response = relay.exchange(&outgoing, seen).await?;
    begin(relay, response, Some(headers::public(&outgoing.headers, seen))).await
}

/// Reads an answer up to the end of its first event. `public` is what the backend was told of its client.
pub async fn begin(relay: &Relay, response: Response<Body>, public: Option<Public<'_>>) -> Result<Upstream, Refusal> {
    if response.status() != StatusCode::OK || !is_event_stream(response.headers()) {
        tracing::info!(status = response.status().as_u16(), "the backend opened no event stream");
        return Err(Refusal::BackendWithoutEndpoint);
    }
    let mut body = response.into_body();
    let mut decoder = Decoder::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::BackendBroken)?.into_data() else { continue };
        let mut left = &data[..];
        while let Some(event) = decoder.decode(&mut left).map_err(|_| Refusal::BackendWithoutEndpoint)? {
            if event.name == ENDPOINT {
                let address = event.data.and_then(|data| String::from_utf8(data).ok());
                let target = address.and_then(|address| relay.resolve(address.trim(), public));
                let target = target.ok_or(Refusal::BackendWithoutEndpoint)?;
                let left = data.slice(data.len() - left.len()..);
                return Ok(Upstream { target, rest: after(left, body) });
            }
        }
    }
    Err(Refusal::BackendWithoutEndpoint)
}

/// Bytes that were read already, and then the body.
pub fn after(begin: Bytes, rest: Body) -> Body {
    let begin = futures::stream::iter((!begin.is_empty()).then(|| Ok::<_, BodyError>(Frame::data(begin))));
    StreamBody::new(begin.chain(body::rest(rest))).boxed_unsync()
}
