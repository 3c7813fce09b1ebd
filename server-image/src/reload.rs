//! Brings configuration and keys into force, at start and whenever they change. A configuration that is not understood
//! never replaces one that was; keys are taken entry by entry. It compares and decides nothing else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mooring_contract::mount;
use notify::{EventKind, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use crate::directory::{Entries, Unreadable};
use crate::door::Door;
use crate::keys::KeySet;
use crate::policy;
use crate::rules::{Rules, Surroundings};
use crate::sources::{Keys, Sources};

/// What was read last.
#[derive(PartialEq, Eq)]
struct Reading {
    config: Result<Entries, Unreadable>,
    keys: Keys,
    session: Entries,
    /// What of keys and session could not be read, and is as it was before.
    unreadable: Vec<Unreadable>,
}

/// Why the newest configuration or keys are not in force.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A file cannot be read.
    #[error("{0}")]
    Unreadable(Unreadable),
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
            Self::Unreadable(_) | Self::Missing(_) => tracing::warn!("{self}; what is in force stays"),
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
/// Between two readings at least: what happens all the time in a watched directory, a log that is written there, must not
/// keep the server busy.
const PAUSE: Duration = Duration::from_millis(50);

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
        self.bring().iter().for_each(ReloadError::log);
    }

    /// The same; what could not is the error.
    pub fn try_reload(&mut self) -> Result<(), ReloadError> {
        self.bring().into_iter().next().map_or(Ok(()), Err)
    }

    /// Reads everything, and brings into force what changed. What could not is returned, once for each change; it holds up
    /// nothing else.
    fn bring(&mut self) -> Vec<ReloadError> {
        let config = self.sources.config();
        let last = self.last.as_ref();
        let changed = last.is_none_or(|last| last.config != config);
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
        let mut unreadable = Vec::new();
        let nothing = (Keys::default(), Entries::default());
        let (keys, session) = last.map_or((&nothing.0, &nothing.1), |last| (&last.keys, &last.session));
        let keys = self.sources.keys(named, &self.environment, keys, &mut unreadable);
        let session = self.sources.session(session, &mut unreadable);
        let reading = Reading { config, keys, session, unreadable };
        if last == Some(&reading) {
            return Vec::new();
        }
        self.enforce(rules, &reading);
        let told = last.map(|last| last.unreadable.as_slice()).unwrap_or_default();
        let new = reading.unreadable.iter().filter(|error| !told.contains(error)).cloned();
        let errors = refused.into_iter().chain(new.map(ReloadError::Unreadable)).collect();
        self.last = Some(reading);
        errors
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
        } else if self.door.rules().is_some() {
            tracing::info!(keys = keys.len(), "keys in force");
        }
        self.door.enforce(rules, Arc::new(keys));
    }

    fn compile(&self, directory: &Result<Entries, Unreadable>) -> Result<Arc<Rules>, ReloadError> {
        let directory = directory.as_ref().map_err(|error| ReloadError::Unreadable(error.clone()))?;
        let name = || self.sources.config_name();
        let Some(bytes) = directory.get(mount::CONFIG_FILE) else {
            let reason = directory.unreadable().find(|(entry, _)| *entry == mount::CONFIG_FILE);
            return Err(reason.map_or_else(
                || ReloadError::Missing(name()),
                |(_, reason)| ReloadError::Unreadable(Unreadable::new(Path::new(&name()), reason)),
            ));
        };
        let (clients, environment) = (&self.door.clients, &self.environment);
        let config = self.sources.understand(bytes);
        let rules = config
            .and_then(|config| Rules::compile(config, directory.revision(), clients, environment, &self.surroundings));
        rules.map(Arc::new).map_err(|error| ReloadError::Refused(name(), error))
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
                tokio::time::sleep(PAUSE).await;
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
