//! Where configuration and keys come from: directories that the kubelet mounts into a pod, or, anywhere else, files of
//! one's own. It reads them and says which directories to watch; what is in them it hardly knows.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use mooring_contract::{Config, mount};

use crate::directory::{self, Entries, Unreadable};
use crate::rules::Environment;
use crate::written;

/// The variable that may hold a key outside of Kubernetes. An argument could be read by every process of the machine.
pub const KEY_VARIABLE: &str = "MOORING_API_KEY";
/// What logs call the keys of `--keys` and of the variable.
const KEYS: &str = "keys";
const ENVIRONMENT: &str = "environment";

/// Where everything comes from.
#[derive(Clone, Debug)]
pub enum Sources {
    /// In a pod.
    Mounted(Mounts),
    /// Anywhere else.
    Local(Local),
}

/// The mounted directories.
#[derive(Clone, Debug)]
pub struct Mounts {
    /// The ConfigMap.
    pub config: PathBuf,
    /// The server's own keys.
    pub keys: PathBuf,
    /// One directory for each Secret of `auth.keySecrets`.
    pub key_secrets: PathBuf,
    /// The token for `/status`.
    pub session: PathBuf,
}

/// Files of one's own.
#[derive(Clone, Debug)]
pub struct Local {
    /// The configuration, JSON or YAML.
    pub file: PathBuf,
    /// A file with a key, or a directory of them.
    pub keys: Option<PathBuf>,
}

/// Keys as they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The server's own: records only.
    pub own: Entries,
    /// Those of others: records and plain keys, by the name of what holds them.
    pub others: BTreeMap<String, Entries>,
}

impl Sources {
    /// The configuration: a directory with the one entry [`mount::CONFIG_FILE`].
    pub fn config(&self) -> Result<Entries, Unreadable> {
        match self {
            Self::Mounted(mounts) => directory::read(&mounts.config),
            Self::Local(local) => Ok(match directory::read_file(&local.file)? {
                Some(bytes) => Entries::from([(mount::CONFIG_FILE.to_owned(), bytes)]),
                None => Entries::default(),
            }),
        }
    }

    /// What the configuration is called.
    pub fn config_name(&self) -> String {
        match self {
            Self::Mounted(mounts) => mounts.config.join(mount::CONFIG_FILE).display().to_string(),
            Self::Local(local) => local.file.display().to_string(),
        }
    }

    /// Understands the configuration: the operator's JSON, or what a person wrote.
    pub fn understand(&self, bytes: &[u8]) -> Result<Config, String> {
        match self {
            Self::Mounted(_) => Config::parse(bytes).map_err(|error| error.to_string()),
            Self::Local(_) => written::understand(bytes),
        }
    }

    /// The keys; `named` are the Secrets that the configuration names. What cannot be read is noted, and is as it was
    /// `before`.
    pub fn keys(
        &self,
        named: &[String],
        environment: Environment<'_>,
        before: &Keys,
        unreadable: &mut Vec<Unreadable>,
    ) -> Keys {
        let mut or_before = |read, before: Option<&Entries>| or_before(read, before, unreadable);
        match self {
            Self::Mounted(mounts) => Keys {
                own: or_before(directory::read(&mounts.keys), Some(&before.own)),
                others: named
                    .iter()
                    .map(|name| {
                        let read = directory::read(&mounts.key_secrets.join(name));
                        (name.clone(), or_before(read, before.others.get(name)))
                    })
                    .collect(),
            },
            Self::Local(local) => {
                let mut others = BTreeMap::new();
                if let Some(path) = &local.keys {
                    others.insert(KEYS.to_owned(), or_before(directory::read_any(path), before.others.get(KEYS)));
                }
                if let Some(key) = environment(KEY_VARIABLE).filter(|key| !key.is_empty()) {
                    others.insert(ENVIRONMENT.to_owned(), Entries::from([(KEY_VARIABLE.to_owned(), key.into_bytes())]));
                }
                Keys { own: Entries::default(), others }
            }
        }
    }

    /// The token for `/status`, without which nobody reads it, and the keys of sessions; as `keys`.
    pub fn session(&self, before: &Entries, unreadable: &mut Vec<Unreadable>) -> Entries {
        match self {
            Self::Mounted(mounts) => or_before(directory::read(&mounts.session), Some(before), unreadable),
            Self::Local(_) => Entries::default(),
        }
    }

    /// The directories in which a change shows. Editors replace files, so a file is watched through its directory.
    pub fn directories(&self, named: &[String]) -> Vec<PathBuf> {
        match self {
            Self::Mounted(Mounts { config, keys, key_secrets, session }) => {
                let secrets = named.iter().map(|name| key_secrets.join(name));
                [config.clone(), keys.clone(), session.clone()].into_iter().chain(secrets).collect()
            }
            Self::Local(Local { file, keys }) => {
                let of_keys = keys.iter().flat_map(|path| [path.clone(), parent(path)]);
                std::iter::once(parent(file)).chain(of_keys).collect()
            }
        }
    }
}

fn or_before(read: Result<Entries, Unreadable>, before: Option<&Entries>, unreadable: &mut Vec<Unreadable>) -> Entries {
    read.unwrap_or_else(|error| {
        unreadable.push(error);
        before.cloned().unwrap_or_default()
    })
}

fn parent(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| *parent != OsStr::new(""));
    parent.unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_files_and_the_variable() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("laptop"), "k1").unwrap();
        std::fs::write(directory.path().join("ci"), "k2").unwrap();
        let keys = |keys: Option<PathBuf>, variable: &'static str| {
            let sources = Sources::Local(Local { file: "a.yaml".into(), keys });
            let environment = move |name: &str| (name == KEY_VARIABLE).then(|| variable.to_owned());
            let (secrets, mut unreadable) = (["vault".to_owned()], Vec::new());
            let Keys { own, others } = sources.keys(&secrets, &environment, &Keys::default(), &mut unreadable);
            assert_eq!(unreadable, []);
            assert_eq!(own, Entries::default());
            let names = |(holder, entries): (&String, &Entries)| {
                entries.iter().map(|(name, bytes)| format!("{holder}/{name}={}", bytes.len())).collect::<Vec<_>>()
            };
            others.iter().flat_map(names).collect::<Vec<_>>().join(" ")
        };
        let path = |name: &str| Some(directory.path().join(name));
        assert_eq!(keys(path(""), ""), "keys/ci=2 keys/laptop=2");
        assert_eq!(keys(path("ci"), "k3"), "environment/MOORING_API_KEY=2 keys/ci=2");
        assert_eq!(keys(path("absent"), ""), "");
        assert_eq!(keys(None, ""), "");
    }

    #[test]
    fn files_are_watched_through_their_directories() {
        let local = |file: &str, keys: Option<&str>| {
            Sources::Local(Local { file: file.into(), keys: keys.map(PathBuf::from) }).directories(&[])
        };
        assert_eq!(local("a.yaml", None), [PathBuf::from(".")]);
        assert_eq!(local("/b/a.yaml", Some("/run/key")), ["/b", "/run/key", "/run"].map(PathBuf::from));
    }
}
