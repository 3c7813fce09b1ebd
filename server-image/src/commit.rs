//! The one exception to "the front door relays bytes": a `tools/call` of a client that accepts event streams, for which
//! the backend sends no headers for a while, is committed to `200 text/event-stream`, so that proxies on the way and the
//! client see life. Whatever the backend then answers travels as events; a JSON answer becomes one event.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::{Instant, timeout_at};

use crate::body::{self, Body, BodyError, Patience, rest, without_mark};
use crate::clock;
use crate::headers::{ACCEL_BUFFERING, essence, is_coded, is_event_stream};
use crate::refusal::{INTERNAL_ERROR, Refusal, Waiting};
use crate::stream::{COMMENT, Failed, SILENCE};

type Answer = Result<Response<Body>, Refusal>;
type Frames = Result<Frame<Bytes>, BodyError>;

/// An answer that is being waited for.
type Awaited = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Waits for the answer until its deadline, where it has one.
pub async fn until(deadline: Option<Instant>, answer: Awaited) -> Answer {
    match deadline {
        Some(deadline) => timeout_at(deadline, answer).await.unwrap_or(Err(Refusal::BackendSlow)),
        None => answer.await,
    }
}

/// Waits for the answer to those who wait, and commits to an event stream when it takes too long. From then on a refusal is
/// no answer to be made by others: it becomes an event, and `failed` is told.
pub async fn patiently(deadline: Option<Instant>, mut answer: Awaited, waiting: &Waiting, failed: &Failed) -> Answer {
    let silent = clock::instant() + SILENCE;
    if deadline.is_some_and(|deadline| deadline <= silent) {
        return until(deadline, answer).await;
    }
    if let Ok(prompt) = timeout_at(silent, &mut answer).await {
        return prompt;
    }
    let (waiting, failed) = (waiting.clone(), Arc::clone(failed));
    let comment = stream::once(async { Ok(Frame::data(Bytes::from_static(COMMENT))) });
    let late = async move {
        let answer = until(deadline, Box::pin(async { gathered(answer.await?).await })).await;
        if let Err(refusal) = &answer {
            failed(refusal);
        }
        events(answer, &waiting).await
    };
    let rest = stream::once(late).flatten();
    Ok(event_stream(StreamBody::new(comment.chain(rest)).boxed_unsync()))
}

/// An answer that is an event stream.
pub fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// One event with a JSON message.
pub fn event(message: &str) -> Bytes {
    let message = message.replace(['\n', '\r'], " "); // white space between tokens, see `on_one_line`
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

/// A late answer that is to become one event, once all of it has come, or so much that it cannot be held: until the event
/// has begun, something else can be told.
async fn gathered(response: Response<Body>) -> Answer {
    if is_coded(response.headers()) || !is_json(response.headers()) {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    Ok(Response::from_parts(head, body::unbroken(without_mark(body), Patience::Endless).await?))
}

/// The late answer as events.
async fn events(answer: Answer, waiting: &Waiting) -> stream::BoxStream<'static, Frames> {
    let one = |text: String| -> stream::BoxStream<'static, Frames> {
        Box::pin(stream::once(async move { Ok(Frame::data(event(&text))) }))
    };
    match answer {
        Err(refusal) => one(refusal.message(waiting)),
        Ok(response) if is_coded(response.headers()) => {
            let status = response.status();
            let message = format!(
                "The MCP server answered HTTP {status} late and with a Content-Encoding, though Accept-Encoding was \
                 identity: such an answer cannot be passed on as an event"
            );
            one(waiting.error(INTERNAL_ERROR, &message, None))
        }
        Ok(response) if response.status().is_success() && is_event_stream(response.headers()) => {
            Box::pin(rest(without_mark(response.into_body()))) // behind the comment it would be none
        }
        Ok(response) => {
            let (status, is_json, mut body) = (response.status(), is_json(response.headers()), response.into_body());
            let begin = if is_json { body.frame().await } else { None };
            let is_blank = match &begin {
                None => true,
                Some(begin) => body.is_end_stream() && begin.as_ref().is_ok_and(is_white),
            };
            if is_blank {
                let message = format!("The MCP server answered HTTP {status} without a message");
                return one(waiting.error(INTERNAL_ERROR, &message, None));
            }
            let bytes = |text: &'static [u8]| stream::once(async move { Ok(Frame::data(Bytes::from_static(text))) });
            let json = stream::iter(begin).chain(rest(body));
            let json = json.map(|frame| frame.map(|frame| frame.map_data(on_one_line)));
            Box::pin(bytes(b"event: message\ndata: ").chain(json).chain(bytes(b"\n\n")))
        }
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    essence(headers).eq_ignore_ascii_case("application/json")
}

fn is_white(frame: &Frame<Bytes>) -> bool {
    frame.data_ref().is_some_and(|data| data.trim_ascii().is_empty())
}

/// A raw line break in JSON is white space between tokens, never part of a string; in an event it would end the line.
fn on_one_line(data: Bytes) -> Bytes {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    if !data.iter().any(is_break) {
        return data;
    }
    data.iter().map(|byte| if is_break(byte) { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use http::StatusCode;
    use http::header::CONTENT_ENCODING;
    use serde_json::value::RawValue;

    use super::*;
    use crate::body::full;
    use crate::refusal::json;

    fn waiting() -> Waiting {
        Waiting::One(RawValue::from_string("\"a\"".into()).unwrap())
    }

    async fn late(answer: Answer) -> (StatusCode, String) {
        let refused = answer.as_ref().err().cloned();
        let (status, text, told) = told_late(answer).await;
        assert_eq!(told, refused);
        (status, text)
    }

    async fn told_late(answer: Answer) -> (StatusCode, String, Option<Refusal>) {
        let told = Arc::new(Mutex::new(None));
        let telling = Arc::clone(&told);
        let failed: Failed = Arc::new(move |refusal| *telling.lock().unwrap() = Some(refusal.clone()));
        let answer = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            answer
        };
        let response = patiently(None, Box::pin(answer), &waiting(), &failed).await.unwrap();
        assert!(is_event_stream(response.headers()));
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let told = told.lock().unwrap().clone();
        (status, String::from_utf8(bytes.to_vec()).unwrap(), told)
    }

    /// JSON that comes in these pieces, and breaks off.
    fn breaks_off(pieces: Vec<String>) -> Response<Body> {
        let pieces = pieces.into_iter().map(|piece| Ok(Frame::data(Bytes::from(piece))));
        let body = StreamBody::new(stream::iter(pieces).chain(stream::once(async { Err("gone".into()) })));
        json(StatusCode::OK, String::new()).map(|_| body.boxed_unsync())
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_that_breaks_off_is_told_to_where_nothing_of_it_was() {
        let (_, said, told) = told_late(Ok(breaks_off(vec!["{\"jsonrpc\"".into(), ":".into()]))).await;
        insta::assert_snapshot!(said);
        assert_eq!(told, Some(Refusal::BackendBroken));
        // More than is held.
        let long = "x".repeat(40 * 1024);
        let failed: Failed = Arc::new(|_| {});
        let pieces = vec![long.clone(), long.clone()];
        let answer = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok(breaks_off(pieces))
        };
        let (mut body, mut said) =
            (patiently(None, Box::pin(answer), &waiting(), &failed).await.unwrap().into_body(), String::new());
        while let Some(Ok(frame)) = body.frame().await {
            said += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
        assert_eq!(
            said,
            format!(": keep-alive\n\nevent: message\ndata: {long}{long}"),
            "an event that has no end is none"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_travels_as_events() {
        let pretty = "{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": \"a\", \"result\": {}\n}";
        let mut busy = json(StatusCode::SERVICE_UNAVAILABLE, "{\"error\":1}".into());
        busy.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        let mut html = Response::new(full("<html>"));
        *html.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        let coded = |mut response: Response<Body>, coding: &'static str| {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
            response
        };
        let answers = [
            Ok(json(StatusCode::OK, pretty.into())),
            Ok(event_stream(full("id: 1\ndata: x\n\n"))),
            Ok(busy),
            Ok(html),
            Ok(coded(json(StatusCode::OK, "\x1f\u{8b}".into()), "gzip")),
            Ok(coded(event_stream(full("\x1f\u{8b}")), "br")),
            Ok(coded(json(StatusCode::OK, "{}".into()), "Identity")),
            Err(Refusal::BackendSlow),
            Ok(json(StatusCode::OK, String::new())),
            Ok(json(StatusCode::ACCEPTED, "\r\n ".into())),
            Ok(json(StatusCode::OK, "\u{feff}{}".into())),
            Ok(event_stream(full("\u{feff}data: y\n\n"))),
        ];
        let mut lines = Vec::new();
        for answer in answers {
            let (status, text) = late(answer).await;
            assert_eq!(status, StatusCode::OK);
            lines.push(text);
        }
        insta::assert_snapshot!(lines.join("---\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_answer_is_left_alone() {
        let answer = async {
            tokio::time::sleep(Duration::from_secs(14)).await;
            Ok(json(StatusCode::OK, "{\n}".into()))
        };
        let failed: Failed = Arc::new(|_| {});
        let response = patiently(None, Box::pin(answer), &waiting(), &failed).await.unwrap();
        assert_eq!(essence(response.headers()), "application/json");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "{\n}");
    }
}
