//! `mooring keys`: makes, shows and revokes API keys with the rights of whoever runs it. A key is printed once and kept
//! nowhere; what is stored is its hash. One entry is changed at a time, so nobody's keys are lost to somebody else's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use mooring_api::McpServer;
use mooring_contract::key::{ENTROPY, hint};
use mooring_contract::{Key, KeyRecord};
use mooring_plan::observed::{Door, KeysSecret, SessionSecret};
use mooring_plan::{mint, names};
use serde_json::{Value, json};

use super::{kubeconfig, say, write_out};
use crate::apply::new_subject;
use crate::limit::{self, CallError};
use crate::observe::door::DoorClient;
use crate::observe::is_owned_by;
use crate::{cli, clock, random};

/// Who wrote an entry, for `kubectl get --show-managed-fields`.
const FIELD_MANAGER: &str = "mooring-keys";
/// Tries when others change the Secret at the same time.
const TRIES: usize = 5;

/// When a key stops to work.
#[derive(Clone, Copy, Debug)]
pub enum Expiry {
    /// At a moment.
    At(Timestamp),
    /// Some time from now.
    In(Span),
}

impl FromStr for Expiry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(moment) = text.parse::<Timestamp>() {
            return Ok(Self::At(moment));
        }
        if let Ok(date) = text.parse::<Date>() {
            let midnight = date.to_zoned(TimeZone::UTC).map_err(|error| error.to_string())?;
            return Ok(Self::At(midnight.timestamp()));
        }
        let span = text.parse::<Span>().map_err(|_| {
            "write a date-time (2027-01-01T00:00:00Z), a date (2027-01-01) or a time from now (90d, 12h)".to_owned()
        })?;
        Ok(Self::In(span))
    }
}

impl Expiry {
    /// The moment, which must lie ahead.
    fn moment(self, now: Timestamp) -> anyhow::Result<Timestamp> {
        let moment = match self {
            Self::At(moment) => moment,
            Self::In(span) => {
                now.to_zoned(TimeZone::UTC).checked_add(span).context("--expires is too far away")?.timestamp()
            }
        };
        if moment <= now {
            bail!("--expires: {moment} has passed");
        }
        Ok(moment)
    }
}

/// A server, and the client to reach it with.
struct Target {
    client: Client,
    server: McpServer,
    namespace: String,
}

/// A key, as `list` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    id: String,
    record: KeyRecord,
    declared: bool,
}

impl Target {
    async fn find(arguments: &cli::Server) -> anyhow::Result<Self> {
        let config = kubeconfig::config(arguments.kubeconfig.as_deref()).await?;
        let client = Client::try_from(config).context("cannot make a client of the kubeconfig")?;
        Self::find_with(client, arguments).await
    }

    async fn find_with(client: Client, arguments: &cli::Server) -> anyhow::Result<Self> {
        let namespace = arguments.namespace.clone().filter(|name| !name.is_empty());
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let name = &arguments.server;
        let api: Api<McpServer> = Api::namespaced(client.clone(), &namespace);
        let server = limit::call(api.get_opt(name))
            .await
            .with_context(|| format!("cannot read McpServer {namespace}/{name}"))?;
        let server = server.with_context(|| format!("there is no McpServer {name} in namespace {namespace}"))?;
        Ok(Self { client, server, namespace })
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn keys_name(&self) -> String {
        names::keys(&self.server.name_any())
    }

    /// `<name>.keys`, which must be this server's where it exists.
    async fn keys(&self) -> anyhow::Result<Option<Secret>> {
        let name = self.keys_name();
        let secret = limit::call(self.secrets().get_opt(&name)).await;
        let secret = secret.with_context(|| format!("cannot read Secret {}/{name}", self.namespace))?;
        if secret.as_ref().is_some_and(|secret| !is_owned_by(secret, &self.server)) {
            bail!("Secret {}/{name} does not belong to this McpServer; it is left untouched", self.namespace);
        }
        Ok(secret)
    }

    /// Sets or, with `None`, removes one entry, and no other.
    async fn change(&self, secret: &Secret, id: &str, record: Option<&str>) -> Result<(), CallError> {
        let value = record.map_or(Value::Null, |record| json!(STANDARD.encode(record)));
        let patch = json!({"metadata": {"uid": secret.metadata.uid}, "data": {id: value}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        limit::call(self.secrets().patch(&self.keys_name(), &params, &Patch::Merge(patch))).await.map(|_| ())
    }
}

/// The keys of a Secret, by name. What is no record of ours is none.
fn listed(secret: Option<&Secret>) -> Vec<Listed> {
    let Some(secret) = secret else { return Vec::new() };
    let keys = KeysSecret::from_secret(secret);
    let records = keys.data.iter().filter_map(|(id, bytes)| {
        let record = KeyRecord::parse(std::str::from_utf8(bytes).ok()?).ok()?;
        Some(Listed { declared: keys.declared.values().any(|declared| declared == id), id: id.clone(), record })
    });
    let mut listed: Vec<_> = records.collect();
    listed.sort_by(|a, b| (&a.record.metadata.name, &a.id).cmp(&(&b.record.metadata.name, &b.id)));
    listed
}

/// `mooring keys list`.
pub async fn list(arguments: &cli::Server) -> anyhow::Result<()> {
    let target = Target::find(arguments).await?;
    let keys = listed(target.keys().await?.as_ref());
    let last_used = if keys.is_empty() { BTreeMap::new() } else { last_used(&target).await };
    if keys.is_empty() {
        say(&format!("{} has no keys; make one with `mooring keys create`", target.server.name_any()));
        return Ok(());
    }
    write_out(&table(&keys, &last_used, clock::now()))
}

/// When each key was last used, as far as the pods can be asked from here: usually only inside the cluster.
async fn last_used(target: &Target) -> BTreeMap<String, Timestamp> {
    let name = target.server.name_any();
    let session = limit::call(target.secrets().get_opt(&names::session(&name))).await;
    let Ok(Some(session)) = session else { return BTreeMap::new() };
    let token = SessionSecret::from_secret(&session).status_token;
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let Ok(pods) = limit::call(pods.list(&ListParams::default().labels(&names::selector(&name)))).await else {
        return BTreeMap::new();
    };
    let doors = DoorClient::default();
    let ips = pods.items.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.as_deref());
    let asked = futures::future::join_all(ips.map(|ip| doors.ask(ip, &token))).await;
    let mut latest = BTreeMap::new();
    for door in asked {
        if let Door::Answered(status) = door {
            for (id, used) in status.keys_last_used {
                latest.entry(id).and_modify(|latest: &mut Timestamp| *latest = (*latest).max(used)).or_insert(used);
            }
        }
    }
    latest
}

fn table(keys: &[Listed], last_used: &BTreeMap<String, Timestamp>, now: Timestamp) -> String {
    let row = |key: &Listed| {
        let metadata = &key.record.metadata;
        let expires = match metadata.expires {
            Some(expires) if expires <= now => format!("{expires} (expired)"),
            Some(expires) => expires.to_string(),
            None => "never".to_owned(),
        };
        [
            metadata.name.clone(),
            hint(&key.id).to_owned(),
            metadata.created.to_string(),
            expires,
            last_used.get(&key.id).map_or_else(|| "-".to_owned(), ToString::to_string),
            if key.declared { "yes" } else { "no" }.to_owned(),
        ]
    };
    let head = ["NAME", "HINT", "CREATED", "EXPIRES", "LAST USED", "DECLARED"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(keys.iter().map(row)).collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("   ").trim_end()); // writing to a String cannot fail
    }
    text
}

/// `mooring keys create`.
pub async fn create(arguments: &cli::Server, name: &str, expires: Option<Expiry>) -> anyhow::Result<()> {
    let target = Target::find(arguments).await?;
    let key = make(&target, name, expires).await?;
    say(&format!("key {name} ({}) of McpServer {}; it is shown this once:", key.hint(), target.server.name_any()));
    write_out(&format!("{}\n", key.expose()))
}

async fn make(target: &Target, name: &str, expires: Option<Expiry>) -> anyhow::Result<Key> {
    check_name(name)?;
    let now = Timestamp::from_second(clock::now().as_second())?; // whole seconds, as the API writes times
    let expires = expires.map(|expires| expires.moment(now)).transpose()?;
    if target.server.spec.auth.iter().flat_map(|auth| &auth.keys).any(|declared| declared.name == name) {
        bail!("--name: the McpServer declares a key {name} in auth.keys; choose another name");
    }
    let key = Key::from_entropy(&random::bytes::<ENTROPY>()?);
    let (id, record) = mint::key_record(&key, name, &new_subject()?, now, expires);
    let record = record.to_json()?;
    for _ in 0..TRIES {
        let Some(secret) = target.keys().await? else {
            match create_secret(target).await {
                Ok(()) => continue,
                Err(error) if error.code() == Some(409) => continue, // somebody was faster
                Err(error) => return Err(error).with_context(|| format!("cannot make Secret {}", target.keys_name())),
            }
        };
        if let Some(same) = listed(Some(&secret)).iter().find(|key| key.record.metadata.name == name) {
            bail!("--name: there is a key {name} ({}) already; revoke it, or choose another name", hint(&same.id));
        }
        match target.change(&secret, &id, Some(&record)).await {
            Ok(()) => return Ok(key),
            Err(error) if matches!(error.code(), Some(404 | 409)) => {} // it was deleted or replaced
            Err(error) => return Err(error).with_context(|| format!("cannot change Secret {}", target.keys_name())),
        }
    }
    bail!("Secret {} is changed by others all the time; try again", target.keys_name())
}

/// An empty `<name>.keys`, as the operator would make it, which then adds what is declared.
async fn create_secret(target: &Target) -> Result<(), CallError> {
    let secret = Secret { metadata: names::metadata(&target.server, target.keys_name()), ..Secret::default() };
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    limit::call(target.secrets().create(&params, &secret)).await.map(|_| ())
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 40 || !name.bytes().all(inner) || name.starts_with('-') || name.ends_with('-') {
        bail!("--name: use lower-case letters, digits and hyphens, at most 40, with a letter or digit at both ends");
    }
    Ok(())
}

/// `mooring keys revoke`.
pub async fn revoke(arguments: &cli::Server, name: &str) -> anyhow::Result<()> {
    let target = Target::find(arguments).await?;
    for text in take(&target, name).await? {
        say(&text);
    }
    Ok(())
}

/// Revokes, and returns what there is to say.
async fn take(target: &Target, name: &str) -> anyhow::Result<Vec<String>> {
    let secret = target.keys().await?;
    let keys = listed(secret.as_ref());
    let key = choose(&keys, name, &target.server.name_any())?;
    if let Some(secret) = &secret {
        match target.change(secret, &key.id, None).await {
            Ok(()) => {}
            Err(error) if error.code() == Some(404) => {} // all keys are gone, this one too
            Err(error) => return Err(error).with_context(|| format!("cannot change Secret {}", target.keys_name())),
        }
    }
    let metadata = &key.record.metadata;
    let mut said = vec![format!("revoked key {} ({})", metadata.name, hint(&key.id))];
    if key.declared {
        said.push(format!(
            "the McpServer declares {} in auth.keys: the operator makes a new key in its place. Remove it there to be rid of it.",
            metadata.name
        ));
    }
    Ok(said)
}

/// The one key with this name, hint or id.
fn choose<'a>(keys: &'a [Listed], name: &str, server: &str) -> anyhow::Result<&'a Listed> {
    let by_name: Vec<_> = keys.iter().filter(|key| key.record.metadata.name == name).collect();
    let by_hint = keys.iter().filter(|key| hint(&key.id) == name || key.id == name);
    let found = if by_name.is_empty() { by_hint.collect() } else { by_name };
    match found.as_slice() {
        [one] => Ok(one),
        [] => bail!("{server} has no key {name}; `mooring keys list {server}` shows what there is"),
        many => {
            let hints: Vec<_> = many.iter().map(|key| hint(&key.id)).collect();
            bail!("{server} has {} keys {name}: name one by its hint: {}", many.len(), hints.join(", "))
        }
    }
}

#[cfg(test)]
mod tests;
