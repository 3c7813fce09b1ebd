//! A call that its client breaks off, at any point: before the head is complete, in the body, before the answer, amid it,
//! or by closing its own side only; over HTTP/2 by giving up the stream, or the connection with it.

use std::io;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use futures::stream;
use http::Request;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mooring_tests::front_door_process::KEY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::connection::call;

/// Longest wait for an answer; nothing depends on whether it comes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Breaks off the call number `number`: each version of HTTP and each point has its turn, and each way to close.
pub(crate) async fn abort(host: &str, number: usize) -> Result<()> {
    match (number % 2, number / 2) {
        (0, number) => abort_connection(host, number).await,
        (_, number) => abort_stream(host, number).await,
    }
}

async fn abort_connection(host: &str, number: usize) -> Result<()> {
    let body = call(7, true, 30).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\nAccept: application/json, \
         text/event-stream\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request = head + &body;
    let mut stream = TcpStream::connect(host).await?;
    let (point, lap) = (number % 4, number / 4);
    let length = if point == 0 { lap * 7 % request.len() } else { request.len() };
    let sent = request.as_bytes().get(..length).unwrap_or_default();
    stream.write_all(sent).await?;
    match point {
        0 | 1 => {}
        2 => drop(stream.read(&mut [0; 64]).await), // the answer begins with an event
        _ => {
            stream.shutdown().await?;
            let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        }
    }
    if lap % 2 == 1 {
        stream.set_zero_linger()?; // closes with a reset
    }
    Ok(())
}

async fn abort_stream(host: &str, number: usize) -> Result<()> {
    let (point, lap) = (number % 3, number / 3);
    let (with_connection, moment) = (lap % 2 == 1, Duration::from_millis(lap as u64 % 40));
    let text = call(7, true, 30).to_string();
    let sent = if point == 0 { text.len() / 2 } else { text.len() };
    let piece = Bytes::copy_from_slice(text.as_bytes().get(..sent).unwrap_or_default());
    let pieces = stream::once(async { Ok(Frame::data(piece)) });
    let given_up = stream::once(async move {
        tokio::time::sleep(moment).await;
        Err(io::Error::other("given up")) // resets the stream
    });
    let body = if point == 0 { pieces.chain(given_up).boxed() } else { pieces.boxed() };
    let request = Request::post(format!("http://{host}/mcp"))
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(StreamBody::new(body))?;
    let stream = TokioIo::new(TcpStream::connect(host).await?);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request);
    match point {
        0 if !with_connection => drop(answer.await),
        0 | 1 => drop(tokio::time::timeout(moment / 2, answer).await),
        _ => drop(answer.await?.into_body().frame().await), // the answer begins with an event
    }
    if with_connection {
        connection.abort();
    }
    drop(sender);
    let _ = connection.await; // it has no stream any more
    Ok(())
}
