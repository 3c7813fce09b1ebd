//! The command line. Every flag of `serve` has an environment variable, so that an image needs no shell.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use mooring_contract::{mount, port};

use crate::log::Format;
use crate::reload::Sources;

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
    /// Serve an MCP server over HTTP.
    Serve(Serve),
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Serve in a pod: listen on every address, log JSON.
    #[arg(long)]
    pub kubernetes: bool,
    /// Directory with config.json.
    #[arg(long, env = "MOORING_CONFIG_DIR", default_value = mount::CONFIG_DIR)]
    pub config_dir: PathBuf,
    /// Directory with the server's own key records.
    #[arg(long, env = "MOORING_KEYS_DIR", default_value = mount::KEYS_DIR)]
    pub keys_dir: PathBuf,
    /// Directory with one directory for each Secret of auth.keySecrets.
    #[arg(long, env = "MOORING_KEY_SECRETS_DIR", default_value = mount::KEY_SECRETS_DIR)]
    pub key_secrets_dir: PathBuf,
    /// Directory with the token for /status.
    #[arg(long, env = "MOORING_SESSION_DIR", default_value = mount::SESSION_DIR)]
    pub session_dir: PathBuf,
    /// Address for MCP clients; default is port 24080, on loopback or, with --kubernetes, on every address.
    #[arg(long, env = "MOORING_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Address for probes, metrics and /status; default is port 24082, likewise.
    #[arg(long, env = "MOORING_MANAGEMENT_LISTEN")]
    pub management_listen: Option<SocketAddr>,
    /// Seconds of service after a stop signal, until whoever routes here has learnt of it.
    #[arg(long, env = "MOORING_LINGER_SECONDS", default_value_t = 10.0)]
    pub linger_seconds: f64,
    /// Longest time that running calls get after that; default is limits.callTimeout.
    #[arg(long, env = "MOORING_DRAIN_SECONDS")]
    pub drain_seconds: Option<f64>,
    /// How logs look; default is json with --kubernetes, else text.
    #[arg(long, env = "MOORING_LOG_FORMAT")]
    pub log_format: Option<Format>,
    /// Log level, or a filter like mooring_server=debug.
    #[arg(long, env = "MOORING_LOG", default_value = "info")]
    pub log_level: String,
}

impl Serve {
    /// The directories.
    pub fn sources(&self) -> Sources {
        Sources {
            config: self.config_dir.clone(),
            keys: self.keys_dir.clone(),
            key_secrets: self.key_secrets_dir.clone(),
            session: self.session_dir.clone(),
        }
    }

    /// How logs look.
    pub fn format(&self) -> Format {
        self.log_format.unwrap_or(if self.kubernetes { Format::Json } else { Format::Text })
    }

    /// The addresses that are tried in order for the public listener: the first that can be bound is taken.
    pub fn public(&self) -> Vec<SocketAddr> {
        self.addresses(self.listen, port::PUBLIC)
    }

    /// The same for the management listener.
    pub fn management(&self) -> Vec<SocketAddr> {
        self.addresses(self.management_listen, port::MANAGEMENT)
    }

    fn addresses(&self, given: Option<SocketAddr>, port: u16) -> Vec<SocketAddr> {
        let (six, four) = (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        match given {
            Some(address) => vec![address],
            // `::` takes IPv4, too; a kernel without IPv6 has only the other.
            None if self.kubernetes => vec![SocketAddr::new(six, port), SocketAddr::new(four, port)],
            None => vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)],
        }
    }

    /// Time of service after a stop signal.
    pub fn linger(&self) -> Duration {
        Duration::try_from_secs_f64(self.linger_seconds).unwrap_or_default()
    }

    /// Time for running calls after that, if it was given.
    pub fn drain(&self) -> Option<Duration> {
        self.drain_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}
