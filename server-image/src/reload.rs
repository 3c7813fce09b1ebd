//! Brings what is mounted into force, at start and whenever the kubelet swaps a directory. A configuration that is not
//! understood never replaces one that was; keys are taken entry by entry. It reads files and decides nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mooring_contract::{Config, mount};
use notify::{EventKind, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use crate::directory::{self, Entries};
use crate::door::Door;
use crate::keys::KeySet;
use crate::rules::{Backend, Rules};

/// The mounted directories.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The ConfigMap.
    pub config: PathBuf,
    /// The server's own keys.
    pub keys: PathBuf,
    /// One directory for each Secret of `auth.keySecrets`.
    pub key_secrets: PathBuf,
    /// The token for `/status`.
    pub session: PathBuf,
}

/// What was read last.
#[derive(Default, PartialEq, Eq)]
struct Reading {
    config: Entries,
    keys: Entries,
    key_secrets: BTreeMap<String, Entries>,
    session: Entries,
}

/// Reads, compares, enforces.
pub struct Reloader {
    door: Arc<Door>,
    sources: Sources,
    environment: fn(&str) -> Option<String>,
    last: Option<Reading>,
}

/// Events tell of changes at once; this finds what they missed (a directory that did not exist yet).
const FALLBACK: Duration = Duration::from_secs(2);
/// Where there are no events: the kernel counts watchers by user, and many pods of a node run as the same one.
const POLL: Duration = Duration::from_millis(100);

impl Reloader {
    /// `environment` looks up the variables of declared tools' headers.
    pub fn new(door: Arc<Door>, sources: Sources, environment: fn(&str) -> Option<String>) -> Self {
        Self { door, sources, environment, last: None }
    }

    /// Reads everything, and brings into force what changed.
    pub fn reload(&mut self) {
        if let Err(error) = self.try_reload() {
            tracing::warn!(%error, "the mounted directories could not be read; what is in force stays");
        }
    }

    fn try_reload(&mut self) -> std::io::Result<()> {
        let config = directory::read(&self.sources.config)?;
        let unchanged = self.last.as_ref().is_some_and(|last| last.config == config);
        let rules = if unchanged { None } else { self.compile(&config) };
        let in_force = rules.clone().or_else(|| self.door.rules());
        let named = in_force.as_ref().map(|rules| rules.key_secrets.as_slice()).unwrap_or_default();
        let key_secrets = named
            .iter()
            .map(|name| Ok((name.clone(), directory::read(&self.sources.key_secrets.join(name))?)))
            .collect::<std::io::Result<BTreeMap<_, _>>>()?;
        let reading = Reading {
            config,
            keys: directory::read(&self.sources.keys)?,
            key_secrets,
            session: directory::read(&self.sources.session)?,
        };
        if self.last.as_ref() == Some(&reading) {
            return Ok(());
        }
        let keys = KeySet::build(&reading.keys, &reading.key_secrets, &self.door.keys());
        for refused in keys.refused() {
            tracing::warn!(secret = refused.secret, entry = refused.entry, reason = refused.reason, "key refused");
        }
        self.door.set_status_token(status_token(&reading.session));
        if let Some(rules) = &rules {
            print(rules, keys.len());
        } else {
            tracing::info!(keys = keys.len(), "keys in force");
        }
        self.door.enforce(rules, Arc::new(keys));
        self.last = Some(reading);
        Ok(())
    }

    fn compile(&self, directory: &Entries) -> Option<Arc<Rules>> {
        let Some(bytes) = directory.get(mount::CONFIG_FILE) else {
            let directory = self.sources.config.display();
            tracing::warn!(%directory, "config.json is missing; what is in force stays, and without that every call gets 503");
            self.door.set_config_error(Some(format!("{} is missing", mount::CONFIG_FILE)));
            return None;
        };
        let config = Config::parse(bytes).map_err(|error| error.to_string());
        let rules = config
            .and_then(|config| Rules::compile(config, directory.revision(), &self.door.clients, &self.environment));
        match rules {
            Ok(rules) => {
                self.door.set_config_error(None);
                Some(Arc::new(rules))
            }
            Err(error) => {
                tracing::error!(error, "the configuration is refused; what is in force stays");
                self.door.set_config_error(Some(error));
                None
            }
        }
    }

    /// Reloads whenever a directory changes, forever.
    pub async fn watch(mut self) {
        let (sender, mut changes) = mpsc::channel::<()>(1);
        let handler = move |event: notify::Result<notify::Event>| {
            // Our own reading is an event, too.
            if event.is_ok_and(|event| !matches!(event.kind, EventKind::Access(_))) {
                let _ = sender.try_send(()); // full: a reading is due already
            }
        };
        let mut watcher = match notify::recommended_watcher(handler) {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "directories cannot be watched; they are looked at ten times a second");
                None
            }
        };
        let mut under_watch = Vec::new();
        loop {
            for directory in self.directories() {
                let Some(watcher) = &mut watcher else { break };
                if !under_watch.contains(&directory) && watcher.watch(&directory, RecursiveMode::NonRecursive).is_ok() {
                    under_watch.push(directory);
                }
            }
            self.reload();
            if watcher.is_some() {
                let _ = tokio::time::timeout(FALLBACK, changes.recv()).await; // either way it is time to look
            } else {
                tokio::time::sleep(POLL).await;
            }
        }
    }

    fn directories(&self) -> Vec<PathBuf> {
        let Sources { config, keys, key_secrets, session } = &self.sources;
        let named = self.door.rules().map(|rules| rules.key_secrets.clone()).unwrap_or_default();
        let secrets = named.iter().map(|name| key_secrets.join(name));
        [config.clone(), keys.clone(), session.clone()].into_iter().chain(secrets).collect()
    }
}

fn status_token(session: &Entries) -> Option<String> {
    let text = std::str::from_utf8(session.get(mount::STATUS_TOKEN_FILE)?).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Says what is enforced from now on.
fn print(rules: &Rules, keys: usize) {
    let source = match &rules.backend {
        Backend::Http(relay) => format!("http on port {}", relay.port),
        Backend::Tools(tools) => format!("{} declared tools", tools.handshake().tool_count.unwrap_or_default()),
    };
    let mut origins: Vec<_> = rules.origins.iter().map(String::as_str).collect();
    origins.sort_unstable();
    tracing::info!(
        server = rules.server.name,
        namespace = rules.server.namespace,
        source,
        endpoint = rules.paths.endpoint(),
        hosts = rules.hosts.describe().join(" "),
        origins = if origins.is_empty() { "none".to_owned() } else { origins.join(" ") },
        auth = if rules.anonymous { "key or anonymous" } else { "key" },
        keys,
        body_bytes = rules.body_bytes,
        call_timeout_seconds = rules.call_timeout.as_secs_f64(),
        connections = rules.wire.connections,
        requests = rules.requests,
        streams_per_principal = rules.streams,
        revision = rules.revision,
        "enforcing"
    );
    if rules.anonymous {
        tracing::warn!("this server is open: auth.anonymous lets everybody call it without a key");
    } else if keys == 0 {
        tracing::warn!("there are no keys: nobody can call this server");
    }
}
