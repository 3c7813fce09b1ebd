//! A call that its client breaks off, at any point: before the head is complete, in the body, before the answer, amid it,
//! or by closing its own side only.

use std::time::Duration;

use anyhow::Result;
use mooring_tests::front_door_process::KEY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::connection::call;

/// Longest wait for an answer; nothing depends on whether it comes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Breaks off the call number `number`: each point has its turn, and each way to close.
pub(crate) async fn abort(host: &str, number: usize) -> Result<()> {
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
