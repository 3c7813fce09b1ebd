//! `mooring-server` outside of Kubernetes: one file, flags and variables.

#[cfg(test)]
mod common;
#[cfg(test)]
#[path = "common/http.rs"]
mod http;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::path::{Path, PathBuf};
    use std::process::{Child, ChildStderr, Command, Output, Stdio};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use jiff::Timestamp;
    use mooring_contract::SessionKey;
    use mooring_contract::session_key::ENTROPY;
    use serde_json::Value;

    use super::common::{Running, eventually, now, program};
    use super::http::{get, send};

    const KEY: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";
    const OTHER: &str = "f2ad3f2c-1b1e-4a53-9d7c-0c7c3a3b8e11";
    const SECOND: &str = "0f6c1a52-6f5b-4c0e-8a0d-3f1f6d2b7c55";
    const THIRD: &str = "c7b8a9d0-2e4f-4b61-9a3c-5d7e8f901234";

    /// A folder with a configuration.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(config: &str) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            folder.write("weather.yaml", config);
            folder
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Replaces a file as editors do.
        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.path(".new"), text).unwrap();
            std::fs::rename(self.path(".new"), self.path(name)).unwrap();
        }

        fn serve(&self, flags: &[&str]) -> Command {
            let mut command = program();
            command.args(["serve", "--log-format", "json", "--config"]).arg(self.path("weather.yaml"));
            command.args(["--transport", "http", "--port", "0"]).args(flags);
            command
        }
    }

    const CONFIG: &str = "
server: {name: weather}
source: {tools: [{name: here, http: {url: 'http://127.0.0.1:9/'}}]}
";

    /// What a command that must not serve says.
    fn refused(mut command: Command) -> String {
        let Output { status, stderr, .. } = command.output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(!said.contains("listening"), "{said}");
        assert!(!said.contains("keys in force"), "nothing is: {said}");
        said
    }

    fn listening(mut command: Command) -> (Running, String) {
        command.stdout(Stdio::null());
        let mut running = Running::start(command);
        let address = running.line("listening")["public"].as_str().unwrap().to_owned();
        (running, address)
    }

    /// The status of a `ping` under a Host, with a key and more header lines.
    fn ping(address: &str, host: &str, key: &str, more: &str) -> u16 {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nx-api-key: {key}\r\nContent-Type: application/json\r\n{more}\
             Accept: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        send(address, &request).split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_file_and_a_key_are_enough() {
        let folder = Folder::new(CONFIG);
        let mut command = folder.serve(&["--allowed-host", "mcp.example.com:*"]);
        command
            .env("MOORING_API_KEY", KEY)
            .env("MOORING_ALLOWED_ORIGINS", "https://a.example.com,https://b.example.com")
            .env("MOORING_TRUSTED_PROXIES", "10.0.0.5, fd00::/8");
        let (mut running, address) = listening(command);
        let enforcing = running.line("enforcing");
        assert_eq!(enforcing["hosts"], "127.0.0.1:* [::1]:* localhost:* mcp.example.com:*");
        assert_eq!(enforcing["origins"], "https://a.example.com https://b.example.com");
        assert_eq!(enforcing["trusted_proxies"], "10.0.0.5/32 fd00::/8");
        assert_eq!((&enforcing["keys"], &enforcing["auth"]), (&1.into(), &"key".into()));
        assert!(address.starts_with("127.0.0.1:"), "{address}");
        for host in ["localhost", "127.0.0.1:8080", "[::1]:1", "mcp.example.com:443"] {
            assert_eq!(ping(&address, host, KEY, ""), 200, "{host}");
        }
        assert_eq!(ping(&address, "evil.example.com", KEY, ""), 421);
        assert_eq!(ping(&address, "localhost", OTHER, ""), 401);
        assert_eq!(ping(&address, "localhost", KEY, "Origin: https://b.example.com\r\n"), 200);
        assert_eq!(ping(&address, "localhost", KEY, "Origin: https://c.example.com\r\n"), 403);
        running.signal("TERM");
        running.line("stopped");
        assert!(running.child.wait().unwrap().success());
    }

    #[expect(clippy::disallowed_methods, reason = "a test compares a time with that of a log line")]
    fn wall() -> Timestamp {
        Timestamp::now()
    }

    /// Does something, and tells how long this machine let a thread that slept wait for the processor meanwhile.
    fn waits(something: impl FnOnce()) -> Duration {
        const NAP: Duration = Duration::from_millis(5);
        let (working, done) = channel::<()>();
        std::thread::scope(|scope| {
            let napping = scope.spawn(move || {
                let mut late = Duration::ZERO;
                loop {
                    let begin = now();
                    if done.recv_timeout(NAP) == Err(RecvTimeoutError::Disconnected) {
                        return late;
                    }
                    late += begin.elapsed().saturating_sub(NAP);
                }
            });
            something();
            drop(working);
            napping.join().unwrap()
        })
    }

    /// Makes a change, and demands that the log tells within a second of it: by its own time, and a second in which the
    /// machine lets processes run. `message` is what is logged for such a change, and `field` says this `word`.
    fn within_a_second(
        running: &mut Running,
        (message, field, word): (&str, &str, &str),
        change: impl FnOnce(),
        in_force: impl Fn() -> bool,
    ) {
        let mut made = wall();
        let waited = waits(|| {
            change();
            made = wall();
            eventually(word, &in_force);
        });
        // It is told before it is in force.
        let line = loop {
            let line = running.line(message);
            if line[field].to_string().split(['"', ' ', ':']).any(|said| said == word) {
                break line;
            }
        };
        let lag = line["timestamp"].as_str().unwrap().parse::<Timestamp>().unwrap().duration_since(made);
        let allowed = Duration::from_secs(1) + waited;
        assert!(lag < allowed.try_into().unwrap(), "{word} after {lag:?}, of which {waited:?} are the machine's");
    }

    #[test]
    fn changes_take_effect_while_it_runs() {
        let folder = Folder::new(CONFIG);
        let keys = folder.path("keys");
        std::fs::create_dir(&keys).unwrap();
        std::fs::write(keys.join("laptop"), format!("{KEY}\n")).unwrap();
        let (mut running, address) = listening(folder.serve(&["--keys", keys.to_str().unwrap()]));
        for host in ["a.example.com", "b.example.com", "new.example.com"] {
            assert_eq!(ping(&address, host, KEY, ""), 421);
            let enter = || folder.write("weather.yaml", &format!("{CONFIG}security: {{hosts: [{host}]}}\n"));
            within_a_second(&mut running, ("enforcing", "hosts", host), enter, || ping(&address, host, KEY, "") == 200);
        }
        // What is wrong is told, and what was right stays.
        folder.write("weather.yaml", &format!("{CONFIG}security: {{host: [new.example.com]}}\n"));
        assert!(running.line("refused")["error"].as_str().unwrap().contains("host"));
        assert_eq!(ping(&address, "new.example.com", KEY, ""), 200);
        // Keys more, and keys less.
        let file = |key: &str| keys.join(&key[..8]);
        for (after, key) in [("2", OTHER), ("3", SECOND), ("4", THIRD)] {
            assert_eq!(ping(&address, "localhost", key, ""), 401);
            let add = || std::fs::write(file(key), key).unwrap();
            within_a_second(&mut running, ("keys in force", "keys", after), add, || {
                ping(&address, "localhost", key, "") == 200
            });
        }
        for (after, key) in [("3", OTHER), ("2", SECOND), ("1", THIRD)] {
            let remove = || std::fs::remove_file(file(key)).unwrap();
            within_a_second(&mut running, ("keys in force", "keys", after), remove, || {
                ping(&address, "localhost", key, "") == 401
            });
        }
        assert_eq!(ping(&address, "localhost", KEY, ""), 200);
    }

    /// As one that is mounted into a container, it lies elsewhere, and where it is read nothing tells of a change.
    #[test]
    fn a_change_of_which_nothing_tells_takes_effect_within_a_second() {
        let (elsewhere, folder) = (Folder::new(CONFIG), Folder::new(""));
        std::fs::remove_file(folder.path("weather.yaml")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path("weather.yaml"), folder.path("weather.yaml")).unwrap();
        let mut command = folder.serve(&[]);
        command.env("MOORING_API_KEY", KEY);
        let (mut running, address) = listening(command);
        for host in ["a.example.com", "b.example.com", "c.example.com"] {
            let enter = || elsewhere.write("weather.yaml", &format!("{CONFIG}security: {{hosts: [{host}]}}\n"));
            within_a_second(&mut running, ("enforcing", "hosts", host), enter, || ping(&address, host, KEY, "") == 200);
        }
    }

    /// What leads nowhere, or is in the wrong place, is told once and holds up nothing else; not even
    /// where the log is written among the watched files.
    #[test]
    fn what_cannot_be_read_holds_nothing_up() {
        let folder = Folder::new(CONFIG);
        let keys = folder.path("keys");
        std::fs::create_dir(&keys).unwrap();
        let add = |key: &str| std::fs::write(keys.join(&key[..8]), key).unwrap();
        let remove = |key: &str| std::fs::remove_file(keys.join(&key[..8])).unwrap();
        for key in [KEY, OTHER, SECOND] {
            add(key);
        }
        let mut command = folder.serve(&["--keys", keys.to_str().unwrap()]);
        command.stderr(std::fs::File::create(folder.path("log")).unwrap());
        let mut child = command.spawn().unwrap();
        let log = || std::fs::read_to_string(folder.path("log")).unwrap();
        let line = |words: &str| log().lines().find(|line| line.contains(words)).map(str::to_owned);
        eventually("it listens", || line("listening").is_some());
        let listening: Value = serde_json::from_str(&line("listening").unwrap()).unwrap();
        let address = listening["public"].as_str().unwrap();
        let is_gone = |key: &str| ping(address, "localhost", key, "") == 401;

        std::os::unix::fs::symlink("nobody@nowhere.123", keys.join("lost")).unwrap();
        assert!(Command::new("mkfifo").arg(keys.join("pipe")).status().unwrap().success());
        remove(OTHER);
        eventually("a key is revoked beside what cannot be read", || is_gone(OTHER));
        eventually("it is told", || {
            line("lost").is_some_and(|line| line.contains("it is a link to nothing"))
                && line("pipe").is_some_and(|line| line.contains("it is no regular file"))
        });

        std::fs::remove_file(folder.path("weather.yaml")).unwrap();
        std::fs::create_dir(folder.path("weather.yaml")).unwrap();
        eventually("it is told", || line("weather.yaml cannot be read: it is a directory").is_some());
        remove(SECOND);
        eventually("a key is revoked while the configuration cannot be read", || is_gone(SECOND));
        add(OTHER);
        eventually("a key is new while the configuration cannot be read", || !is_gone(OTHER));
        assert!(!is_gone(KEY));
        assert_eq!(log().matches("cannot be read").count(), 1, "{}", log());

        std::fs::remove_dir(folder.path("weather.yaml")).unwrap();
        folder.write("weather.yaml", &format!("{CONFIG}security: {{hosts: [new.example.com]}}\n"));
        eventually("the configuration is back", || ping(address, "new.example.com", KEY, "") == 200);
        terminate(&mut child);
    }

    /// A pipe would be waited for without an end.
    #[test]
    fn a_pipe_is_no_configuration_and_no_key() {
        let folder = Folder::new(CONFIG);
        for name in ["pipe", "key"] {
            assert!(Command::new("mkfifo").arg(folder.path(name)).status().unwrap().success());
        }
        let refused = |mut command: Command| {
            let mut child = command.spawn().unwrap();
            eventually("it ends", || child.try_wait().unwrap().is_some());
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            said
        };
        let mut command = program();
        let said = refused({
            command.args(["serve", "--config"]).arg(folder.path("pipe"));
            command
        });
        let told = format!("Error: {} cannot be read: it is no regular file\n", folder.path("pipe").display());
        assert!(said.ends_with(&told), "{said}");
        let said = refused(folder.serve(&["--keys", folder.path("key").to_str().unwrap()]));
        assert!(said.contains("it is no regular file") && said.contains("it has no keys"), "{said}");
        let mut running = Running::start({
            let mut command = folder.serve(&[]);
            command.env("MOORING_API_KEY", KEY);
            command
        });
        running.line("listening");
        std::fs::rename(folder.path("pipe"), folder.path("weather.yaml")).unwrap();
        running.line("weather.yaml cannot be read: it is no regular file");
        running.signal("TERM");
        running.line("stopped");
    }

    #[test]
    fn one_file_may_hold_the_key() {
        let folder = Folder::new(CONFIG);
        folder.write("key", KEY);
        let (_running, address) = listening(folder.serve(&["--keys", folder.path("key").to_str().unwrap()]));
        assert_eq!(ping(&address, "localhost", KEY, ""), 200);
        folder.write("key", OTHER);
        eventually("the key replaced", || ping(&address, "localhost", OTHER, "") == 200);
        assert_eq!(ping(&address, "localhost", KEY, ""), 401);
    }

    /// All that a command says; a server is asked to end as soon as it listens.
    fn said(command: Command) -> String {
        left(command).1
    }

    /// The same, after the code with which it left.
    fn left(mut command: Command) -> (i32, String) {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let (mut running, mut said) = (Running::start(command), String::new());
        while running.log.read_line(&mut said).unwrap() > 0 {
            if said.ends_with('\n') && said.lines().last().unwrap().contains("listening") {
                running.signal("TERM");
            }
        }
        running.child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        (running.child.wait().unwrap().code().unwrap(), said)
    }

    /// The variables that the help of a command names.
    fn variables(command: &str) -> Vec<String> {
        let output = program().args([command, "--help"]).stdout(Stdio::piped()).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let named = help.split("[env: ").skip(1).map(|rest| rest.split_once('=').unwrap().0);
        named.map(|name| format!("{command} {name}")).collect()
    }

    /// Demands that a command says these words in one line with the variable, and not without.
    fn counts(words: &str, name: &str, value: &str, expected: &[&str]) {
        let command = || {
            let mut command = program();
            command.args(words.split(' '));
            command
        };
        let is_said = |said: &str| said.lines().any(|line| expected.iter().all(|word| line.contains(word)));
        let mut with = command();
        with.env(name, value);
        let (with, without) = (said(with), said(command()));
        assert!(is_said(&with), "{name}: {with}");
        assert!(!is_said(&without), "{name} makes no difference: {without}");
    }

    /// A folder with one configuration for this machine, and with all that is mounted in a pod.
    fn mounts() -> Folder {
        let folder = Folder::new(&format!("{CONFIG}security: {{anonymous: true}}"));
        let config = r#"{"version":1,"server":{"name":"mounted"},"path":"/","source":{"tools":[{"name":"a","http":{"url":"http://127.0.0.1:9/"}}]},"security":{"hosts":["a.example.com"],"anonymous":true,"keySecrets":["vault"]}}"#;
        let session_key = SessionKey::from_entropy(&[7; ENTROPY], "2026-11-30T00:00:00Z".parse().unwrap());
        for (name, text) in [
            ("config/config.json", config),
            ("keys/laptop", KEY),
            ("key-secrets/vault/ci", KEY),
            ("session/current", &session_key.to_json().unwrap()),
        ] {
            std::fs::create_dir_all(folder.path(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path(name), text).unwrap();
        }
        folder
    }

    /// Each alone, in a process of its own.
    #[test]
    fn every_variable_counts() {
        let folder = mounts();
        let path = |name: &str| folder.path(name).display().to_string();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = taken.local_addr().unwrap();
        let (cannot_listen, port) = (format!("cannot listen on [{taken}]"), taken.port().to_string());
        let (file, directory, uid) = (path("weather.yaml"), path("config"), "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10");
        let unsaid = "--log-format=json --transport=http";
        let local = format!("serve {unsaid} --config={file}");
        let listening = format!("{local} --port=0");
        let anywhere =
            format!("serve {unsaid} --listen=127.0.0.1:0 --management-listen=127.0.0.1:0 --linger-seconds=0");
        let mounted = format!("{anywhere} --config-dir={directory}");
        let cases: &[(&str, &str, &str, &[&str])] = &[
            ("MOORING_CONFIG", &file, &format!("serve {unsaid} --port=0"), &["enforcing", r#""server":"weather""#]),
            (
                "MOORING_TRANSPORT",
                "sse",
                &format!("serve --log-format=json --config={file} --port=0"),
                &["enforcing", r#""endpoint":"/sse""#],
            ),
            ("MOORING_HOST", "127.0.0.2", &listening, &["listening", r#""public":"127.0.0.2:"#]),
            ("MOORING_PORT", &port, &local, &[&cannot_listen]),
            ("MOORING_LISTEN", &taken.to_string(), &local, &[&cannot_listen]),
            ("MOORING_MANAGEMENT_LISTEN", "127.0.0.2:0", &listening, &["listening", r#""management":"127.0.0.2:"#]),
            (
                "MOORING_ALLOWED_HOSTS",
                "a.example.com,b.example.com:*",
                &listening,
                &["enforcing", " a.example.com b.example.com:*"],
            ),
            (
                "MOORING_ALLOWED_ORIGINS",
                "https://a.example.com,https://b.example.com",
                &listening,
                &["enforcing", r#""origins":"https://a.example.com https://b.example.com""#],
            ),
            (
                "MOORING_TRUSTED_PROXIES",
                "10.0.0.5,fd00::/8",
                &listening,
                &["enforcing", r#""trusted_proxies":"10.0.0.5/32 fd00::/8""#],
            ),
            ("MOORING_KEYS", &path("keys"), &listening, &["enforcing", r#""keys":1"#]),
            ("MOORING_SHUTDOWN_TIMEOUT", "7.5", &listening, &["waiting for running calls", r#""seconds":7.5"#]),
            ("MOORING_LINGER_SECONDS", "0.25", &listening, &["serving on", r#""seconds":0.25"#]),
            ("MOORING_LOG_FORMAT", "json", &listening.replace("--log-format=json ", ""), &[r#""message":"listening""#]),
            ("MOORING_LOG", "mooring_server=loud", &listening, &["error parsing level filter"]),
            (
                "MOORING_KUBERNETES",
                "true",
                "serve --port=0 --management-listen=127.0.0.1:0 --linger-seconds=0",
                &["listening", r#""management":"127.0.0.1:"#],
            ),
            ("MOORING_CONFIG_DIR", &directory, &anywhere, &["enforcing", r#""server":"mounted""#]),
            ("MOORING_KEYS_DIR", &path("keys"), &mounted, &["key refused", r#""entry":"laptop""#]),
            ("MOORING_KEY_SECRETS_DIR", &path("key-secrets"), &mounted, &["enforcing", r#""keys":1"#]),
            (
                "MOORING_SESSION_DIR",
                &path("session"),
                &format!("{mounted} --pod-uid={uid} --pod-ip=127.0.0.1 --peer-listen=127.0.0.1:0"),
                &["sessions live on"],
            ),
            ("MOORING_POD_UID", uid, &format!("{mounted} --pod-ip=127.0.0.1 --peer-listen={taken}"), &[&cannot_listen]),
            (
                "MOORING_POD_IP",
                "127.0.0.1",
                &format!("{mounted} --pod-uid={uid} --peer-listen={taken}"),
                &[&cannot_listen],
            ),
            (
                "MOORING_PEER_LISTEN",
                &taken.to_string(),
                &format!("{mounted} --pod-uid={uid} --pod-ip=127.0.0.1"),
                &[&cannot_listen],
            ),
            (
                "MOORING_HEALTHCHECK_URL",
                "http://127.0.0.1:1/asked",
                "healthcheck",
                &["not reachable: http://127.0.0.1:1/asked"],
            ),
            ("MOORING_HOST", "127.0.0.2", "healthcheck --port=1", &["not reachable: http://127.0.0.2:1/health/ready"]),
            ("MOORING_PORT", "1", "healthcheck", &["not reachable: http://127.0.0.1:1/health/ready"]),
        ];
        for (name, value, words, expected) in cases {
            counts(words, name, value, expected);
        }
        let command = |words: &str| words.split(' ').next().unwrap().to_owned();
        let mut tried: Vec<_> = cases.iter().map(|(name, _, words, _)| format!("{} {name}", command(words))).collect();
        tried.sort_unstable();
        let mut all = [variables("serve"), variables("healthcheck")].concat();
        all.sort_unstable();
        assert_eq!(tried, all);
    }

    /// What is written beside a variable, the variable, its value, the exit code, and what is said or, where it serves, logged.
    #[test]
    fn a_flag_wins_over_variables_and_an_empty_one_is_none() {
        let folder = mounts();
        let local = format!("serve --log-format=json --config={}", folder.path("weather.yaml").display());
        let http = format!("{local} --transport=http");
        let health = "healthcheck".to_owned();
        let (stdio, listens) = ("serving standard input and output", "listening");
        let mut all: Vec<(String, &str, &str, i32, &str)> = vec![
            (format!("{local} --stdio"), "MOORING_TRANSPORT", "stdio", 0, stdio),
            (format!("{local} --stdio"), "MOORING_TRANSPORT", "http", 0, stdio),
            (format!("{http} --port=0"), "MOORING_KUBERNETES", "false", 0, listens),
            (format!("{http} --port=0"), "MOORING_KUBERNETES", "true", 0, listens),
            (format!("{http} --port=0"), "MOORING_LISTEN", "127.0.0.1:1", 0, listens),
            (format!("{http} --listen=127.0.0.1:0"), "MOORING_PORT", "1", 0, listens),
            (format!("{http} --port=0"), "MOORING_CONFIG_DIR", "/nowhere", 0, listens),
            (format!("{http} --port=0 --log-level="), "MOORING_LOG", "off", 0, listens),
            (format!("{http} --listen=127.0.0.1:0"), "MOORING_TRUSTED_PROXIES", "10.0.0.5/8", 2, "--trusted-proxy"),
            (format!("{http} --listen=127.0.0.1:0"), "MOORING_LOG", "verbose", 2, "there is no level \"verbose\""),
            (health.clone(), "MOORING_PORT", "abc", 1, "invalid value 'abc' for '--port <PORT>'"),
            (health.clone(), "MOORING_HOST", "example.com", 1, "write an IP address, or localhost"),
            ("healthcheck --url".to_owned(), "MOORING_PORT", "1", 1, "a value is required"),
            ("healthcheck --help".to_owned(), "MOORING_PORT", "1", 0, "Usage: mooring-server healthcheck"),
        ];
        let variables = [variables("serve"), variables("healthcheck")].concat();
        let empty = variables.iter().filter_map(|named| named.split_once(' '));
        all.extend(empty.map(|(command, name)| match command {
            "serve" => (format!("{http} --listen=127.0.0.1:0"), name, "", 0, listens),
            _ => {
                ("healthcheck --url=http://127.0.0.1:1/".to_owned(), name, "", 1, "not reachable: http://127.0.0.1:1/")
            }
        }));
        for (words, name, value, code, expected) in all {
            let mut command = program();
            command.args(words.split(' ')).env(name, value);
            let (code_of, said) = left(command);
            assert!(said.contains(expected) && code_of == code, "{words} {name}={value}: {code_of} {said}");
        }
    }

    /// A server in whose log only the first lines are read: the process, the rest of its log, and its address.
    fn unread(mut command: Command) -> (Child, BufReader<ChildStderr>, String) {
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "it does not listen");
            let line: Value = serde_json::from_str(&line).unwrap();
            if let Some(address) = line["public"].as_str() {
                break address.to_owned();
            }
        };
        (child, log, address)
    }

    fn terminate(child: &mut Child) {
        let begin = now();
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        eventually("it ends", || child.try_wait().unwrap().is_some());
        assert!(child.wait().unwrap().success());
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    }

    #[test]
    fn a_log_that_nobody_reads_holds_nothing_up() {
        let folder = Folder::new(CONFIG);
        let mut command = folder.serve(&["--log-level", "trace"]);
        command.env("MOORING_API_KEY", KEY);
        let (mut child, _log, address) = unread(command);
        for _ in 0..1000 {
            assert_eq!(ping(&address, "localhost", OTHER, ""), 401); // more lines than a pipe holds
        }
        assert_eq!(ping(&address, "localhost", KEY, ""), 200);
        terminate(&mut child);
    }

    #[test]
    fn a_log_whose_reader_is_gone_is_no_fault() {
        let folder = Folder::new(CONFIG);
        let mut command = folder.serve(&["--log-level", "debug"]);
        command.env("MOORING_API_KEY", KEY);
        let (mut child, log, address) = unread(command);
        drop(log);
        for _ in 0..3 {
            assert_eq!(ping(&address, "localhost", OTHER, ""), 401);
            assert_eq!(ping(&address, "localhost", KEY, ""), 200);
        }
        terminate(&mut child);
    }

    #[test]
    fn what_would_serve_nobody_does_not_start() {
        let folder = Folder::new(CONFIG);
        let said = refused(folder.serve(&[]));
        for way in ["MOORING_API_KEY", "--keys", "anonymous: true"] {
            assert!(said.contains(way), "{said}");
        }
        let mut weak = folder.serve(&[]);
        weak.env("MOORING_API_KEY", "hunter2");
        let said = refused(weak);
        assert!(said.contains("shorter than 32") && !said.contains("hunter2"), "{said}");

        let mut typo = folder.serve(&["--keys", "/typo"]);
        typo.env("MOORING_API_KEY", KEY);
        assert!(refused(typo).contains("--keys /typo: there is no such file or directory"));
        let mut assigned = folder.serve(&[]);
        assigned.env("MOORING_API_KEY", format!("MOORING_API_KEY={KEY}"));
        let said = refused(assigned);
        assert!(said.contains("NAME=value") && !said.contains(KEY), "{said}");

        let public = ["--host", "0.0.0.0", "--allowed-origin", "https://app.example.com"];
        let said = refused(folder.serve(&public));
        assert!(said.contains("security.hosts") && said.contains("--allowed-host"), "{said}");

        for (flags, is_own) in [
            (["--port", "9100"], true),
            (["--listen", "[::]:9100"], true),
            (["--management-listen", "127.0.0.1:9100"], true),
            (["--listen", "127.0.0.2:9100"], false), // whatever else it is refused for
        ] {
            folder.write("weather.yaml", "server: {name: a}\nsource: {http: {port: 9100, path: /mcp}}");
            let mut command = program();
            command.args(["serve", "--transport", "http", "--allowed-host", "a", "--config"]);
            command.arg(folder.path("weather.yaml")).args(flags);
            let said = refused(command);
            let told = "source.http.port: this server itself listens on port 9100, and would call itself";
            assert_eq!(said.contains(told), is_own, "{flags:?}: {said}");
        }

        folder.write("weather.yaml", "server: {name: a}\nsource: {http: {port: 1}}");
        let said = refused(folder.serve(&[]));
        assert!(said.contains("source.http.path: it is missing"), "{said}");
        std::fs::remove_file(folder.path("weather.yaml")).unwrap();
        let said = refused(folder.serve(&[]));
        assert!(said.contains("weather.yaml is missing"), "{said}");
    }

    #[test]
    fn a_public_address_serves_the_names_that_are_listed() {
        let folder = Folder::new(&format!("{CONFIG}security: {{anonymous: true, origins: [\"*\"]}}"));
        let (mut running, address) =
            listening(folder.serve(&["--host", "0.0.0.0", "--allowed-host", "mcp.internal:*", "--trusted-proxy=::/0"]));
        assert_eq!(running.line("this server is open: ")["level"], "WARN");
        assert_eq!(running.line("this server is open to pages")["level"], "WARN");
        assert_eq!(running.line("everybody is a trusted proxy")["level"], "WARN");
        let address = address.replace("0.0.0.0", "127.0.0.1");
        let call = |host: &str| {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: null\r\nConnection: close\r\n\r\n");
            send(&address, &request)
        };
        assert!(call("mcp.internal").starts_with("HTTP/1.1 200") && call("mcp.internal").contains("allow-origin: *"));
        assert!(call("localhost").starts_with("HTTP/1.1 421"));
    }

    #[test]
    fn the_older_transport_is_pointed_to() {
        let folder = Folder::new(&format!("{CONFIG}security: {{anonymous: true}}"));
        let mut command = program();
        command.args(["serve", "--log-format", "json", "--transport", "sse", "--port", "0", "--config"]);
        command.arg(folder.path("weather.yaml"));
        let (mut running, address) = listening(command);
        assert_eq!(running.line("enforcing")["endpoint"], "/sse");
        assert!(get(&address, "/").contains("Its endpoint is /sse"));
        assert!(get(&address, "/else").contains("the MCP endpoint is /sse"));
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let request = "GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stream)).map(Result::unwrap);
        let told = lines.find(|line| line.starts_with("data: ")).unwrap();
        assert!(told.starts_with("data: /messages?"));
        assert_eq!(ping(&address, "localhost", "", ""), 401); // a key that was presented and fails
    }

    #[test]
    fn running_calls_get_their_time() {
        let api = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = api.local_addr().unwrap().port();
        let tool = format!("{{name: slow, http: {{url: 'http://127.0.0.1:{port}/'}}}}");
        let folder =
            Folder::new(&format!("server: {{name: a}}\nsource: {{tools: [{tool}]}}\nsecurity: {{anonymous: true}}"));
        let (mut running, address) = listening(folder.serve(&["--shutdown-timeout", "20"]));
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#;
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = std::thread::scope(|scope| {
            let answer = scope.spawn(|| send(&address, &request));
            let (mut call, _) = api.accept().unwrap();
            running.signal("TERM");
            running.line("waiting for running calls");
            std::io::Write::write_all(&mut call, b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").unwrap();
            answer.join().unwrap()
        });
        assert!(answer.contains("done"), "{answer}");
        running.line("stopped");
    }

    #[test]
    fn a_healthcheck_tells_by_its_exit_code() {
        let check = |url: &str| {
            let mut command = program();
            let output = command.args(["healthcheck", "--url", url]).stdout(Stdio::piped()).output().unwrap();
            (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
        };
        // A backend that does not answer.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let folder = Folder::new(&format!(
            "server: {{name: a}}\nsource: {{http: {{port: {port}, path: /mcp}}}}\nsecurity: {{anonymous: true}}"
        ));
        let (running, address) = listening(folder.serve(&[]));
        let url = format!("http://{address}/health/ready");
        assert_eq!(check(&url), (1, "not ready\n".into()));
        drop(running);
        let (code, said) = check(&url);
        assert!(code == 1 && said.starts_with("not reachable: http://127.0.0.1:"), "{said}");
        assert_eq!(check("no url").0, 1);
        // Neither of a server that answers otherwise, nor of one that is away, nor of what is no URL.
        let other = listening(folder.serve(&[]));
        for authority in [other.1.as_str(), &address, "127.0.0.1:x", ""] {
            let (code, said) = check(&format!("http://user:s3cr3t@{authority}/x?token=s3cr3t"));
            assert!(code == 1 && said.starts_with("not re") && !said.contains("s3cr3t"), "{said}");
        }
    }

    /// At the start and at a change; each has the secret where another thing belongs.
    #[test]
    fn no_secret_of_a_file_is_told() {
        const SECRET: &str = "s3cr3t-98765";
        let tool = |rest: &str| {
            format!(
                "server: {{name: weather}}\nsource:\n  tools:\n    - name: here\n      http:\n        url: http://127.0.0.1:9/\n{rest}"
            )
        };
        let faults = [
            tool(&format!("        headers: [\"Authorization: Bearer {SECRET}\"]\n")),
            tool(&format!("        headers: {{authorization: {SECRET}}}\n")),
            tool(&format!("        headers: [{{name: 'authorization: {SECRET}', value: x}}]\n")),
            tool(&format!("        headers: [{{name: authorization, value: \"{SECRET}\u{e9}\"}}]\n")),
            tool("        headers: [{name: authorization, value: 98765}]\n"),
            tool(&format!("        headers: [{{name: authorization, value: \"{SECRET}}}]\n")),
            tool(&format!("        headers:\n        - name: authorization\n         value: {SECRET}\n")),
            format!("{CONFIG}\nsecurity: {SECRET}\n"),
            CONFIG.replace("http://", &format!("http://user:{SECRET}@")),
            CONFIG.replace("http://", &format!("{SECRET}://")),
            SECRET.to_owned(),
            format!("{{\"server\": \"{SECRET}\", {SECRET}}}"),
        ];
        let hidden = |said: &str| !said.contains("s3cr3t") && !said.contains("98765");
        let folder = Folder::new(CONFIG);
        let mut command = folder.serve(&[]);
        command.env("MOORING_API_KEY", KEY);
        let (mut running, _address) = listening(command);
        for fault in faults {
            folder.write("weather.yaml", &fault);
            let said = refused(folder.serve(&[])).replace(folder.0.path().to_str().unwrap(), "");
            assert!(hidden(&said) && said.contains("weather.yaml: "), "{fault}: {said}");
            let said = running.line("refused")["error"].as_str().unwrap().to_owned();
            assert!(hidden(&said.replace(folder.0.path().to_str().unwrap(), "")), "{fault}: {said}");
        }
    }

    /// The file of docs/local.md, with what it says of a tool that is otherwise over one transport.
    #[test]
    fn the_file_of_the_docs_is_served() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/local.md");
        let text = std::fs::read_to_string(docs).unwrap();
        let blocks: Vec<_> =
            text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect();
        let folder = Folder::new(&blocks.concat());
        let mut command = folder.serve(&[]);
        command.env("MOORING_API_KEY", KEY);
        let (_running, address) = listening(command);
        assert_eq!(ping(&address, "localhost", KEY, ""), 200);
    }

    /// The compose file as it is written, but for the place of the program and of the mounted folder.
    #[test]
    fn the_compose_file_serves_and_is_healthy() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/compose");
        let text = std::fs::read_to_string(folder.join("compose.yaml")).unwrap();
        let compose: Value = serde_saphyr::from_str(&text).unwrap();
        let service = &compose["services"]["weather"];
        let words = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
        let mounts: Vec<_> = words(&service["volumes"])
            .iter()
            .map(|volume| {
                let parts: Vec<_> = volume.split(':').collect();
                (parts[1].to_owned(), folder.join(parts[0]).display().to_string())
            })
            .collect();
        let environment: BTreeMap<String, String> = serde_json::from_value(service["environment"].clone()).unwrap();
        let variables = |command: &mut Command, port: &str| {
            for (name, value) in &environment {
                command.env(name, if value.starts_with("${MOORING_API_KEY:?") { KEY } else { value });
            }
            command.env("MOORING_PORT", port).env("MOORING_LOG_FORMAT", "json");
        };
        let mut serve = program();
        serve.args(words(&service["command"]).into_iter().map(|word| {
            mounts.iter().fold(word, |word, (inside, outside)| word.replacen(inside.as_str(), outside, 1))
        }));
        variables(&mut serve, "0");
        let (_running, address) = listening(serve);
        let port = address.rsplit(':').next().unwrap();
        assert_eq!(ping(&format!("127.0.0.1:{port}"), &format!("localhost:{port}"), KEY, ""), 200);

        let check = &service["healthcheck"];
        let asks = words(&check["test"]);
        assert_eq!(asks[..2], ["CMD", "/mooring-server"]); // as the Containerfile has it
        assert_eq!(
            (&check["interval"], &check["timeout"], &check["retries"]),
            (&"30s".into(), &"10s".into(), &3.into())
        );
        let healthy = || {
            let mut command = program();
            command.args(&asks[2..]);
            variables(&mut command, port);
            command.status().unwrap().success()
        };
        eventually("healthy", healthy);
        assert!(get(&format!("127.0.0.1:{port}"), "/health").starts_with("HTTP/1.1 200"));
    }
}
