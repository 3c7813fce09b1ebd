//! The real process: its command line, its sockets, and its end.

#[cfg(test)]
mod common;
#[cfg(test)]
#[path = "common/http.rs"]
mod http;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::common::{Running, eventually, now, program};
    use super::http::{get, send};

    const KEY: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";

    /// A front door with mounted directories.
    struct Process {
        running: Running,
        public: String,
        management: String,
        mounts: tempfile::TempDir,
    }

    impl Process {
        fn start(anonymous: bool, extra: &[&str]) -> Self {
            let mounts = tempfile::tempdir().unwrap();
            let path = |name: &str| mounts.path().join(name);
            for directory in ["config", "keys", "key-secrets/vault", "session"] {
                std::fs::create_dir_all(path(directory)).unwrap();
            }
            let config = serde_json::json!({
                "version": 1,
                "server": {"namespace": "demo", "name": "weather"},
                "path": "/",
                "security": {"hosts": ["mcp.example.com"], "anonymous": anonymous, "keySecrets": ["vault"]},
                "source": {"tools": [{"name": "a", "http": {"url": "http://127.0.0.1:9/"}}]},
                "limits": {"bodyBytes": 1024, "callTimeoutMs": 1000},
            });
            std::fs::write(path("config/config.json"), config.to_string()).unwrap();
            std::fs::write(path("key-secrets/vault/ci"), KEY).unwrap();
            let mut command = program();
            command.arg("serve").args(["--log-format", "json"]).args(extra);
            command.args(["--listen", "127.0.0.1:0", "--management-listen", "127.0.0.1:0"]);
            for (flag, directory) in [
                ("--config-dir", "config"),
                ("--keys-dir", "keys"),
                ("--key-secrets-dir", "key-secrets"),
                ("--session-dir", "session"),
            ] {
                command.arg(flag).arg(path(directory));
            }
            let mut running = Running::start(command);
            let line = running.line("listening");
            let address = |name: &str| line[name].as_str().unwrap().to_owned();
            Self { running, public: address("public"), management: address("management"), mounts }
        }

        fn line(&mut self, message: &str) -> serde_json::Value {
            self.running.line(message)
        }
    }

    #[test]
    fn it_says_what_it_enforces_and_stops_in_order() {
        let mut process = Process::start(false, &["--linger-seconds", "0.3", "--drain-seconds", "5"]);
        let enforcing = process.line("enforcing");
        assert_eq!(enforcing["hosts"], "127.0.0.1:* [::1]:* localhost:* mcp.example.com:*");
        assert_eq!(
            (&enforcing["origins"], &enforcing["auth"], &enforcing["keys"]),
            (&"none".into(), &"key".into(), &1.into())
        );
        assert_eq!((&enforcing["body_bytes"], &enforcing["endpoint"]), (&1024.into(), &"/mcp".into()));
        assert!(get(&process.public, "/health").starts_with("HTTP/1.1 200"));
        eventually("ready", || get(&process.management, "/health/ready").starts_with("HTTP/1.1 200"));
        process.running.signal("TERM");
        process.line("serving on");
        let begin = now();
        while get(&process.management, "/health/ready").starts_with("HTTP/1.1 200") {
            assert!(begin.elapsed() < Duration::from_secs(1), "still ready");
        }
        let answer = get(&process.public, "/health");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
        process.line("stopped");
        assert!(process.running.child.wait().unwrap().success());
    }

    #[test]
    fn no_credential_is_logged() {
        let mut process = Process::start(false, &["--log-level", "trace", "--linger-seconds", "0"]);
        let wrong = "f2ad3f2c-1b1e-4a53-9d7c-0c7c3a3b8e11";
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        for key in [KEY, wrong] {
            let requests = [
                ("/mcp", format!("Authorization: Bearer {key}\r\n"), ping.to_owned()),
                ("/mcp", format!("x-api-key: {key}\r\n"), ping.to_owned()),
                ("/mcp", format!("x-api-key: {key}\r\nAuthorization: Basic {key}\r\n"), ping.to_owned()),
                ("/mcp", format!("x-api-key: {KEY}\r\nMcp-Session-Id: {key}\r\nCookie: {key}\r\n"), ping.to_owned()),
                ("/mcp", format!("x-api-key: {KEY}\r\nOrigin: {key}\r\n"), ping.to_owned()),
                (
                    "/mcp",
                    format!("x-api-key: {KEY}\r\n"),
                    format!(r#"{{"jsonrpc":"2.0","id":"{key}","method":"ping"}}"#),
                ),
                ("/mcp", format!("x-api-key: {KEY}\r\n"), format!("{{{key}")),
                (&*format!("/mcp?_key={key}"), String::new(), ping.to_owned()),
                (&*format!("/{key}"), format!("x-api-key: {KEY}\r\n"), ping.to_owned()),
            ];
            for (path, headers, body) in requests {
                let length = body.len();
                let request = format!(
                    "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
                     Content-Length: {length}\r\n{headers}\r\n{body}"
                );
                send(&process.public, &request);
            }
        }
        process.running.signal("TERM");
        let mut log = String::new();
        process.running.log.read_to_string(&mut log).unwrap();
        assert!(log.contains("\"refusal\":\"unauthorized\"") && log.contains("\"caller\":\"vault/ci\""), "{log}");
        for key in [KEY, wrong] {
            let line = log.lines().find(|line| line.contains(key));
            assert!(line.is_none(), "{line:?}");
        }
    }

    #[test]
    fn a_request_is_logged_with_the_id_that_is_echoed() {
        let mut process = Process::start(false, &[]);
        for header in ["X-Request-ID: trace-7\r\n", ""] {
            let request = format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}Content-Length: 0\r\n\r\n"
            );
            let answer = send(&process.public, &request);
            let echoed = answer.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
            assert_eq!(echoed == "trace-7", !header.is_empty(), "{answer}");
            let logged = process.line("request");
            assert_eq!((&logged["request_id"], &logged["status"]), (&echoed.into(), &401.into()));
        }
    }

    #[test]
    fn an_open_server_is_warned_of() {
        let mut process = Process::start(true, &[]);
        assert_eq!(process.line("this server is open")["level"], "WARN");
        // A second signal does not wait.
        process.running.signal("TERM");
        process.line("serving on");
        process.running.signal("INT");
        process.line("stopp");
    }

    #[test]
    fn a_missing_configuration_is_told_and_the_last_stays() {
        let mut process = Process::start(true, &[]);
        process.line("enforcing");
        std::fs::remove_file(process.mounts.path().join("config/config.json")).unwrap();
        assert_eq!(process.line("config.json is missing")["level"], "WARN");
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\nConnection: close";
        let answer = send(&process.public, &format!("{head}\r\nContent-Length: {}\r\n\r\n{ping}", ping.len()));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Forty bodies of 4 MiB that never end.
    #[test]
    #[cfg(target_os = "linux")]
    fn uploads_that_are_held_take_no_more_memory_than_they_may() {
        const BODY: usize = 4 * 1024 * 1024;
        const TOTAL: u64 = 4 * BODY as u64;
        let mut process = Process::start(true, &[]);
        process.line("enforcing");
        let file = process.mounts.path().join("config/config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        config["limits"] = serde_json::json!({"bodyBytes": BODY, "bodyBytesTotal": TOTAL});
        std::fs::write(&file, config.to_string()).unwrap();
        eventually("the limits hold", || process.line("enforcing")["body_bytes_total"] == TOTAL);
        let status = format!("/proc/{}/status", process.running.child.id());
        let highest = || {
            let text = std::fs::read_to_string(&status).unwrap();
            let kib = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")).unwrap();
            kib.trim().parse::<u64>().unwrap() * 1024
        };
        let metric = |name: &str| {
            let text = get(&process.management, "/metrics");
            let value = text.lines().find_map(|line| line.strip_prefix("mooring_server_")?.strip_prefix(name));
            value.map_or(0, |value| value.trim().parse::<u64>().unwrap())
        };
        let before = highest();
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let bytes = [format!("{head}Content-Length: {BODY}\r\n\r\n").into_bytes(), vec![b' '; BODY - 1]].concat();
        let mut uploads = Vec::new();
        for _ in 0..40 {
            let mut upload = TcpStream::connect(&process.public).unwrap();
            let _ = upload.write_all(&bytes); // the connection of one that is refused is closed
            uploads.push(upload);
        }
        eventually("all that have no room are refused", || metric("refusals_total{reason=\"body_bytes\"}") >= 36);
        let (counted, taken) = (metric("body_bytes"), highest() - before);
        assert!(0 < counted && counted <= TOTAL, "{counted} bytes counted");
        assert!(taken < TOTAL + TOTAL, "{taken} bytes taken");
        drop(uploads);
        eventually("all is given back", || metric("body_bytes") == 0);
    }

    #[test]
    fn a_wrong_flag_is_told() {
        let output = program().args(["serve", "--kubernetes", "--listen", "here"]).output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8(output.stderr).unwrap().contains("--listen"));
    }
}
