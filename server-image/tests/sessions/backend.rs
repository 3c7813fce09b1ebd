//! A server with one session, which keeps what reaches it and answers some of it only when it is told to.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Its only session.
pub const X: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";
/// Bytes of its answer to `large`.
const LARGE: usize = 96 * 1024;

pub struct Backend {
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    asked: Mutex<Vec<String>>,
    allowed: AtomicUsize,
    gone: AtomicUsize,
}

impl Backend {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::<State>::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, state) = (stream.unwrap(), Arc::clone(&shared));
                std::thread::spawn(move || state.serve(&mut stream));
            }
        });
        Self { port, state }
    }

    /// The requests that have a text in head or body.
    pub fn asked(&self, text: &str) -> usize {
        self.state.asked.lock().unwrap().iter().filter(|request| request.contains(text)).count()
    }

    /// Lets one answer to `hold`, or one stream, go on.
    pub fn go(&self) {
        self.state.allowed.fetch_add(1, Ordering::SeqCst);
    }

    /// Answers whose reader left before they could go on.
    pub fn gone(&self) -> usize {
        self.state.gone.load(Ordering::SeqCst)
    }
}

/// What `large` is answered.
pub fn large() -> String {
    (0..).flat_map(|number: u32| format!("{number} ").into_bytes()).map(char::from).take(LARGE).collect()
}

impl State {
    fn serve(&self, stream: &mut TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let (mut head, mut length) = (String::new(), 0);
        while reader.read_line(&mut head).ok()? > 2 {
            let line = head.lines().last()?.to_ascii_lowercase();
            length = line.strip_prefix("content-length: ").and_then(|length| length.parse().ok()).unwrap_or(length);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body = String::from_utf8(body).ok()?;
        self.asked.lock().unwrap().push(format!("{head}{body}"));
        let is = |method: &str| body.contains(&format!(r#""method":"{method}""#));
        if (head.starts_with("GET /mcp") || is("stream")) && head.contains(X) {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: 1\n\n"
            )
            .ok()?;
            self.hold(stream)?;
            return write!(stream, "data: 2\n\n").ok();
        }
        if is("hold") {
            self.hold(stream)?;
        }
        let status = if is("initialize") || head.contains(X) { "200 OK" } else { "404 Not Found" };
        let session = if is("initialize") { format!("Mcp-Session-Id: {X}\r\n") } else { String::new() };
        let answer = match () {
            () if is("large") => large(),
            () => r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}"#.to_owned(),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{session}Connection: close\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        )
        .ok()
    }

    /// Waits until it is told to go on; nothing where the other end leaves before.
    fn hold(&self, stream: &TcpStream) -> Option<()> {
        stream.set_read_timeout(Some(Duration::from_millis(5))).ok()?;
        let take = |allowed: usize| allowed.checked_sub(1);
        while self.allowed.try_update(Ordering::SeqCst, Ordering::SeqCst, take).is_err() {
            let quiet = |error: std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            if !stream.peek(&mut [0]).is_err_and(quiet) {
                self.gone.fetch_add(1, Ordering::SeqCst);
                return None;
            }
        }
        Some(())
    }
}
