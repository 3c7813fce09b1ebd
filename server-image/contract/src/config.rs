//! The config file that the operator writes and the front door reads.
//!
//! Compatibility: the front door reads one version older and one newer than its own. Unknown fields are ignored,
//! except inside `security`, where a field that is not understood would be a rule that is not enforced: there the
//! whole file is refused and the last good one stays in force.

mod check;
mod limits;
mod sessions;
mod tool;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::check::{WrongTool, check_tools};
pub use self::limits::{Bound, Limits};
pub use self::sessions::{SessionMode, Sessions};
pub use self::tool::{
    HeaderValue, Override, Overrides, Schema, ServedOver, Tool, ToolHeader, ToolRequest, no_arguments,
};
use crate::document::{Document, Misfit, understand};

/// The version that this build writes.
pub const VERSION: u32 = 1;

/// The whole config file, `config.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Version of this format. Default, for files that people write: this build's.
    #[serde(default = "this_version")]
    pub version: u32,
    /// Which McpServer this is.
    pub server: Identity,
    /// Public path prefix, `/` or `/weather`, without a trailing slash except for the root. Default: `/`.
    #[serde(default = "root")]
    pub path: String,
    /// Who may call, under which names, from where. Default: whoever has a key, under loopback names, from no page.
    #[serde(default)]
    pub security: Security,
    /// What is served.
    pub source: Source,
    /// What one call may cost.
    #[serde(default)]
    pub limits: Limits,
    /// What holds for sessions.
    #[serde(default, skip_serializing_if = "Sessions::is_default")]
    pub sessions: Sessions,
}

fn this_version() -> u32 {
    VERSION
}

fn root() -> String {
    "/".to_owned()
}

/// The McpServer that a front door belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Namespace of the McpServer; empty outside Kubernetes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the McpServer.
    pub name: String,
    /// UID of the McpServer; empty outside Kubernetes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The rules that must never be half understood: an unknown field refuses the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Security {
    /// Names accepted in `Host` with any port: the public hosts and the Service's own names. Loopback names are
    /// accepted without being listed, in a pod and wherever only loopback is listened on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Authorities accepted exactly (`10.0.0.5:8443`), or with any port (`mcp.internal:*`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_hosts: Vec<String>,
    /// Origins that a browser may call from, exactly as browsers send them; `*` is any. A request without `Origin`
    /// passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// Which of them may read the answers, and how.
    #[serde(default, skip_serializing_if = "Cors::is_default")]
    pub cors: Cors,
    /// Whether a request without any key is served.
    #[serde(default)]
    pub anonymous: bool,
    /// Names of the Secrets mounted below `mount::KEY_SECRETS_DIR`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_secrets: Vec<String>,
    /// Addresses and networks of the proxies whose forwarded headers are believed; each is a [`crate::Network`]. Empty, it
    /// is not written, so that front doors read the file that do not know it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<String>,
}

/// Cross-origin resource sharing (the Fetch standard, CORS protocol).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cors {
    /// Origins whose pages may read answers; `*` is any. They are accepted as if [`Security::origins`] had them. Default:
    /// those of [`Security::origins`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// Request headers that pages may set, in place of the front door's own list. Default: that list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Answer headers that pages may read, besides the front door's own list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expose_headers: Vec<String>,
    /// Whether pages may send cookies and other credentials of the browser.
    pub credentials: bool,
    /// How long browsers may keep the answer to a preflight, in seconds.
    pub max_age_seconds: u64,
}

impl Cors {
    /// Default of `cors.maxAge`: 10 minutes.
    pub const MAX_AGE_SECONDS: u64 = 600;
    /// The most that `cors.maxAge` may be: a day.
    pub const MAX_AGE_SECONDS_MOST: u64 = 24 * 60 * 60;

    /// Whether nothing differs from the defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Cors {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            headers: Vec::new(),
            expose_headers: Vec::new(),
            credentials: false,
            max_age_seconds: Self::MAX_AGE_SECONDS,
        }
    }
}

/// What is served behind the front door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// Tools that the front door serves itself, over HTTP APIs.
    Tools(Vec<Tool>),
    /// An HTTP MCP server on loopback in the same pod.
    Http(HttpBackend),
}

/// An HTTP MCP server in the same pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpBackend {
    /// Port on 127.0.0.1.
    pub port: u16,
    /// Path of the MCP endpoint, exactly as the backend wants it; with [`Transport::Sse`] that of its event stream.
    pub path: String,
    /// Which transport the backend speaks.
    #[serde(default, skip_serializing_if = "Transport::is_default")]
    pub transport: Transport,
}

/// How an HTTP MCP server is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Transport {
    /// Streamable HTTP: one endpoint (2025-03-26 and later).
    #[default]
    StreamableHttp,
    /// HTTP+SSE, the transport of 2024-11-05: an event stream, and another address for messages.
    Sse,
}

impl Transport {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a config file is refused. The file in force stays in force.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No JSON.
    #[error("the config file is not understood: {0}")]
    Syntax(#[from] serde_json::Error),
    /// Not what this version understands.
    #[error("the config file is not understood: {0}")]
    Format(#[from] Misfit),
    /// Too old or too new.
    #[error(
        "the config file has version {found}; this front door reads {oldest} to {newest}: use a front-door image nearer to the operator's version"
    )]
    Version {
        /// The file's version.
        found: u32,
        /// The oldest version that is read.
        oldest: u32,
        /// The newest version that is read.
        newest: u32,
    },
}

impl Config {
    /// Parses a config file, and refuses a version too far from this build's and an unknown security field.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        #[derive(Deserialize)]
        struct Versioned {
            #[serde(default = "this_version")]
            version: u32,
        }
        let document: Document = serde_json::from_slice(bytes)?; // its errors have a place and no value
        let Versioned { version } = understand(document.clone())?;
        check_version(version)?;
        Ok(understand(document)?)
    }

    /// The file's text: deterministic, so that the same spec gives the same bytes.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let value: serde_json::Value = serde_json::to_value(self)?; // sorts object keys
        serde_json::to_string(&value)
    }

    /// The ConfigMap's data: one entry, named [`crate::mount::CONFIG_FILE`].
    pub fn to_config_map_data(&self) -> Result<BTreeMap<String, String>, serde_json::Error> {
        Ok(BTreeMap::from([(crate::mount::CONFIG_FILE.to_owned(), self.to_json()?)]))
    }

    /// The public path of the MCP endpoint: `/mcp` or `<path>/mcp`.
    pub fn endpoint_path(&self) -> String {
        endpoint_path(&self.path)
    }
}

/// Refuses a version too far from this build's.
pub fn check_version(found: u32) -> Result<(), ConfigError> {
    let (oldest, newest) = (VERSION.saturating_sub(1).max(1), VERSION + 1);
    if (oldest..=newest).contains(&found) { Ok(()) } else { Err(ConfigError::Version { found, oldest, newest }) }
}

/// The public path of the MCP endpoint below the prefix `path`.
pub fn endpoint_path(path: &str) -> String {
    format!("{}/mcp", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config {
            version: VERSION,
            server: Identity { namespace: "demo".into(), name: "weather".into(), uid: "1".into() },
            path: "/weather".into(),
            security: Security { hosts: vec!["mcp.example.com".into()], ..Security::default() },
            source: Source::Http(HttpBackend { port: 8000, path: "/mcp".into(), transport: Transport::StreamableHttp }),
            limits: Limits::default(),
            sessions: Sessions::default(),
        }
    }

    #[test]
    fn sessions_are_written_where_they_differ_from_the_defaults() {
        let stateless = Sessions { mode: SessionMode::Stateless, ..Sessions::default() };
        let written = serde_json::to_value(Config { sessions: stateless.clone(), ..config() }).unwrap();
        assert_eq!(written["sessions"]["mode"], "Stateless");
        assert_eq!(Config::parse(written.to_string().as_bytes()).unwrap().sessions, stateless);
        let mut partial = serde_json::to_value(config()).unwrap();
        assert_eq!(partial.get("sessions"), None);
        partial["sessions"] = serde_json::json!({"maxPerPod": 7});
        let read = Config::parse(partial.to_string().as_bytes()).unwrap().sessions;
        assert_eq!(read, Sessions { max_per_pod: 7, ..Sessions::default() });
    }

    #[test]
    fn what_is_written_is_read() {
        let text = config().to_json().unwrap();
        assert_eq!(Config::parse(text.as_bytes()).unwrap(), config());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_older_transport_is_written_out_and_the_usual_one_is_not() {
        let with = |transport| {
            let source = Source::Http(HttpBackend { port: 1, path: "/sse".into(), transport });
            serde_json::to_value(Config { source, ..config() }).unwrap()["source"]["http"].clone()
        };
        assert_eq!(with(Transport::Sse)["transport"], "sse");
        assert_eq!(with(Transport::StreamableHttp).get("transport"), None);
    }

    #[test]
    fn trusted_proxies_are_written_where_there_are_any() {
        let with = |proxies: &[&str]| {
            let trusted_proxies = proxies.iter().map(|proxy| (*proxy).to_owned()).collect();
            let security = Security { trusted_proxies, ..config().security };
            serde_json::to_value(Config { security, ..config() }).unwrap()["security"].clone()
        };
        assert_eq!(with(&[]).get("trustedProxies"), None);
        assert_eq!(with(&["10.0.0.0/8"])["trustedProxies"], serde_json::json!(["10.0.0.0/8"]));
    }

    #[test]
    fn one_version_newer_is_read_and_two_are_refused() {
        let with = |version: u32| {
            let mut value = serde_json::to_value(config()).unwrap();
            value["version"] = version.into();
            value["future"] = "ignored".into();
            Config::parse(value.to_string().as_bytes())
        };
        assert!(with(VERSION).is_ok());
        assert!(with(VERSION + 1).is_ok());
        assert!(matches!(with(VERSION + 2), Err(ConfigError::Version { found: 3, oldest: 1, newest: 2 })));
        assert!(matches!(with(0), Err(ConfigError::Version { .. })));
    }

    #[test]
    fn an_unknown_security_field_refuses_the_file() {
        let mut value = serde_json::to_value(config()).unwrap();
        value["security"]["requireMoonPhase"] = true.into();
        let error = Config::parse(value.to_string().as_bytes()).unwrap_err();
        assert!(error.to_string().contains("requireMoonPhase"), "{error}");
    }

    #[test]
    fn a_key_that_is_there_twice_refuses_the_file() {
        let text = config().to_json().unwrap();
        for (key, before) in [("security", r#""security":"#), ("hosts", r#""hosts":"#), ("port", r#""port":"#)] {
            let twice = text.replace(before, &format!("{before}7,{before}"));
            let error = Config::parse(twice.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&format!("{key} is there twice at line 1 column")), "{error}");
        }
    }

    #[test]
    fn the_endpoint_lies_below_the_prefix() {
        assert_eq!(endpoint_path("/"), "/mcp");
        assert_eq!(endpoint_path("/weather"), "/weather/mcp");
    }
}
