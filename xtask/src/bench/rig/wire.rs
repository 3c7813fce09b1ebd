//! Just enough HTTP/1.1 for a load generator and a tiny server: one message at a time, its length told or its body in chunks.

use anyhow::{Context, Result, bail};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// Longest head that is read.
const HEAD_MAXIMUM: usize = 64 * 1024;

/// A message that has arrived whole.
#[derive(Debug)]
pub struct Incoming {
    /// Start line and headers, in lower case from the first header on.
    pub head: String,
    /// The body, its framing taken off.
    pub body: String,
    /// Bytes that it took on the wire.
    pub length: usize,
}

impl Incoming {
    /// The status of an answer; 0 where there is none.
    pub fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
    }
}

/// How the end of a body is told.
enum Framing {
    Length(usize),
    Chunked,
}

/// Reads the head of a message, and what else comes with it. Returns it and its length; `None`: the connection ended before it began.
pub async fn head(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<Option<(String, usize)>> {
    loop {
        if let Some(end) = find(received, b"\r\n\r\n") {
            let head = received.get(..end).unwrap_or_default();
            return Ok(Some((std::str::from_utf8(head).context("a head is ASCII")?.to_owned(), end + 4)));
        }
        if received.len() > HEAD_MAXIMUM {
            bail!("a head without end");
        }
        if stream.read_buf(received).await? == 0 {
            if received.is_empty() {
                return Ok(None);
            }
            bail!("the connection ended within a head");
        }
    }
}

/// Reads one message; what is read beyond it stays in `received`. `None`: the connection ended before a message began.
pub async fn read(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<Option<Incoming>> {
    let Some((head, begin)) = head(stream, received).await? else { return Ok(None) };
    let framing = framing(&head)?;
    loop {
        let rest = received.get(begin..).unwrap_or_default();
        let whole = match framing {
            Framing::Length(length) => rest.get(..length).map(|body| (body.to_vec(), length)),
            Framing::Chunked => unchunk(rest)?,
        };
        if let Some((body, length)) = whole {
            let body = String::from_utf8(body).context("a body is UTF-8")?;
            return Ok(Some(Incoming { head, body, length: begin + length }));
        }
        if stream.read_buf(received).await? == 0 {
            bail!("the connection ended within a body");
        }
    }
}

/// The value of a header.
pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn framing(head: &str) -> Result<Framing> {
    if header(head, "transfer-encoding").is_some() {
        return Ok(Framing::Chunked);
    }
    Ok(Framing::Length(header(head, "content-length").map_or(Ok(0), str::parse).context("a length is a number")?))
}

/// The body and its length on the wire, once its last chunk is there.
fn unchunk(mut rest: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
    let (mut body, mut length) = (Vec::new(), 0);
    loop {
        let Some(line) = find(rest, b"\r\n") else { return Ok(None) };
        let size = std::str::from_utf8(rest.get(..line).unwrap_or_default())?;
        let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)?;
        let (data, end) = (line + 2, line + 2 + size + 2);
        let Some(chunk) = rest.get(data..data + size).filter(|_| rest.len() >= end) else { return Ok(None) };
        body.extend_from_slice(chunk);
        length += end;
        if size == 0 {
            return Ok(Some((body, length)));
        }
        rest = rest.get(end..).unwrap_or_default();
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
