//! Where configuration and keys come from: directories that the kubelet mounts into a pod, or, anywhere else, files of
//! one's own. It reads them and says which directories to watch; what is in them it hardly knows.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use mooring_contract::config::{VERSION, check_version};
use mooring_contract::{Config, mount};
use serde_json::Value;

use crate::directory::{self, Entries};
use crate::rules::Environment;

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
    pub fn config(&self) -> io::Result<Entries> {
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
            Self::Local(_) => written(bytes),
        }
    }

    /// The keys; `named` are the Secrets that the configuration names.
    pub fn keys(&self, named: &[String], environment: Environment<'_>) -> io::Result<Keys> {
        match self {
            Self::Mounted(mounts) => {
                let others =
                    named.iter().map(|name| Ok((name.clone(), directory::read(&mounts.key_secrets.join(name))?)));
                Ok(Keys { own: directory::read(&mounts.keys)?, others: others.collect::<io::Result<_>>()? })
            }
            Self::Local(local) => {
                let mut others = BTreeMap::new();
                if let Some(path) = &local.keys {
                    others.insert(KEYS.to_owned(), directory::read_any(path)?);
                }
                if let Some(key) = environment(KEY_VARIABLE).filter(|key| !key.is_empty()) {
                    others.insert(ENVIRONMENT.to_owned(), Entries::from([(KEY_VARIABLE.to_owned(), key.into_bytes())]));
                }
                Ok(Keys { own: Entries::default(), others })
            }
        }
    }

    /// The token for `/status`; without one nobody reads it.
    pub fn session(&self) -> io::Result<Entries> {
        match self {
            Self::Mounted(mounts) => directory::read(&mounts.session),
            Self::Local(_) => Ok(Entries::default()),
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

fn parent(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| *parent != OsStr::new(""));
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// Understands what a person wrote; the error names the place.
fn written(bytes: &[u8]) -> Result<Config, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".to_owned())?;
    let document: Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?
    } else {
        serde_saphyr::from_str(text).map_err(|error| format!("it is no YAML: {error}"))?
    };
    if document.is_null() {
        return Err("it is empty: write at least server and source".to_owned());
    }
    if document.get("apiVersion").is_some() {
        return Err(
            "it is a Kubernetes object; the file to name here is what `mooring render` prints of it as config.json, \
                    or one of your own with server and source"
                .to_owned(),
        );
    }
    if document.is_object() {
        require(&document)?;
    }
    let mut unknown = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| unknown.push(path.to_string().replace(".?", "")); // ? is a choice
    let reading = serde_ignored::Deserializer::new(document, &mut note);
    let config: Config = serde_path_to_error::deserialize(reading).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if path == "." { error.to_string() } else { format!("{path}: {error}") } // a dot is the whole file
    })?;
    check_version(config.version).map_err(|error| error.to_string())?;
    match unknown.first() {
        // The operator's files may be newer than this build; a person's field that is not read is a mistake.
        Some(field) if config.version <= VERSION => Err(format!("{field}: there is no such field")),
        _ => Ok(config),
    }
}

/// What has no default, and how it is written.
fn require(document: &Value) -> Result<(), &'static str> {
    if document.pointer("/server/name").is_none() {
        return Err("server.name is missing: write `server: {name: weather}`, what the server calls itself");
    }
    if document.get("source").is_none() {
        return Err(
            "source is missing: write `source: {tools: [...]}`, or `source: {http: {port: 8000, path: /mcp}}` \
                    for an HTTP MCP server on this machine",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mooring_contract::config::{ServedOver, Source};

    use super::*;

    fn told(text: &str) -> String {
        written(text.as_bytes()).expect_err(text)
    }

    #[test]
    fn a_name_and_a_source_are_enough() {
        let yaml = "
server: {name: weather}
source:
  tools:
    - name: forecast
      http: {url: 'http://localhost:8000/forecast'}
";
        let config = written(yaml.as_bytes()).unwrap();
        assert_eq!((config.path.as_str(), config.limits.body_bytes), ("/", 4_194_304));
        assert!(!config.security.anonymous && config.security.hosts.is_empty());
        let Source::Tools(tools) = &config.source else { panic!("{config:?}") };
        assert_eq!((tools[0].http.method.as_str(), tools[0].http.timeout_ms), ("GET", 30_000));
        assert_eq!(tools[0].input_schema["additionalProperties"], false);
        // The operator's own text is read as it is.
        let json = config.to_json().unwrap();
        assert_eq!(written(json.as_bytes()).unwrap(), config);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let cases = [
            ("", "it is empty"),
            ("{", "it is no JSON"),
            ("a: [", "it is no YAML"),
            ("server: {name: a}", "source is missing: write `source: {tools: [...]}`"),
            ("server: {name: a}\nsources: {tools: []}", "source is missing"),
            ("source: {tools: []}", "server.name is missing: write `server: {name: weather}`"),
            ("server: {}\nsource: {tools: []}", "server.name is missing"),
            ("server:\nsource: {tools: []}", "server.name is missing"),
            ("server: weather\nsource: {tools: []}", "server.name is missing"),
            ("server: {name: 7}\nsource: {tools: []}", "server.name: invalid type"),
            ("- a", "invalid type"),
            ("server: {name: a}\nsource: {tool: []}", "source"),
            ("server: {name: a}\nsource: {tools: [{name: b}]}", "source.tools[0]: missing field `http`"),
            ("server: {name: a}\nsource: {tools: []}\ntolls: 1", "tolls: there is no such field"),
            (
                "server: {name: a}\nsource: {tools: [{name: b, http: {url: 'http://a', tmeout: 1}}]}",
                "source.0.http.tmeout: there is no such field",
            ),
            ("server: {name: a}\nsource: {tools: []}\nsecurity: {anonymos: true}", "anonymos"),
            ("version: 9\nserver: {name: a}\nsource: {tools: []}", "version 9"),
            ("apiVersion: mooring.dev/v1alpha1\nkind: McpServer", "mooring render"),
        ];
        for (text, said) in cases {
            let error = told(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(written(b"version: 2\nserver: {name: a}\nsource: {tools: []}\nlater: 1").is_ok());
    }

    #[test]
    fn a_tool_is_otherwise_over_one_transport() {
        let yaml = "
server: {name: weather}
source:
  tools:
    - name: forecast
      description: base
      http: {url: 'http://base/'}
      overrides:
        stdio: {description: local, http: {url: 'http://localhost/'}}
        http: {inputSchema: {type: object}}
";
        let Source::Tools(tools) = written(yaml.as_bytes()).unwrap().source else { panic!() };
        let over = |transport| {
            let tool = tools[0].clone().over(transport);
            (tool.description.unwrap(), tool.http.url, tool.input_schema.len(), tool.overrides.is_empty())
        };
        assert_eq!(over(ServedOver::Stdio), ("local".into(), "http://localhost/".into(), 2, true));
        assert_eq!(over(ServedOver::Http), ("base".into(), "http://base/".into(), 1, true));
    }

    #[test]
    fn keys_come_from_files_and_the_variable() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("laptop"), "k1").unwrap();
        std::fs::write(directory.path().join("ci"), "k2").unwrap();
        let keys = |keys: Option<PathBuf>, variable: &'static str| {
            let sources = Sources::Local(Local { file: "a.yaml".into(), keys });
            let environment = move |name: &str| (name == KEY_VARIABLE).then(|| variable.to_owned());
            let Keys { own, others } = sources.keys(&["vault".to_owned()], &environment).unwrap();
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
