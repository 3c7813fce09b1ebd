//! `mooring-server serve` over standard input and output, as a local client starts it.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::process::{ChildStdin, ChildStdout, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::JoinHandle;

    use serde_json::{Value, json};

    use super::common::{Running, program};

    /// A server whose input and output are ours.
    struct Server {
        running: Running,
        input: Option<ChildStdin>,
        output: BufReader<ChildStdout>,
        folder: tempfile::TempDir,
    }

    impl Server {
        fn start(config: &str, flags: &[&str]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("weather.yaml"), config).unwrap();
            let mut command = program();
            command.args(["serve", "--log-format", "json", "--config"]).arg(folder.path().join("weather.yaml"));
            command.args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut running = Running::start(command);
            let input = running.child.stdin.take();
            let output = BufReader::new(running.child.stdout.take().unwrap());
            Self { running, input, output, folder }
        }

        fn send(&mut self, text: &str) {
            writeln!(self.input.as_mut().unwrap(), "{text}").unwrap();
        }

        fn next(&mut self) -> Value {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
        }

        fn ask(&mut self, text: &str) -> Value {
            self.send(text);
            self.next()
        }

        /// Ends the input; what is left of the output, once the process has left in good order.
        fn end(mut self) -> String {
            drop(self.input.take());
            let mut rest = String::new();
            self.output.read_to_string(&mut rest).unwrap();
            assert!(self.running.child.wait().unwrap().success());
            rest
        }
    }

    /// An API, and a configuration with a tool that asks it.
    fn api() -> (TcpListener, String) {
        let api = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = api.local_addr().unwrap().port();
        let config = json!({
            "server": {"name": "weather"},
            "source": {"tools": [{
                "name": "forecast",
                "description": "for everybody",
                "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
                "http": {"url": "http://127.0.0.1:9/"},
                "overrides": {
                    "stdio": {"description": "for this machine", "http": {"url": format!("http://127.0.0.1:{port}/?city={{city}}")}},
                    "http": {"description": "for the network"},
                },
            }]},
            "limits": {"bodyBytes": 2000},
        });
        (api, config.to_string())
    }

    fn answer(api: &mut TcpStream, body: &str) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        write!(api, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    }

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn request(id: &str, method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
    }

    #[test]
    fn both_eras_are_answered() {
        let (api, config) = api();
        let mut server = Server::start(&config, &[]);
        let too_long = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}", "x".repeat(2000));
        let unknown_version = META.replace("2026-07-28", "2027-01-01");
        let incomplete = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let asked = [
            request("1", "initialize", r#""protocolVersion":"2025-11-25","capabilities":{}"#),
            request("2", "initialize", r#""protocolVersion":"1999-01-01""#),
            request("\"a\"", "ping", ""),
            request("3", "tools/list", ""),
            request("4", "server/discover", ""),
            request("5", "server/discover", META),
            request("6", "tools/list", META),
            request("7", "initialize", META),
            request("8", "ping", META),
            request("9", "tools/list", &unknown_version),
            request("10", "tools/list", incomplete),
            request("11", "tools/call", &format!(r#""name":"nothing",{META}"#)),
            "{".to_owned(),
            "7".to_owned(),
            r#"{"jsonrpc":"2.0","id":12,"id":13,"method":"ping"}"#.to_owned(),
            too_long,
            " \t ".to_owned() + &request("14", "ping", "") + "\r",
        ];
        let mut table = String::new();
        for text in &asked {
            let told: String = text.chars().take(120).collect();
            // None of these is answered.
            server.send("");
            server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
            server.send(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#);
            server.send(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#);
            server.send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{{unknown_version}}}}}"#));
            writeln!(table, "{told}\n    {}", server.ask(text)).unwrap();
        }
        for meta in ["", &format!(",{META}")] {
            server.send(&request(
                "1",
                "tools/call",
                &format!(r#""name":"forecast","arguments":{{"city":"Oslo"}}{meta}"#),
            ));
            let (mut call, _) = api.accept().unwrap();
            let mut head = String::new();
            BufReader::new(&call).read_line(&mut head).unwrap();
            assert_eq!(head, "GET /?city=Oslo HTTP/1.1\r\n");
            answer(&mut call, "{\n  \"n\": 12345678901234567890123\n}"); // must not break the line
            let mut line = String::new();
            server.output.read_line(&mut line).unwrap();
            write!(table, "a call\n    {line}").unwrap();
        }
        insta::assert_snapshot!(table);
        assert_eq!(server.end(), "");
    }

    /// Only where the handshake settled on the one revision that has them.
    #[test]
    fn batches_are_for_one_revision() {
        let (_api, config) = api();
        let mut server = Server::start(&config, &[]);
        let batch =
            format!(r#"[{},{{"method":"notifications/x"}},{}]"#, request("1", "ping", ""), request("2", "x", ""));
        let initialize = |version: &str| request("0", "initialize", &format!(r#""protocolVersion":"{version}""#));
        let codes = |answer: &Value| -> Vec<Value> {
            answer.as_array().unwrap().iter().map(|one| json!([one["id"], one["error"]["code"]])).collect()
        };
        for version in ["2025-11-25", "2025-06-18", "2024-11-05"] {
            server.ask(&initialize(version));
            assert_eq!(codes(&server.ask(&batch)), [json!([1, -32600]), json!([2, -32600])], "{version}");
        }
        server.ask(&initialize("2025-03-26"));
        assert_eq!(codes(&server.ask(&batch)), [json!([1, null]), json!([2, -32601])]);
        // One that is refused refuses all.
        let with_initialize = format!("[{},{}]", request("1", "ping", ""), initialize("2025-03-26"));
        assert_eq!(codes(&server.ask(&with_initialize)), [json!([1, -32600]), json!([0, -32600])]);
        let modern = format!("[{},{}]", request("1", "ping", ""), request("2", "tools/list", META));
        assert_eq!(codes(&server.ask(&modern)).len(), 2);
        assert_eq!(server.ask("[]")["error"]["code"], -32600);
        server.send(r#"[{"method":"notifications/x"}]"#);
        assert_eq!(server.end(), "");
    }

    #[test]
    fn calls_run_side_by_side_and_are_cancelled() {
        let (api, config) = api();
        let mut server = Server::start(&config, &["--stdio"]);
        let call = |id: &str| request(id, "tools/call", r#""name":"forecast""#);
        server.send(&call("1"));
        let (mut first, _) = api.accept().unwrap();
        server.send(&call("\"second\""));
        let (mut second, _) = api.accept().unwrap();
        assert_eq!(server.ask(&request("3", "ping", ""))["id"], 3);
        answer(&mut second, "{}");
        assert_eq!(server.next()["id"], "second");
        // An id that is not running, one that is, and again.
        for id in ["\"1\"", "1", "1"] {
            let cancelled =
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
            server.send(&cancelled);
        }
        let mut rest = Vec::new();
        first.read_to_end(&mut rest).unwrap(); // the API is let go
        assert_eq!(server.ask(&request("4", "ping", ""))["id"], 4);
        assert_eq!(server.end(), "");
    }

    /// The other requests of the batch are answered; of a batch without any left there is no answer.
    #[test]
    fn one_request_of_a_batch_is_cancelled() {
        let (api, config) = api();
        let mut server = Server::start(&config, &[]);
        server.ask(&request("0", "initialize", r#""protocolVersion":"2025-03-26""#));
        let call = |id: &str| request(id, "tools/call", r#""name":"forecast""#);
        let cancelled = |id: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
        };
        let let_go = |server: &mut Server, cancel: &str| {
            let (mut asked, _) = api.accept().unwrap();
            server.send(cancel);
            asked.read_to_end(&mut Vec::new()).unwrap();
        };

        server.send(&format!("[{},{}]", call("1"), request("2", "ping", "")));
        let_go(&mut server, &cancelled("1"));
        assert_eq!(server.next(), json!([{"jsonrpc": "2.0", "id": 2, "result": {}}]));

        // The notification may come in a batch, too, and among others.
        server.send(&format!("[{}]", call("3")));
        let_go(&mut server, &format!("[{},{},{}]", cancelled("9"), cancelled("3"), request("4", "ping", "")));
        assert_eq!(server.next()[0]["id"], 4);
        assert_eq!(server.end(), "");
    }

    #[test]
    fn at_the_end_of_input_what_is_running_is_answered() {
        let (api, config) = api();
        let mut server = Server::start(&config, &[]);
        server.send(&request("1", "tools/call", r#""name":"forecast""#));
        let (mut call, _) = api.accept().unwrap();
        drop(server.input.take());
        assert_eq!(server.running.line("end of input")["running"], 1);
        answer(&mut call, "{}");
        assert_eq!(server.next()["id"], 1);
        assert_eq!(server.end(), "");
    }

    #[test]
    fn it_does_not_wait_for_ever() {
        let (api, config) = api();
        let call = request("1", "tools/call", r#""name":"forecast""#);
        let mut server = Server::start(&config, &["--shutdown-timeout", "0.05"]);
        server.send(&call);
        let _call = api.accept().unwrap();
        drop(server.input.take());
        assert_eq!(server.running.line("left with calls still running")["running"], 1);
        assert_eq!(server.end(), "");

        // Asked to stop while its input is open, and again.
        let mut server = Server::start(&config, &[]);
        server.send(&call);
        let _call = api.accept().unwrap();
        server.running.signal("TERM");
        server.running.line("end of input");
        server.running.signal("TERM");
        server.running.line("left at once");
        assert!(server.running.child.wait().unwrap().success());

        // Nobody reads any more.
        let mut server = Server::start(&config, &[]);
        server.running.line("serving standard input");
        drop(std::mem::replace(&mut server.output, BufReader::new(devoid())));
        server.send(&request("2", "ping", ""));
        assert!(server.running.child.wait().unwrap().success());
    }

    /// Sends lines for as long as they are taken; returns how many were once no more are.
    fn flood(mut input: ChildStdin, lines: impl Iterator<Item = String> + Send + 'static) -> (usize, JoinHandle<()>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let flood = std::thread::spawn(move || {
            for line in lines {
                if writeln!(input, "{line}").is_err() {
                    return; // the server has left
                }
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let (mut last, mut polls) = (0, 0);
        super::common::eventually("no more is taken", || {
            let now = sent.load(Ordering::SeqCst);
            polls = if now > 0 && now == last { polls + 1 } else { 0 };
            last = now;
            polls == 50
        });
        (last, flood)
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_either() {
        let (_api, config) = api();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["limits"]["requests"] = 5.into();
        let mut server = Server::start(&config.to_string(), &[]);
        let pings = (0..50_000).map(|id| request(&id.to_string(), "ping", ""));
        let (sent, flood) = flood(server.input.take().unwrap(), pings);
        assert!(sent < 10_000, "{sent} pings are held");
        // Nothing is lost: once it reads, all is answered.
        let mut ids: Vec<_> = (0..50_000).map(|_| server.next()["id"].as_u64().unwrap()).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..50_000));
        flood.join().unwrap();
        assert_eq!(server.end(), "");
    }

    #[test]
    fn as_many_requests_run_at_once_as_may() {
        let (api, config) = api();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["limits"]["requests"] = 2.into();
        let mut server = Server::start(&config.to_string(), &[]);
        for id in ["1", "2"] {
            server.send(&request(id, "tools/call", r#""name":"forecast""#));
        }
        server.send(&request("3", "ping", ""));
        let (mut one, _) = api.accept().unwrap();
        let (mut other, _) = api.accept().unwrap();
        answer(&mut one, "{}");
        assert!([1, 2].contains(&server.next()["id"].as_u64().unwrap()));
        assert_eq!(server.next()["id"], 3);
        answer(&mut other, "{}");
        server.next();
        assert_eq!(server.end(), "");
    }

    #[test]
    fn a_signal_ends_it_while_nobody_reads() {
        let (_api, config) = api();
        for line in ["oops".to_owned(), request("1", "ping", "")] {
            let mut server = Server::start(&config, &["--shutdown-timeout", "0.2"]);
            let (_, flood) = flood(server.input.take().unwrap(), std::iter::repeat(line));
            server.running.signal("TERM");
            super::common::eventually("it ends", || server.running.child.try_wait().unwrap().is_some());
            assert!(server.running.child.wait().unwrap().success());
            flood.join().unwrap();
        }
    }

    /// The output of a process that has none.
    fn devoid() -> ChildStdout {
        let mut child = std::process::Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        child.wait().unwrap();
        child.stdout.take().unwrap()
    }

    #[test]
    fn other_sources_are_told_where_they_belong() {
        let server = Server::start("server: {name: a}\nsource: {http: {port: 1, path: /mcp}}", &[]);
        let Server { mut running, .. } = server;
        assert_eq!(running.child.wait().unwrap().code(), Some(1));
        let mut said = String::new();
        running.log.read_to_string(&mut said).unwrap();
        assert!(said.contains("only declared tools") && said.contains("--transport http"), "{said}");
    }

    #[test]
    fn an_edit_takes_effect_in_an_open_session() {
        let (_api, config) = api();
        let mut server = Server::start(&config, &[]);
        let list = request("1", "tools/list", "");
        assert_eq!(server.ask(&list)["result"]["tools"][0]["description"], "for this machine");
        let file = server.folder.path().join("weather.yaml");
        std::fs::write(file, config.replace("for this machine", "for another")).unwrap();
        super::common::eventually("the edit", || {
            server.ask(&list)["result"]["tools"][0]["description"] == "for another"
        });
    }
}
