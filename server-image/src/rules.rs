//! One configuration, compiled: what each step asks, in the form in which it asks it. A configuration that does not
//! compile never comes into force.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mooring_contract::Config;
use mooring_contract::config::{self, Identity, ServedOver, SessionMode, Source, Transport};

use crate::clients::Clients;
use crate::host::HostRules;
use crate::loopback::LOOPBACK;
use crate::origin::OriginRules;
use crate::proxies::TrustedProxies;
use crate::relay::Relay;
use crate::route::Paths;
use crate::tools::ToolServer;
use crate::wire::limits::WireLimits;

/// A compiled configuration.
#[derive(Debug)]
pub struct Rules {
    /// Which McpServer this is.
    pub server: Identity,
    /// Step 1.
    pub hosts: HostRules,
    /// Step 2.
    pub origins: OriginRules,
    /// Whose forwarded headers are believed.
    pub proxies: TrustedProxies,
    /// Step 3: whether a request without key is served.
    pub anonymous: bool,
    /// Which Secrets' keys count besides our own.
    pub key_secrets: Vec<String>,
    /// Public paths.
    pub paths: Paths,
    /// Largest request body in bytes.
    pub body_bytes: u64,
    /// Most bytes of request bodies that are held at once, no fewer than one body may have.
    pub body_bytes_total: u64,
    /// From a call's first byte to the end of its answer.
    pub call_timeout: Duration,
    /// For a request's body to arrive.
    pub body_timeout: Duration,
    /// Most requests that are answered at once.
    pub requests: usize,
    /// Most event streams that one caller may hold open.
    pub streams: usize,
    /// What holds for sessions.
    pub sessions: SessionRules,
    /// What holds before a request is understood.
    pub wire: WireLimits,
    /// What is served.
    pub backend: Backend,
    /// Revision of the directory that it was read from.
    pub revision: String,
}

/// What holds for sessions.
#[derive(Debug)]
pub struct SessionRules {
    /// Whether there are any.
    pub mode: SessionMode,
    /// A session that nobody used for so long ends.
    pub idle_timeout: Duration,
    /// Most sessions of this pod.
    pub max_per_pod: usize,
    /// Longest life of a session.
    pub max_age: Duration,
    /// How long sessions live on when the front door is to stop.
    pub drain: Duration,
}

impl From<config::Sessions> for SessionRules {
    fn from(sessions: config::Sessions) -> Self {
        let config::Sessions { mode, idle_timeout_ms, max_per_pod, max_age_ms, drain_ms } = sessions;
        Self {
            mode,
            idle_timeout: Duration::from_millis(idle_timeout_ms),
            max_per_pod: usize::try_from(max_per_pod).unwrap_or(usize::MAX),
            max_age: Duration::from_millis(max_age_ms),
            drain: Duration::from_millis(drain_ms),
        }
    }
}

/// What stands behind the front door.
#[derive(Debug)]
pub enum Backend {
    /// An HTTP MCP server in the same pod.
    Http(Box<Relay>),
    /// The same, where it speaks only the older HTTP+SSE transport.
    Sse(Arc<Relay>),
    /// Declared tools, served here.
    Tools(ToolServer),
}

impl Rules {
    /// Whether the server behind gives session ids to clients, so that they have to be sealed.
    pub fn gives_sessions(&self) -> bool {
        self.sessions.mode == SessionMode::Sticky && !matches!(self.backend, Backend::Tools(_))
    }
}

impl Backend {
    /// The way to the MCP server in the same pod, where there is one, and whether it speaks the older transport.
    pub fn relay(&self) -> Option<(&Relay, bool)> {
        match self {
            Self::Http(relay) => Some((relay, false)),
            Self::Sse(relay) => Some((relay, true)),
            Self::Tools(_) => None,
        }
    }
}

/// Where the front door stands, which the command line says and no configuration changes.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// How clients reach it.
    pub transport: ServedOver,
    /// Whether loopback names are accepted without being listed: in a pod, and where only loopback is listened on.
    pub loopback: bool,
    /// Whether people are pointed to the older transport.
    pub older: bool,
    /// Accepted besides `security.allowedHosts`.
    pub allowed_hosts: Vec<String>,
    /// Accepted besides `security.origins`.
    pub allowed_origins: Vec<String>,
    /// Believed besides `security.trustedProxies`.
    pub trusted_proxies: Vec<String>,
    /// Where it listens itself; port 0 is one that nobody knows before.
    pub listening: Vec<SocketAddr>,
}

/// Looks up an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Rules {
    /// Compiles `config`; the error says which field is wrong.
    pub fn compile(
        config: Config,
        revision: String,
        clients: &Clients,
        environment: Environment<'_>,
        surroundings: &Surroundings,
    ) -> Result<Self, String> {
        config.check().map_err(|error| error.to_string())?;
        let Config { version: _, server, path, mut security, source, limits, sessions } = config;
        security.allowed_hosts.extend_from_slice(&surroundings.allowed_hosts);
        security.origins.extend_from_slice(&surroundings.allowed_origins);
        security.trusted_proxies.extend_from_slice(&surroundings.trusted_proxies);
        let call_timeout = Duration::from_millis(limits.call_timeout_ms);
        let backend = match source {
            Source::Http(_) if surroundings.transport == ServedOver::Stdio => {
                return Err(
                    "source: over stdio only declared tools are served; serve this one with --transport http".into()
                );
            }
            Source::Http(backend) => {
                if surroundings.listening.iter().any(|own| leads_to(backend.port, *own)) {
                    return Err(format!(
                        "source.http.port: this server itself listens on port {}, and would call itself: give one of the two another",
                        backend.port
                    ));
                }
                let relay = Relay::new(&backend)?;
                match backend.transport {
                    Transport::StreamableHttp => Backend::Http(Box::new(relay)),
                    Transport::Sse => Backend::Sse(Arc::new(relay)),
                }
            }
            Source::Tools(tools) => {
                let tools = tools.into_iter().map(|tool| tool.over(surroundings.transport)).collect();
                Backend::Tools(ToolServer::new(&server.name, tools, call_timeout, clients, environment)?)
            }
        };
        Ok(Self {
            hosts: HostRules::new(&security.hosts, &security.allowed_hosts, surroundings.loopback)?,
            origins: OriginRules::new(&security.origins, &security.cors)?,
            proxies: TrustedProxies::new(&security.trusted_proxies)?,
            anonymous: security.anonymous,
            key_secrets: security.key_secrets,
            paths: Paths::new(&path).pointing_to_older(surroundings.older),
            body_bytes: limits.body_bytes,
            body_bytes_total: limits.body_bytes_total.max(limits.body_bytes),
            call_timeout,
            body_timeout: Duration::from_millis(limits.body_timeout_ms),
            requests: usize::try_from(limits.requests).unwrap_or(usize::MAX),
            streams: usize::try_from(limits.streams_per_principal).unwrap_or(usize::MAX),
            sessions: SessionRules::from(sessions),
            wire: WireLimits::from(&limits),
            server,
            backend,
            revision,
        })
    }
}

/// Whether a backend's port on this machine is that of an address that is listened on.
fn leads_to(port: u16, own: SocketAddr) -> bool {
    own.port() == port && (own.ip().is_unspecified() || LOOPBACK.contains(&own.ip()))
}
