//! A running `mooring-server`.

use std::io::{self, BufRead as _, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A process whose log is read; killed when dropped.
pub struct Running {
    pub child: Child,
    pub log: BufReader<Log>,
    /// Lines that were read while others were looked for.
    passed: Vec<serde_json::Value>,
}

/// A process that says nothing for so long will not say what a test waits for.
const SILENCE: Duration = Duration::from_secs(120);

/// A log that is taken from its process as it comes, whoever reads it and when: in a full pipe the process would wait.
pub struct Log {
    pieces: Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Log {
    fn of(mut stderr: ChildStderr) -> Self {
        let (sender, pieces) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = stderr.read(&mut bytes) {
                let _ = sender.send(bytes[..length].to_vec()); // it is taken even if nobody reads any more
            }
        });
        Self { pieces, piece: io::Cursor::default() }
    }
}

impl Read for Log {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.piece.read(into)? {
            0 => match self.pieces.recv_timeout(SILENCE) {
                Ok(piece) => {
                    self.piece = io::Cursor::new(piece);
                    self.piece.read(into)
                }
                Err(_) => Ok(0), // the process has ended, or says no more
            },
            length => Ok(length),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, with an empty environment.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mooring-server"));
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(Log::of(child.stderr.take().unwrap()));
        Self { child, log, passed: Vec::new() }
    }

    /// The first log line with this message that was not returned before; logs are JSON.
    pub fn line(&mut self, message: &str) -> serde_json::Value {
        let has = |line: &serde_json::Value| line["message"].as_str().unwrap().contains(message);
        if let Some(place) = self.passed.iter().position(has) {
            return self.passed.remove(place);
        }
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the log ended before {message:?}");
            let line = serde_json::from_str(&line).unwrap();
            if has(&line) {
                return line;
            }
            self.passed.push(line);
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }
}

#[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
pub fn now() -> Instant {
    Instant::now()
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
