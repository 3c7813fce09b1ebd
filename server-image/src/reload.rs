//! Brings configuration and keys into force, at start and whenever they change. A configuration that is not understood
//! never replaces one that was; keys are taken entry by entry. It compares and decides nothing else.

use std::sync::Arc;
use std::time::Duration;

use mooring_contract::mount;
use notify::{EventKind, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use crate::directory::Entries;
use crate::door::Door;
use crate::keys::KeySet;
use crate::policy;
use crate::rules::{Rules, Surroundings};
use crate::sources::{Keys, Sources};

/// What was read last.
#[derive(Default, PartialEq, Eq)]
struct Reading {
    config: Entries,
    keys: Keys,
    session: Entries,
}

/// Why the newest configuration or keys are not in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A file cannot be read.
    #[error("{0} or the keys cannot be read: {1}")]
    Unreadable(String, #[source] std::io::Error),
    /// There is no configuration.
    #[error("{0} is missing")]
    Missing(String),
    /// It is not understood, or cannot be served.
    #[error("{0}: {1}")]
    Refused(String, String),
}

impl ReloadError {
    fn log(&self) {
        match self {
            Self::Refused(..) => {
                tracing::error!(error = %self, "the configuration is refused; what is in force stays");
            }
            // Without any, every call gets 503.
            Self::Unreadable(..) | Self::Missing(_) => tracing::warn!("{self}; what is in force stays"),
        }
    }

    /// As `/status` tells it.
    fn told(&self) -> String {
        match self {
            Self::Refused(_, error) => error.clone(),
            other => other.to_string(),
        }
    }
}

/// Reads, compares, enforces.
pub struct Reloader {
    door: Arc<Door>,
    sources: Sources,
    surroundings: Surroundings,
    environment: fn(&str) -> Option<String>,
    last: Option<Reading>,
}

/// Events tell of changes at once, where all that is read is watched; this is for what they might miss all the same.
const WATCHED: Duration = Duration::from_secs(2);
/// Where a directory does not exist yet or cannot be watched, and for files of one's own: one that is mounted into a
/// container, or is a link, tells its directory nothing. A change is in force within a second, whatever tells of it.
const UNWATCHED: Duration = Duration::from_millis(500);
/// Where there are no events: the kernel counts watchers by user, and many pods of a node run as the same one.
const POLL: Duration = Duration::from_millis(100);

impl Reloader {
    /// `environment` looks up the variables of declared tools' headers.
    pub fn new(
        door: Arc<Door>,
        sources: Sources,
        surroundings: Surroundings,
        environment: fn(&str) -> Option<String>,
    ) -> Self {
        Self { door, sources, surroundings, environment, last: None }
    }

    /// Reads everything, and brings into force what changed; says in the log what could not.
    pub fn reload(&mut self) {
        if let Err(error) = self.try_reload() {
            error.log();
        }
    }

    /// The same; what could not is the error, once for each change.
    pub fn try_reload(&mut self) -> Result<(), ReloadError> {
        let unreadable = |error| ReloadError::Unreadable(self.sources.config_name(), error);
        let config = self.sources.config().map_err(unreadable)?;
        let changed = self.last.as_ref().is_none_or(|last| last.config != config);
        let compiled = if changed { self.compile(&config).map(Some) } else { Ok(None) };
        let (rules, refused) = match compiled {
            Ok(rules) => (rules, None),
            Err(error) => (None, Some(error)),
        };
        if changed {
            self.door.set_config_error(refused.as_ref().map(ReloadError::told));
        }
        let in_force = rules.clone().or_else(|| self.door.rules());
        let named = in_force.as_ref().map(|rules| rules.key_secrets.as_slice()).unwrap_or_default();
        let keys = self.sources.keys(named, &self.environment).map_err(unreadable)?;
        let reading = Reading { config, keys, session: self.sources.session().map_err(unreadable)? };
        if self.last.as_ref() != Some(&reading) {
            self.enforce(rules, &reading);
            self.last = Some(reading);
        }
        refused.map_or(Ok(()), Err)
    }

    fn enforce(&self, rules: Option<Arc<Rules>>, reading: &Reading) {
        let keys = KeySet::build(&reading.keys.own, &reading.keys.others, &self.door.keys());
        for refused in keys.refused() {
            tracing::warn!(secret = refused.secret, entry = refused.entry, reason = refused.reason, "key refused");
        }
        self.door.set_status_token(status_token(&reading.session));
        self.door.sessions.enforce(&reading.session);
        if let Some(rules) = &rules {
            policy::print(rules, &keys, self.surroundings.transport);
        } else {
            tracing::info!(keys = keys.len(), "keys in force");
        }
        self.door.enforce(rules, Arc::new(keys));
    }

    fn compile(&self, directory: &Entries) -> Result<Arc<Rules>, ReloadError> {
        let Some(bytes) = directory.get(mount::CONFIG_FILE) else {
            return Err(ReloadError::Missing(self.sources.config_name()));
        };
        let (clients, environment) = (&self.door.clients, &self.environment);
        let config = self.sources.understand(bytes);
        let rules = config
            .and_then(|config| Rules::compile(config, directory.revision(), clients, environment, &self.surroundings));
        rules.map(Arc::new).map_err(|error| ReloadError::Refused(self.sources.config_name(), error))
    }

    /// Reloads whenever something changes, forever.
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
            let named = self.door.rules().map(|rules| rules.key_secrets.clone()).unwrap_or_default();
            let mut pause = if matches!(self.sources, Sources::Mounted(_)) { WATCHED } else { UNWATCHED };
            for directory in self.sources.directories(&named) {
                let Some(watcher) = &mut watcher else { break };
                if under_watch.contains(&directory) {
                    continue;
                }
                match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                    Ok(()) => under_watch.push(directory),
                    Err(_) => pause = UNWATCHED,
                }
            }
            self.reload();
            if watcher.is_some() {
                let _ = tokio::time::timeout(pause, changes.recv()).await; // either way it is time to look
            } else {
                tokio::time::sleep(POLL).await;
            }
        }
    }
}

fn status_token(session: &Entries) -> Option<String> {
    let text = std::str::from_utf8(session.get(mount::STATUS_TOKEN_FILE)?).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
