//! The command line. Every flag has an environment variable, so that a Deployment can set it either way.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mooring_contract::{Network, NetworkError};
use mooring_plan::Settings;
use mooring_plan::settings::Upgrade;

use crate::command::keys::Expiry;
use crate::telemetry::LogFormat;
use crate::watch::Scope;

/// Mooring runs MCP servers on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "mooring", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator
    Operator(Box<Operator>),
    /// Print the CustomResourceDefinition
    Crd,
    /// Print the objects that the operator would make of McpServers, without a cluster
    Render(Render),
    /// List, create and revoke API keys, with your own rights
    Keys(Keys),
}

/// `mooring operator`.
#[derive(Debug, Args)]
pub struct Operator {
    /// What shapes children.
    #[command(flatten)]
    pub shape: Shape,
    /// Namespaces to serve, separated by commas; without it, all
    #[arg(long, env = "MOORING_NAMESPACES", value_delimiter = ',', value_name = "NAMESPACE,...")]
    pub namespaces: Vec<String>,
    /// How many servers move to a new front-door image at a time
    #[arg(long, env = "MOORING_UPGRADE_PARALLELISM", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub upgrade_parallelism: u16,
    /// Whether several operators agree by a Lease on one that works
    #[arg(long, env = "MOORING_LEADER_ELECT", default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Namespace of the Lease; without it, the operator's own
    #[arg(long, env = "MOORING_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// Name of the Lease
    #[arg(long, env = "MOORING_LEASE_NAME", default_value = "mooring-operator", value_name = "NAME")]
    pub lease_name: String,
    /// Name of this process in the Lease and in events; without it, the host name and a random part
    #[arg(long, env = "MOORING_INSTANCE", value_name = "NAME")]
    pub instance: Option<String>,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, env = "MOORING_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// How many servers are worked on at a time
    #[arg(long, env = "MOORING_CONCURRENCY", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    pub concurrency: u16,
    /// How log lines look
    #[arg(long, env = "MOORING_LOG_FORMAT", value_enum, default_value = "json")]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug or trace, by module where wanted (info,mooring=debug)
    #[arg(long, env = "MOORING_LOG_LEVEL", default_value = "info", value_name = "FILTER")]
    pub log_level: String,
    /// Kubeconfig; without it, the pod's own ServiceAccount or the usual places
    #[arg(long, env = "MOORING_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// What shapes children, for the operator and for `render`.
#[derive(Debug, Args)]
pub struct Shape {
    /// Image of the front door, by tag or digest
    #[arg(long, env = "MOORING_FRONT_DOOR_IMAGE", default_value_t = Settings::default().front_door_image, value_name = "IMAGE")]
    pub front_door_image: String,
    /// When the kubelet pulls the front door: Always, IfNotPresent or Never; without it, Kubernetes decides
    #[arg(long, env = "MOORING_FRONT_DOOR_PULL_POLICY", value_parser = ["Always", "IfNotPresent", "Never"], value_name = "POLICY")]
    pub front_door_pull_policy: Option<String>,
    /// Secret for pulling the front door, which must exist in each server's namespace; may be repeated
    #[arg(
        long = "front-door-pull-secret",
        env = "MOORING_FRONT_DOOR_PULL_SECRET",
        value_delimiter = ',',
        value_name = "SECRET"
    )]
    pub front_door_pull_secrets: Vec<String>,
    /// Servers with an Ingress and no hosts get NAME.NAMESPACE.DOMAIN
    #[arg(long, env = "MOORING_BASE_DOMAIN", value_name = "DOMAIN")]
    pub base_domain: Option<String>,
    /// Proxy whose X-Forwarded-For, -Proto and -Host are believed by front doors of servers that set no trustedProxies: an
    /// address or a network, such as the ingress controller's pods; may be repeated
    #[arg(
        long = "trusted-proxy",
        env = "MOORING_TRUSTED_PROXY",
        value_delimiter = ',',
        value_parser = proxy,
        value_name = "ADDRESS|CIDR"
    )]
    pub trusted_proxies: Vec<String>,
    /// DNS domain of the cluster
    #[arg(long, env = "MOORING_CLUSTER_DOMAIN", default_value_t = Settings::default().cluster_domain, value_name = "DOMAIN")]
    pub cluster_domain: String,
    /// Whether running servers move to a new front-door image by themselves
    #[arg(long, env = "MOORING_UPGRADE_POLICY", value_enum, ignore_case = true, default_value = "Auto")]
    pub upgrade_policy: UpgradePolicy,
}

/// How running servers come to a new front-door image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UpgradePolicy {
    /// By themselves, a few servers at a time.
    #[value(name = "Auto")]
    Auto,
    /// Only when their spec changes.
    #[value(name = "Manual")]
    Manual,
}

/// The text of a network, or an empty one.
fn proxy(text: &str) -> Result<String, NetworkError> {
    let text = text.trim();
    if !text.is_empty() {
        text.parse::<Network>()?;
    }
    Ok(text.to_owned())
}

impl Shape {
    /// As the plan takes it. An empty value, which charts like to set, is none.
    pub fn settings(&self) -> Settings {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let list = |texts: &[String]| texts.iter().filter(|text| !text.is_empty()).cloned().collect();
        Settings {
            front_door_image: self.front_door_image.clone(),
            front_door_pull_policy: given(&self.front_door_pull_policy),
            front_door_pull_secrets: list(&self.front_door_pull_secrets),
            upgrade: match self.upgrade_policy {
                UpgradePolicy::Auto => Upgrade::Auto,
                UpgradePolicy::Manual => Upgrade::Manual,
            },
            base_domain: given(&self.base_domain),
            trusted_proxies: list(&self.trusted_proxies),
            cluster_domain: self.cluster_domain.clone(),
            cluster_assigns_users: false, // asked of the cluster
        }
    }
}

impl Operator {
    /// Which namespaces are served.
    pub fn scope(&self) -> Scope {
        let mut namespaces: Vec<_> = self.namespaces.iter().filter(|name| !name.is_empty()).cloned().collect();
        namespaces.sort();
        namespaces.dedup();
        if namespaces.is_empty() { Scope::Cluster } else { Scope::Namespaces(namespaces) }
    }
}

/// `mooring render`.
#[derive(Debug, Args)]
pub struct Render {
    /// File with McpServers, as YAML or JSON documents; - for standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Namespace of McpServers that name none
    #[arg(short, long, default_value = "default")]
    pub namespace: String,
    /// Controller of the IngressClass, for example traefik.io/ingress-controller: Ingress annotations follow from it
    #[arg(long, value_name = "CONTROLLER")]
    pub ingress_controller: Option<String>,
    /// What shapes children.
    #[command(flatten)]
    pub shape: Shape,
}

/// `mooring keys`.
#[derive(Debug, Args)]
pub struct Keys {
    /// What to do with keys.
    #[command(subcommand)]
    pub command: KeysCommand,
}

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Show the keys of a server
    List {
        /// Which server.
        #[command(flatten)]
        server: Server,
    },
    /// Make a key, and print it once
    Create {
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Name of the key, for people to tell keys apart
        #[arg(long)]
        name: String,
        /// When the key stops to work: a date-time (2027-01-01T00:00:00Z), a date, or a time from now (90d, 12h)
        #[arg(long, value_name = "WHEN")]
        expires: Option<Expiry>,
    },
    /// Make a key stop to work
    Revoke {
        /// Which server.
        #[command(flatten)]
        server: Server,
        /// Name of the key, or the hint that `list` shows
        #[arg(long, alias = "hint", value_name = "NAME|HINT")]
        name: String,
    },
}

/// Which server a command is about.
#[derive(Debug, Args)]
pub struct Server {
    /// Name of the McpServer
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Its namespace; without it, the kubeconfig's
    #[arg(short, long, env = "MOORING_NAMESPACE")]
    pub namespace: Option<String>,
    /// Kubeconfig; without it, the usual places
    #[arg(long, env = "MOORING_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn operator(arguments: &[&str]) -> Operator {
        let cli = Cli::try_parse_from(["mooring", "operator"].iter().chain(arguments)).unwrap();
        match cli.command {
            Command::Operator(operator) => *operator,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_sound_and_every_flag_has_a_variable() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        let operator = command.find_subcommand("operator").unwrap();
        for argument in
            operator.get_arguments().filter(|argument| !["help", "version"].contains(&argument.get_id().as_str()))
        {
            let variable = argument.get_env().unwrap_or_default().to_string_lossy().into_owned();
            let flag = argument.get_long().unwrap().to_uppercase().replace('-', "_");
            assert_eq!(variable, format!("MOORING_{flag}"));
        }
    }

    #[test]
    fn lists_and_empty_values_are_understood() {
        let given = operator(&[
            "--namespaces",
            "b,a,b",
            "--base-domain",
            "",
            "--front-door-pull-secret=x",
            "--front-door-pull-secret=y",
            "--trusted-proxy=10.244.0.0/16,",
            "--trusted-proxy=fd00::5",
        ]);
        assert_eq!(given.scope(), Scope::Namespaces(vec!["a".into(), "b".into()]));
        let settings = given.shape.settings();
        assert_eq!((settings.base_domain, settings.front_door_pull_secrets), (None, vec!["x".into(), "y".into()]));
        assert_eq!(settings.trusted_proxies, ["10.244.0.0/16", "fd00::5"]);
        assert_eq!(operator(&["--trusted-proxy", ""]).shape.settings().trusted_proxies, [""; 0]);
        assert_eq!(operator(&[]).scope(), Scope::Cluster);
        assert_eq!(operator(&["--namespaces", ""]).scope(), Scope::Cluster);
        assert!(!operator(&["--leader-elect", "false"]).leader_elect);
        assert_eq!(operator(&["--upgrade-policy", "manual"]).shape.settings().upgrade, Upgrade::Manual);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for arguments in [
            ["--concurrency", "0"],
            ["--upgrade-parallelism", "0"],
            ["--front-door-pull-policy", "Sometimes"],
            ["--trusted-proxy", "ingress.example.com"],
            ["--trusted-proxy", "10.0.0.5,10.0.0.5/8"],
        ] {
            assert!(Cli::try_parse_from(["mooring", "operator"].iter().chain(&arguments)).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn help_is_this() {
        let mut command = Cli::command();
        command.build();
        let mut text = String::new();
        for path in [&["operator"][..], &["render"], &["keys", "list"], &["keys", "create"], &["keys", "revoke"]] {
            let mut found = &mut command;
            for name in path {
                found = found.find_subcommand_mut(name).unwrap();
            }
            text += &found.render_help().to_string();
            text += "\n";
        }
        insta::assert_snapshot!(text);
    }
}
