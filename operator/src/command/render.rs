//! `mooring render`: the exact children of McpServers, without a cluster, for review before they are merged.
//!
//! It plans as the operator does, in a world where everything that the spec refers to exists. What the operator makes
//! at random is shown as a placeholder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use mooring_api::McpServer;
use mooring_contract::key::ENTROPY;
use mooring_contract::session_key::{self, Slot};
use mooring_contract::{Key, SessionKey};
use mooring_plan::observed::{DeclaredKeySecret, IngressClass, KeysSecret, SessionSecret};
use mooring_plan::{Desired, Observed, Settings, claims, mint, names, plan, references};
use serde_json::{Value, json};

use crate::cli;

/// Stands for what the operator makes at random.
const GENERATED: &str = "<generated>";
/// Stands for the UID that the API server gives.
const UID: &str = "00000000-0000-0000-0000-000000000000";

/// The children of every McpServer in the file, as YAML documents.
pub fn run(arguments: &cli::Render) -> anyhow::Result<String> {
    let text = read(&arguments.file)?;
    let servers = parse(&text, &arguments.namespace)?;
    let settings = arguments.shape.settings();
    let mut out = String::new();
    for server in &servers {
        let others = servers.iter().filter(|other| !std::ptr::eq(*other, server));
        let older = others.filter(|other| claims::is_older(other, server));
        let older_claims = older.flat_map(|other| claims::claims(other, &settings)).collect();
        let observed = Observed { older_claims, ..observed(server, arguments.ingress_controller.as_deref()) };
        out += &render(server, &observed, &settings)?;
    }
    Ok(out)
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The McpServers of a file with one or more documents. Other objects in it are none of ours.
pub fn parse(text: &str, namespace: &str) -> anyhow::Result<Vec<McpServer>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("this is no YAML")?;
    let mut servers = Vec::new();
    for (number, document) in (1..).zip(documents) {
        let field = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
        let ours = field("apiVersion").starts_with(mooring_api::GROUP) || field("kind") == McpServer::kind(&());
        if !ours {
            continue;
        }
        servers.push(parse_one(&document, namespace).with_context(|| format!("document {number}"))?);
    }
    if servers.is_empty() {
        bail!("there is no McpServer in it");
    }
    Ok(servers)
}

fn parse_one(document: &Value, namespace: &str) -> anyhow::Result<McpServer> {
    let field = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (McpServer::api_version(&()), McpServer::kind(&()));
    if field("apiVersion") != version || field("kind") != kind {
        let found = |name: &str| Some(field(name)).filter(|text| !text.is_empty()).unwrap_or("(nothing)").to_owned();
        bail!("apiVersion and kind are {} {}, not {version} {kind}", found("apiVersion"), found("kind"));
    }
    let mut server: McpServer = serde_path_to_error::deserialize(document).map_err(|error| {
        let path = error.path().to_string();
        anyhow::anyhow!("{path}: {}", error.into_inner())
    })?;
    if server.metadata.name.as_deref().unwrap_or_default().is_empty() {
        bail!("metadata.name: it is missing");
    }
    let known = serde_json::to_value(&server)?;
    if let Some(path) = unknown_field(document.get("spec"), known.get("spec"), "spec") {
        bail!("{path}: there is no such field");
    }
    server.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
    server.metadata.uid.get_or_insert_with(|| UID.to_owned());
    server.metadata.generation.get_or_insert(1);
    Ok(server)
}

/// The first field that was written and is not read. Empty values are read and leave no trace.
fn unknown_field(written: Option<&Value>, read: Option<&Value>, path: &str) -> Option<String> {
    match (written?, read) {
        (Value::Object(written), Some(Value::Object(read))) => written.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            if read.contains_key(name) || is_empty(value) {
                unknown_field(Some(value), read.get(name), &path)
            } else {
                Some(path)
            }
        }),
        (Value::Array(written), Some(Value::Array(read))) => (0..)
            .zip(written)
            .find_map(|(index, value)| unknown_field(Some(value), read.get(index), &format!("{path}[{index}]"))),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// A world in which everything exists that the server refers to, and every key was made.
fn observed(server: &McpServer, ingress_controller: Option<&str>) -> Observed {
    let session = SessionSecret {
        uid: UID.to_owned(),
        resource_version: String::new(),
        status_token: GENERATED.to_owned(),
        keys: BTreeMap::from([(Slot::Current, no_session_key())]),
        rotated: server.annotations().get(names::ANNOTATION_ROTATE).cloned(),
        settled: None,
    };
    let declared = server.spec.auth.iter().flat_map(|auth| &auth.keys);
    let declared_keys = (1..).zip(declared).map(|(number, declared)| {
        let secret = DeclaredKeySecret {
            uid: UID.to_owned(),
            key: Some(Key::from_entropy(&[number; ENTROPY])),
            subject: GENERATED.to_owned(),
            created: Timestamp::UNIX_EPOCH,
        };
        (declared.name.clone(), secret)
    });
    let class =
        server.spec.ingress.as_ref().map(|ingress| ingress.class_name.clone().unwrap_or_else(|| "default".to_owned()));
    let controller = ingress_controller.unwrap_or_default().to_owned();
    Observed {
        keys: Some(KeysSecret::default()),
        session: Some(session),
        declared_keys: declared_keys.collect(),
        key_secrets: references::key_secrets(server).into_iter().map(|name| (name, BTreeMap::new())).collect(),
        existing_references: references::references(server),
        ingress_classes: class.map(|name| BTreeMap::from([(name, IngressClass { controller, default: true })])),
        ..Observed::default()
    }
}

/// Stands where a session key is; its content is not shown.
fn no_session_key() -> SessionKey {
    SessionKey::from_entropy(&[0; session_key::ENTROPY], Timestamp::UNIX_EPOCH)
}

/// The documents of one server.
pub fn render(server: &McpServer, observed: &Observed, settings: &Settings) -> anyhow::Result<String> {
    let (namespace, name) = (names::namespace(server), server.name_any());
    let plan = plan::plan(server, observed, settings, Timestamp::UNIX_EPOCH).map_err(|rejection| {
        anyhow::anyhow!("{namespace}/{name}: {}: {} ({})", rejection.field, rejection.message, rejection.reason)
    })?;
    let mut out = format!("# McpServer {namespace}/{name}\n");
    writeln!(out, "# url: {}", plan.url)?;
    out += "# What the operator makes at random, and UIDs, are shown as placeholders.\n";
    for finding in &plan.findings {
        writeln!(out, "# {}: {} ({})", finding.field, finding.message, finding.reason)?;
    }
    document(
        &mut out,
        &without_content(serde_json::to_value(mint::session_secret(server, GENERATED, &no_session_key())?)?),
    )?;
    for declared in server.spec.auth.iter().flat_map(|auth| &auth.keys) {
        let key = Key::from_entropy(&[0; ENTROPY]);
        let secret = mint::declared_key_secret(server, &declared.name, &key, GENERATED);
        document(&mut out, &without_content(serde_json::to_value(secret)?))?;
    }
    let Desired {
        service_account,
        config_map,
        keys,
        network_policy,
        service,
        deployment,
        autoscaler,
        disruption_budget,
        ingress,
    } = &plan.desired;
    optional(&mut out, service_account.as_ref())?;
    document(&mut out, &serde_json::to_value(config_map)?)?;
    document(&mut out, &without_key_ids(serde_json::to_value(keys)?, observed))?;
    optional(&mut out, network_policy.as_ref())?;
    document(&mut out, &serde_json::to_value(service)?)?;
    document(&mut out, &serde_json::to_value(deployment)?)?;
    optional(&mut out, autoscaler.as_ref())?;
    optional(&mut out, disruption_budget.as_ref())?;
    optional(&mut out, ingress.as_ref())?;
    Ok(out)
}

fn optional<T: serde::Serialize>(out: &mut String, object: Option<&T>) -> anyhow::Result<()> {
    match object {
        Some(object) => document(out, &serde_json::to_value(object)?),
        None => Ok(()),
    }
}

fn document(out: &mut String, object: &Value) -> anyhow::Result<()> {
    write!(out, "---\n{}", serde_saphyr::to_string(object)?)?;
    if !out.ends_with('\n') {
        out.push('\n');
    }
    Ok(())
}

/// A Secret with placeholders for its bytes.
fn without_content(mut secret: Value) -> Value {
    let entries: BTreeSet<String> =
        secret.get("data").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name.clone()).collect();
    if let Some(fields) = secret.as_object_mut() {
        fields.remove("data");
        let placeholders: serde_json::Map<String, Value> =
            entries.into_iter().map(|name| (name, json!(GENERATED))).collect();
        fields.insert("stringData".to_owned(), Value::Object(placeholders));
    }
    secret
}

/// `<name>.keys` with placeholders for what follows from the keys.
fn without_key_ids(mut secret: Value, observed: &Observed) -> Value {
    let name_of = |id: &str| {
        let mut keys = observed.declared_keys.iter();
        keys.find(|(_, secret)| secret.key.as_ref().is_some_and(|key| key.id() == id)).map(|(name, _)| name.clone())
    };
    let entries = secret.get("data").and_then(Value::as_object).into_iter().flatten();
    let placeholders: serde_json::Map<String, Value> = entries
        .map(|(id, _)| (format!("<id of {}>", name_of(id).unwrap_or_default()), json!("<record: hash, name, dates>")))
        .collect();
    let Some(fields) = secret.as_object_mut() else { return secret };
    if fields.remove("data").is_some() {
        fields.insert("stringData".to_owned(), Value::Object(placeholders));
    }
    let annotations = fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(Value::Object(annotations)) = annotations {
        for annotation in [names::ANNOTATION_DECLARED, names::ANNOTATION_SUBJECTS] {
            if let Some(value) = annotations.get_mut(annotation) {
                *value = json!(GENERATED);
            }
        }
    }
    secret
}

#[cfg(test)]
mod tests;
