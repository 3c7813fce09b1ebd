//! The command line. Every flag of `serve` has an environment variable, so that an image needs no shell. No flag takes a
//! key: arguments can be read by every process of a machine.
//!
//! In a pod the configuration is a set of mounted directories; anywhere else it is one file.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{FalseyValueParser, NonEmptyStringValueParser as NonEmpty, Resettable};
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgGroup, ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
};
use mooring_contract::{Network, config, mount, pod, port};
use tracing_subscriber::EnvFilter;

use crate::log::Format;
use crate::rules::Surroundings;
use crate::session::pod::{Pod, Uid};
use crate::sources::{Local, Mounts, Sources};
use crate::{host, origin};

/// The front door of an MCP server.
#[derive(Debug, Parser)]
#[command(name = "mooring-server", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve an MCP server to local clients over stdio, or over HTTP.
    Serve(Box<Serve>),
    /// Ask a server on this machine whether it is ready: exits 0 if it is, 1 if not.
    Healthcheck(Healthcheck),
}

/// How clients reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// A local client that started this process: standard input and output.
    Stdio,
    /// HTTP.
    Http,
    /// The same, where people are pointed to the older HTTP+SSE transport, for clients that know nothing else.
    Sse,
}

/// Flags of `serve`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("configuration").required(true).multiple(true).args(["config", "config_dir", "kubernetes"]))]
pub struct Serve {
    /// The configuration: a JSON or YAML file with the server's name and what it serves.
    #[arg(long, value_name = "FILE", env = "MOORING_CONFIG", conflicts_with_all = ["config_dir", "kubernetes"])]
    pub config: Option<PathBuf>,
    /// How clients reach it; default is stdio with --config, else http.
    #[arg(long, env = "MOORING_TRANSPORT")]
    pub transport: Option<Transport>,
    /// The same as --transport stdio.
    #[arg(long, conflicts_with = "transport")]
    pub stdio: bool,
    /// Address to listen on, or localhost; default is 127.0.0.1, or, with --kubernetes, every address.
    #[arg(long, env = "MOORING_HOST", value_name = "ADDRESS", value_parser = address)]
    pub host: Option<IpAddr>,
    /// Port to listen on; default is 8080 with --config, else 24080.
    #[arg(long, env = "MOORING_PORT")]
    pub port: Option<u16>,
    /// Name that is accepted as Host besides those of the configuration: name, name:port or name:*. Repeatable, or
    /// separated by commas.
    #[arg(long = "allowed-host", env = "MOORING_ALLOWED_HOSTS", value_name = "HOST", value_delimiter = ',', value_parser = host)]
    pub allowed_hosts: Vec<String>,
    /// Origin whose pages may call besides those of the configuration: scheme://host, or * for any. Repeatable, or
    /// separated by commas.
    #[arg(long = "allowed-origin", env = "MOORING_ALLOWED_ORIGINS", value_name = "ORIGIN", value_delimiter = ',', value_parser = origin)]
    pub allowed_origins: Vec<String>,
    /// Address or network (10.244.0.0/16) of proxies whose X-Forwarded-For, -Proto and -Host are believed besides those of
    /// the configuration. Repeatable, or separated by commas.
    #[arg(long = "trusted-proxy", env = "MOORING_TRUSTED_PROXIES", value_name = "ADDRESS|CIDR", value_delimiter = ',', value_parser = proxy)]
    pub trusted_proxies: Vec<String>,
    /// Keys that may call: a directory with a file for each, or one file. Each is a text of at least 32 printable
    /// characters, or a hashed record. One more may stand in the variable MOORING_API_KEY.
    #[arg(long, env = "MOORING_KEYS", value_name = "PATH", conflicts_with_all = ["config_dir", "kubernetes"])]
    pub keys: Option<PathBuf>,
    /// Seconds that running calls get to end after a stop signal, or the end of input with stdio; default is 30 with
    /// --config, else limits.callTimeout.
    #[arg(long, alias = "drain-seconds", env = "MOORING_SHUTDOWN_TIMEOUT", value_name = "SECONDS", value_parser = seconds)]
    pub shutdown_timeout: Option<Duration>,
    /// Serve in a pod: listen on every address, log JSON.
    #[arg(long, env = "MOORING_KUBERNETES", value_parser = FalseyValueParser::new())]
    pub kubernetes: bool,
    /// In a pod: directory with config.json.
    #[arg(long, env = "MOORING_CONFIG_DIR")]
    pub config_dir: Option<PathBuf>,
    /// In a pod: directory with the server's own key records.
    #[arg(long, env = "MOORING_KEYS_DIR", default_value = mount::KEYS_DIR)]
    pub keys_dir: PathBuf,
    /// In a pod: directory with one directory for each Secret of auth.keySecrets.
    #[arg(long, env = "MOORING_KEY_SECRETS_DIR", default_value = mount::KEY_SECRETS_DIR)]
    pub key_secrets_dir: PathBuf,
    /// In a pod: directory with the token for /status.
    #[arg(long, env = "MOORING_SESSION_DIR", default_value = mount::SESSION_DIR)]
    pub session_dir: PathBuf,
    /// Address and port in one, in place of --host and --port.
    #[arg(long, env = "MOORING_LISTEN", value_name = "ADDRESS:PORT", conflicts_with_all = ["host", "port"])]
    pub listen: Option<SocketAddr>,
    /// Address for probes, metrics and /status; default is none with --config, else port 24082, on loopback or, with
    /// --kubernetes, on every address.
    #[arg(long, env = "MOORING_MANAGEMENT_LISTEN", value_name = "ADDRESS:PORT")]
    pub management_listen: Option<SocketAddr>,
    /// In a pod: its uid. With it, its address and session keys, sessions are sealed and found from every other pod.
    #[arg(long, env = pod::UID_VARIABLE, value_name = "UUID", requires = "pod_ip", conflicts_with = "config")]
    pub pod_uid: Option<Uid>,
    /// In a pod: its address, at which other pods of the same server reach it.
    #[arg(long, env = pod::IP_VARIABLE, value_name = "ADDRESS", requires = "pod_uid", conflicts_with = "config")]
    pub pod_ip: Option<IpAddr>,
    /// Address for other pods of the same server, all of which listen at the same port; default is port 24081 on every
    /// address.
    #[arg(long, env = "MOORING_PEER_LISTEN", value_name = "ADDRESS:PORT", requires = "pod_uid")]
    pub peer_listen: Option<SocketAddr>,
    /// Seconds of service after a stop signal, until whoever routes here has learnt of it; default is 0 with --config,
    /// else 10.
    #[arg(long, env = "MOORING_LINGER_SECONDS", value_name = "SECONDS", value_parser = seconds)]
    pub linger_seconds: Option<Duration>,
    /// How logs look; default is json with --kubernetes, else text.
    #[arg(long, env = "MOORING_LOG_FORMAT")]
    pub log_format: Option<Format>,
    /// Log level, or a filter like mooring_server=debug.
    #[arg(long, env = "MOORING_LOG", default_value = LEVEL, value_parser = level)]
    pub log_level: String,
}

/// Flags of `healthcheck`.
#[derive(Debug, Args)]
pub struct Healthcheck {
    /// What to ask; default is /health/ready of the server on this machine, at the port of MOORING_PORT or 8080.
    #[arg(long, env = "MOORING_HEALTHCHECK_URL", value_parser = NonEmpty::new())]
    pub url: Option<String>,
    /// Where that server listens.
    #[arg(long, env = "MOORING_HOST", value_name = "ADDRESS", value_parser = address)]
    pub host: Option<IpAddr>,
    /// At which port.
    #[arg(long, env = "MOORING_PORT", default_value_t = LOCAL_PORT)]
    pub port: u16,
}

/// Port of a server outside of Kubernetes.
const LOCAL_PORT: u16 = 8080;
/// What says no to a switch, as the parser of switches has it.
const NO: [&str; 6] = ["n", "no", "f", "false", "off", "0"];
/// Default of `--log-level`.
const LEVEL: &str = "info";
/// Default of `--shutdown-timeout` outside of Kubernetes.
const LOCAL_SHUTDOWN: Duration = Duration::from_secs(30);
/// Default of `--linger-seconds` in a pod: ingresses lag.
const LINGER: Duration = Duration::from_secs(10);

/// Every address: `::` takes IPv4, too; a kernel without IPv6 has only the other.
const EVERY: [IpAddr; 2] = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];

/// An IP address. Names are not resolved, because which address is listened on decides which hosts are accepted.
fn address(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        text => text.parse().map_err(|_| "write an IP address, or localhost".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "write a number of seconds".to_owned())
}

/// Part of a list; an empty part is none.
fn part(text: &str, wrong: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let text = text.trim();
    let wrong = if text.is_empty() { None } else { wrong(text) };
    wrong.map_or_else(|| Ok(text.to_owned()), Err)
}

fn host(text: &str) -> Result<String, String> {
    part(text, |text| host::check_allowed(text).err())
}

fn origin(text: &str) -> Result<String, String> {
    part(text, |text| origin::canonical(text).err())
}

fn proxy(text: &str) -> Result<String, String> {
    part(text, |text| text.parse::<Network>().err().map(|error| error.to_string()))
}

/// A level, or a filter. A word alone that is no level would be a filter for a part of that name, and all else were silent.
fn level(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    if text.trim().is_empty() {
        return Ok(LEVEL.to_owned());
    }
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty() && !word.contains(['=', '[']));
    if let Some(wrong) = words.into_iter().find(|word| !is_level(word)) {
        return Err(format!(
            "there is no level {wrong:?}: write {}, or a filter like mooring_server=debug",
            LEVELS.join(", ")
        ));
    }
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// An empty variable is no list with one empty entry.
fn list(values: &[String]) -> Vec<String> {
    values.iter().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()).collect()
}

impl Cli {
    /// What the words ask for. A flag wins over variables, also over those of flags that it cannot stand beside; and a
    /// variable that is empty, or that says no to a switch, counts as none.
    pub fn read(words: &[OsString], environment: impl Fn(&OsStr) -> Option<OsString>) -> Result<Self, clap::Error> {
        let said = without(Self::command(), |_, _| true).ignore_errors(true).try_get_matches_from(words).ok();
        let said = said.as_ref().and_then(|said| said.subcommand()).map(|(_, said)| said);
        let is_said = |arg: &Arg| said.is_some_and(|said| is_said(said, arg));
        let counts_for_nothing = |command: &clap::Command, arg: &Arg| {
            let Some(value) = arg.get_env().and_then(&environment) else { return false };
            let excludes = |one: &Arg, other: &Arg| {
                command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
            };
            let no =
                matches!(arg.get_action(), ArgAction::SetTrue) && NO.iter().any(|no| value.eq_ignore_ascii_case(no));
            let beaten =
                || command.get_arguments().any(|flag| is_said(flag) && (excludes(flag, arg) || excludes(arg, flag)));
            value.is_empty() || no || beaten()
        };
        Self::from_arg_matches(&without(Self::command(), counts_for_nothing).try_get_matches_from(words)?)
    }
}

fn is_said(said: &ArgMatches, arg: &Arg) -> bool {
    let id = arg.get_id().as_str();
    said.try_contains_id(id).is_ok() && said.value_source(id) == Some(ValueSource::CommandLine)
}

/// The same without the variables of some arguments.
fn without(command: clap::Command, dropped: impl Fn(&clap::Command, &Arg) -> bool) -> clap::Command {
    command.mut_subcommands(|subcommand| {
        let with_variable = subcommand.get_arguments().filter(|arg| arg.get_env().is_some());
        let ids: Vec<_> =
            with_variable.filter(|arg| dropped(&subcommand, arg)).map(|arg| arg.get_id().clone()).collect();
        ids.into_iter().fold(subcommand, |command, id| command.mut_arg(id, |arg| arg.env(Resettable::Reset)))
    })
}

impl Serve {
    /// How clients reach it.
    pub fn transport(&self) -> Transport {
        let default = if self.config.is_some() { Transport::Stdio } else { Transport::Http };
        if self.stdio { Transport::Stdio } else { self.transport.unwrap_or(default) }
    }

    /// Where configuration and keys come from.
    pub fn sources(&self) -> Sources {
        match &self.config {
            Some(file) => Sources::Local(Local { file: file.clone(), keys: self.keys.clone() }),
            None => Sources::Mounted(Mounts {
                config: self.config_dir.clone().unwrap_or_else(|| mount::CONFIG_DIR.into()),
                keys: self.keys_dir.clone(),
                key_secrets: self.key_secrets_dir.clone(),
                session: self.session_dir.clone(),
            }),
        }
    }

    /// What no configuration changes.
    pub fn surroundings(&self) -> Surroundings {
        let transport = match self.transport() {
            Transport::Stdio => config::ServedOver::Stdio,
            Transport::Http | Transport::Sse => config::ServedOver::Http,
        };
        let loopback_only = self.public().iter().all(|address| address.ip().is_loopback());
        Surroundings {
            transport,
            loopback: self.config.is_none() || transport == config::ServedOver::Stdio || loopback_only,
            older: self.transport() == Transport::Sse,
            allowed_hosts: list(&self.allowed_hosts),
            allowed_origins: list(&self.allowed_origins),
            trusted_proxies: list(&self.trusted_proxies),
            listening: match transport {
                config::ServedOver::Stdio => Vec::new(),
                config::ServedOver::Http => {
                    let peers = self.pod().map(|(_, addresses)| addresses);
                    [Some(self.public()), self.management(), peers].into_iter().flatten().flatten().collect()
                }
            },
        }
    }

    /// How logs look.
    pub fn format(&self) -> Format {
        self.log_format.unwrap_or(if self.kubernetes { Format::Json } else { Format::Text })
    }

    /// The addresses that are tried in order for the public listener: the first that can be bound is taken.
    pub fn public(&self) -> Vec<SocketAddr> {
        let default = if self.config.is_some() { LOCAL_PORT } else { port::PUBLIC };
        let port = self.port.unwrap_or(default);
        match self.listen.or_else(|| self.host.map(|host| SocketAddr::new(host, port))) {
            Some(address) => vec![address],
            None => self.unspecified(port),
        }
    }

    /// The same for the management listener, which there may be none of.
    pub fn management(&self) -> Option<Vec<SocketAddr>> {
        match self.management_listen {
            Some(address) => Some(vec![address]),
            None if self.config.is_some() => None,
            None => Some(self.unspecified(port::MANAGEMENT)),
        }
    }

    fn unspecified(&self, port: u16) -> Vec<SocketAddr> {
        let addresses: &[IpAddr] = if self.kubernetes { &EVERY } else { &[IpAddr::V4(Ipv4Addr::LOCALHOST)] };
        addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()
    }

    /// The pod, where this runs in one that knows itself, and the addresses for its peers: the first that can be bound.
    pub fn pod(&self) -> Option<(Pod, Vec<SocketAddr>)> {
        let pod = Pod { uid: self.pod_uid?, address: self.pod_ip?.to_canonical() };
        Some((
            pod,
            self.peer_listen.map_or_else(
                || EVERY.map(|address| SocketAddr::new(address, port::PEER)).into(),
                |address| vec![address],
            ),
        ))
    }

    /// Time of service after a stop signal.
    pub fn linger(&self) -> Duration {
        self.linger_seconds.unwrap_or(if self.config.is_some() { Duration::ZERO } else { LINGER })
    }

    /// Time for running calls after that; `call_timeout` is that of the configuration.
    pub fn shutdown_timeout(&self, call_timeout: Option<Duration>) -> Duration {
        let default = if self.config.is_some() { LOCAL_SHUTDOWN } else { call_timeout.unwrap_or_default() };
        self.shutdown_timeout.unwrap_or(default)
    }
}

impl Healthcheck {
    /// The URL that is asked.
    pub fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| {
            // Who listens on every address is asked over loopback.
            let host = self.host.filter(|host| !host.is_unspecified()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            format!("http://{}/health/ready", SocketAddr::new(host, self.port))
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn serve(flags: &[&str]) -> Result<Serve, String> {
        let words = ["mooring-server", "serve"].into_iter().chain(flags.iter().copied());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Serve(serve) => Ok(*serve),
            Command::Healthcheck(_) => unreachable!(),
        }
    }

    #[test]
    fn a_file_means_this_machine_and_directories_mean_a_pod() {
        let local = serve(&["--config", "a.yaml"]).unwrap();
        assert_eq!(local.transport(), Transport::Stdio);
        assert_eq!(local.public(), ["127.0.0.1:8080".parse().unwrap()]);
        assert_eq!(local.management(), None);
        assert_eq!((local.linger(), local.shutdown_timeout(None).as_secs()), (Duration::ZERO, 30));
        assert!(local.surroundings().loopback);

        let pod = serve(&["--kubernetes"]).unwrap();
        assert_eq!(pod.transport(), Transport::Http);
        assert_eq!(pod.public(), ["[::]:24080".parse().unwrap(), "0.0.0.0:24080".parse().unwrap()]);
        assert_eq!(pod.management().unwrap()[0], "[::]:24082".parse().unwrap());
        assert_eq!(pod.linger().as_secs(), 10);
        assert_eq!(pod.shutdown_timeout(Some(Duration::from_secs(600))).as_secs(), 600);
        assert!(pod.surroundings().loopback); // kubectl port-forward

        let directories = serve(&["--config-dir", "/a"]).unwrap();
        assert_eq!(directories.transport(), Transport::Http);
        assert_eq!(directories.public(), ["127.0.0.1:24080".parse().unwrap()]);
    }

    #[test]
    fn loopback_names_are_for_loopback_addresses() {
        for (host, loopback) in [
            ("127.0.0.1", true),
            ("localhost", true),
            ("::1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("10.0.0.5", false),
        ] {
            let serve = serve(&["--config", "a", "--transport", "http", "--host", host, "--port", "1"]).unwrap();
            assert_eq!(serve.surroundings().loopback, loopback, "{host}");
        }
    }

    #[test]
    fn lists_are_repeated_or_separated() {
        let lists = ["--allowed-host", "a:*", "--allowed-host", "b, c:80,", "--allowed-origin", ""];
        let proxies = ["--trusted-proxy", "10.0.0.5,fd00::/8", "--trusted-proxy=10.244.0.0/16"];
        let surroundings = serve(&[&["--config", "a"], &lists[..], &proxies].concat()).unwrap().surroundings();
        assert_eq!(surroundings.allowed_hosts, ["a:*", "b", "c:80"]);
        assert_eq!(surroundings.allowed_origins, [""; 0]);
        assert_eq!(surroundings.trusted_proxies, ["10.0.0.5", "fd00::/8", "10.244.0.0/16"]);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let cases: &[(&[&str], &str)] = &[
            (&[], "--config <FILE>"),
            (&["--config", "a", "--kubernetes"], "cannot be used with"),
            (&["--config", "a", "--config-dir", "b"], "cannot be used with"),
            (&["--config", "a", "--stdio", "--transport", "http"], "cannot be used with"),
            (&["--config", "a", "--transport", "tcp"], "possible values: stdio, http, sse"),
            (&["--config", "a", "--host", "example.com"], "write an IP address, or localhost"),
            (&["--config", "a", "--listen", "127.0.0.1:1", "--port", "1"], "cannot be used with"),
            (&["--config", "a", "--shutdown-timeout=-1"], "write a number of seconds"),
            (&["--config", "a", "--shutdown-timeout=soon"], "write a number of seconds"),
            (&["--kubernetes", "--keys", "a"], "cannot be used with"),
            (&["--config", "a", "--key", "k"], "unexpected argument"),
            (
                &["--config", "a", "--trusted-proxy", "10.0.0.5/8"],
                "'10.0.0.5/8' for '--trusted-proxy <ADDRESS|CIDR>': 10.0.0.5/8 has bits beyond its prefix",
            ),
            (
                &["--config", "a", "--allowed-host", "a,b:1:*"],
                "'b:1:*' for '--allowed-host <HOST>': \"b:1:*\" has two ports",
            ),
            (&["--config", "a", "--allowed-host", "http://a"], "is neither host, host:port nor host:*"),
            (&["--config", "a", "--allowed-origin", "app.example.com"], "\"app.example.com\" is no origin"),
            (
                &["--config", "a", "--log-level", "verbose"],
                "there is no level \"verbose\": write error, warn, info, debug, trace, off, or a filter like",
            ),
            (&["--config", "a", "--log-level", "info,hyper"], "there is no level \"hyper\""),
            (&["--config", "a", "--log-level", "mooring_server=loud"], "error parsing level filter"),
        ];
        for (flags, said) in cases {
            let error = serve(flags).expect_err(said);
            assert!(error.contains(said), "{flags:?}: {error}");
        }
    }

    #[test]
    fn a_level_is_a_word_or_a_filter() {
        let cases =
            [("", "info"), ("WARN", "WARN"), ("info,hyper=debug", "info,hyper=debug"), ("a[b]=debug", "a[b]=debug")];
        for (written, level) in cases {
            assert_eq!(serve(&["--config", "a", "--log-level", written]).unwrap().log_level, level);
        }
    }

    #[test]
    fn a_healthcheck_asks_this_machine() {
        let url = |flags: &[&str]| {
            let words = ["mooring-server", "healthcheck"].into_iter().chain(flags.iter().copied());
            match Cli::try_parse_from(words).unwrap().command {
                Command::Healthcheck(healthcheck) => healthcheck.url(),
                Command::Serve(_) => unreachable!(),
            }
        };
        assert_eq!(url(&[]), "http://127.0.0.1:8080/health/ready");
        assert_eq!(url(&["--host", "0.0.0.0", "--port", "9"]), "http://127.0.0.1:9/health/ready");
        assert_eq!(url(&["--host", "::1"]), "http://[::1]:8080/health/ready");
        assert_eq!(url(&["--url", "http://a/health"]), "http://a/health");
    }
    /// Every flag has a variable, and the documentation both; `--stdio` is short for a value of another.
    #[test]
    fn every_flag_has_a_variable_and_is_documented() {
        let documented = include_str!("../../docs/local.md");
        for command in Cli::command().get_subcommands() {
            for flag in command.get_arguments().filter(|flag| flag.get_long() != Some("stdio")) {
                let name = format!("--{}", flag.get_long().expect("no argument has a place for a name"));
                let variable = flag.get_env().and_then(|variable| variable.to_str()).unwrap_or_default();
                assert!(variable.starts_with("MOORING_"), "{name}: {variable:?}");
                let row = |row: &str| {
                    let words = row.split(|of: char| !(of.is_ascii_alphanumeric() || "-_".contains(of)));
                    let words: Vec<_> = words.collect();
                    row.starts_with('|') && words.contains(&&*name) && words.contains(&variable)
                };
                assert!(documented.lines().any(row), "docs/local.md has no row with {name} and {variable}");
            }
        }
    }
}
