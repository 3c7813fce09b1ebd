//! Two real processes of one server, each in a pod of its own, in front of one backend: what happens to a session when
//! its front door is killed, stands still, or is told to stop.

#[cfg(test)]
mod common;
#[cfg(test)]
#[path = "common/http.rs"]
mod http;

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use mooring_contract::SessionKey;
    use mooring_contract::session_key::ENTROPY;

    use super::common::{Running, eventually, program};
    use super::http::{get, send};

    const X: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";

    /// A server with one session; it answers everybody else with 404. Its port.
    fn backend() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || serve(&mut stream));
            }
        });
        port
    }

    fn serve(stream: &mut TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let (mut head, mut length) = (String::new(), 0);
        while reader.read_line(&mut head).ok()? > 2 {
            let line = head.lines().last()?.to_ascii_lowercase();
            length = line.strip_prefix("content-length: ").and_then(|length| length.parse().ok()).unwrap_or(length);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body = String::from_utf8(body).ok()?;
        let initializes = body.contains("initialize");
        let status = if initializes || head.contains(X) { "200 OK" } else { "404 Not Found" };
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}"#;
        let session = if initializes { format!("Mcp-Session-Id: {X}\r\n") } else { String::new() };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{session}Connection: close\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        )
        .ok()
    }

    /// The mounts of a server's pods.
    struct Server {
        mounts: tempfile::TempDir,
        port: u16,
    }

    struct Pod {
        running: Running,
        public: String,
        management: String,
    }

    impl Server {
        fn new(drain_ms: u64) -> Self {
            let mounts = tempfile::tempdir().unwrap();
            for directory in ["config", "session"] {
                std::fs::create_dir(mounts.path().join(directory)).unwrap();
            }
            let config = serde_json::json!({
                "server": {"name": "weather", "uid": "u"},
                "security": {"anonymous": true},
                "source": {"http": {"port": backend(), "path": "/mcp"}},
                "sessions": {"drainMs": drain_ms},
            });
            let key = SessionKey::from_entropy(&[1; ENTROPY], "2026-11-30T00:00:00Z".parse().unwrap());
            std::fs::write(mounts.path().join("config/config.json"), config.to_string()).unwrap();
            std::fs::write(mounts.path().join("session/current"), key.to_json().unwrap()).unwrap();
            let port = TcpListener::bind("127.1.0.1:0").unwrap().local_addr().unwrap().port();
            Self { mounts, port }
        }

        /// A pod of which nobody reads the log behind the lines that are waited for, so that it has none for each request.
        fn pod(&self, number: u8) -> Pod {
            self.logging(number, "info,mooring_server::log=error")
        }

        fn logging(&self, number: u8, level: &str) -> Pod {
            let mut command = program();
            let address = format!("127.1.0.{number}");
            command.args(["serve", "--log-format", "json", "--linger-seconds", "0.2", "--shutdown-timeout", "5"]);
            command.args(["--log-level", level]);
            command.args(["--listen", "127.0.0.1:0", "--management-listen", "127.0.0.1:0", "--pod-ip", &address]);
            command.arg("--pod-uid").arg(format!("00000000-0000-0000-0000-00000000000{number}"));
            command.arg("--peer-listen").arg(format!("{address}:{}", self.port));
            for name in ["config", "session"] {
                command.arg(format!("--{name}-dir")).arg(self.mounts.path().join(name));
            }
            for name in ["keys", "key-secrets"] {
                command.arg(format!("--{name}-dir")).arg(self.mounts.path().join("none"));
            }
            let mut running = Running::start(command);
            let line = running.line("listening");
            let address = |name: &str| line[name].as_str().unwrap().to_owned();
            running.line("enforcing");
            Pod { running, public: address("public"), management: address("management") }
        }
    }

    fn post(public: &str, method: &str, token: &str) -> String {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        let session = if token.is_empty() { String::new() } else { format!("Mcp-Session-Id: {token}\r\n") };
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{session}\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        send(public, &request)
    }

    /// The token in an answer to `initialize`.
    fn token(answer: &str) -> String {
        let token = answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let token = token.unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(token.len(), 115);
        token.to_owned()
    }

    impl Pod {
        fn post(&self, method: &str, token: &str) -> String {
            post(&self.public, method, token)
        }

        fn initialize(&self) -> String {
            token(&self.post("initialize", ""))
        }

        fn call(&self, token: &str) -> u16 {
            self.post("tools/list", token)["HTTP/1.1 ".len()..][..3].parse().unwrap()
        }
    }

    #[test]
    fn a_session_outlives_its_front_door() {
        let server = Server::new(1000);
        let (owner, other) = (server.pod(1), server.pod(2));
        let token = owner.initialize();
        assert_eq!((other.call(&token), owner.call(&token)), (200, 200));
        drop(owner); // killed
        let owner = server.pod(1);
        assert_eq!(owner.call(&token), 200);
        eventually("the other finds it again", || other.call(&token) == 200);
    }

    #[test]
    fn a_front_door_that_stands_still_is_noticed_and_found_again() {
        let server = Server::new(1000);
        let (owner, other, third) = (server.pod(1), server.pod(2), server.pod(3));
        let token = owner.initialize();
        assert_eq!(other.call(&token), 200);
        owner.running.signal("STOP");
        assert_eq!(other.call(&token), 502, "the call had left");
        assert_eq!(third.call(&token), 404, "nobody proved to be the owner");
        owner.running.signal("CONT");
        for pod in [&other, &third, &owner] {
            eventually("it is found again", || pod.call(&token) == 200);
        }
    }

    #[test]
    fn told_to_stop_it_begins_no_session_and_goes_when_the_last_has_ended() {
        let server = Server::new(60_000);
        let (mut owner, other) = (server.pod(1), server.pod(2));
        let token = owner.initialize();
        owner.running.signal("TERM");
        owner.running.line("sessions live on");
        assert!(get(&owner.management, "/health/ready").starts_with("HTTP/1.1 503"));
        let refused = owner.post("initialize", "");
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
        assert_eq!((other.call(&token), owner.call(&token)), (200, 200));
        let end =
            format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nMcp-Session-Id: {token}\r\n\r\n");
        assert!(send(&other.public, &end).starts_with("HTTP/1.1 200"));
        owner.running.line("stopped");
        assert!(owner.running.child.wait().unwrap().success());
        assert_eq!(other.call(&token), 404);
    }

    #[test]
    fn no_token_and_no_id_is_logged() {
        let server = Server::new(1);
        let pods =
            [server.logging(1, "trace"), server.logging(2, "trace")].map(|Pod { mut running, public, .. }| {
                let pid = running.child.id().to_string();
                let log = std::thread::spawn(move || {
                    let mut log = String::new();
                    running.log.read_to_string(&mut log).unwrap();
                    log
                });
                (public, pid, log)
            });
        let [owner, other] = pods.each_ref().map(|(public, ..)| public.as_str());
        let token = token(&post(owner, "initialize", ""));
        let altered = format!("{}0", &token[1..]);
        for (session, expected) in [(token.as_str(), "200"), (altered.as_str(), "404"), (X, "404")] {
            for pod in [owner, other] {
                let answer = post(pod, "tools/list", session);
                assert!(answer[9..].starts_with(expected), "{answer}");
                send(
                    pod,
                    &format!("POST /messages?s={session} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
                );
            }
        }
        for (_, pid, log) in pods {
            assert!(std::process::Command::new("kill").arg(pid).status().unwrap().success());
            let log = log.join().unwrap();
            assert!(log.contains("\"refusal\":\"session\""), "{log}");
            for secret in [&token, &altered, X] {
                let line = log.lines().find(|line| line.contains(secret));
                assert!(line.is_none(), "{line:?}");
            }
        }
    }

    #[test]
    fn sessions_live_on_no_longer_than_they_may() {
        let server = Server::new(100);
        let mut owner = server.pod(1);
        owner.initialize();
        owner.running.signal("TERM");
        owner.running.line("stopped");
        assert!(owner.running.child.wait().unwrap().success());
    }
}
