//! Fixtures, and a world around each in which everything that the spec refers to exists, but for what is named
//! `missing-…`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use mooring_api::McpServer;
use mooring_contract::key::ENTROPY;
use mooring_contract::session_key::{self, Slot};
use mooring_contract::{Key, SessionKey};
use mooring_plan::observed::{Claim, DeclaredKeySecret, IngressClass, Observed, Reference, SessionSecret};
use mooring_plan::{Settings, references};

pub const PLAIN_KEY: &str = "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10";
pub const STATUS_TOKEN: &str = "a-status-token-that-nobody-may-see";

pub fn now() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

/// The McpServers in a folder beside this one, by file name.
pub fn servers(folder: &str) -> BTreeMap<String, McpServer> {
    let folder = folder_path(folder);
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let yaml = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let named = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let server = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), server)
    };
    yaml.map(named).collect()
}

pub fn folder_path(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder)
}

pub fn fixture(name: &str) -> McpServer {
    servers("fixtures").remove(name).unwrap()
}

pub fn settings(fixture: &str) -> Settings {
    Settings {
        front_door_image: "registry.example.com/mooring-server:0.1.0".to_owned(),
        front_door_pull_secrets: vec!["registry-a".to_owned()],
        base_domain: fixture.contains("base-domain").then(|| "mcp.example.net".to_owned()),
        ..Settings::default()
    }
}

/// A key for a name, always the same.
pub fn key(name: &str) -> Key {
    let mut entropy = [7; ENTROPY];
    for (byte, of_name) in entropy.iter_mut().zip(name.bytes()) {
        *byte = of_name;
    }
    Key::from_entropy(&entropy)
}

/// A session key, always the same for the same number.
pub fn session_key(number: u8) -> SessionKey {
    SessionKey::from_entropy(&[number; session_key::ENTROPY], "2026-05-20T00:00:00Z".parse().unwrap())
}

pub fn declared_key(name: &str) -> DeclaredKeySecret {
    DeclaredKeySecret {
        uid: format!("uid-of-{name}"),
        key: Some(key(name)),
        subject: format!("subject-of-{name}"),
        created: "2026-01-02T00:00:00Z".parse().unwrap(),
    }
}

pub fn world(server: &McpServer) -> Observed {
    let is_there = |name: &str| !name.starts_with("missing-");
    let name_of = |reference: &Reference| match reference {
        Reference::Secret(name)
        | Reference::ConfigMap(name)
        | Reference::ServiceAccount(name)
        | Reference::PersistentVolumeClaim(name) => name.clone(),
    };
    let class = |controller: &str, default| IngressClass { controller: controller.to_owned(), default };
    let key_secret = || BTreeMap::from([("partner".to_owned(), PLAIN_KEY.as_bytes().to_vec())]);
    Observed {
        session: Some(SessionSecret {
            uid: "uid-of-session".to_owned(),
            resource_version: "7".to_owned(),
            status_token: STATUS_TOKEN.to_owned(),
            keys: BTreeMap::from([(Slot::Current, session_key(1))]),
            rotated: None,
            settled: None,
        }),
        declared_keys: server
            .spec
            .auth
            .iter()
            .flat_map(|auth| &auth.keys)
            .map(|key| (key.name.clone(), declared_key(&key.name)))
            .collect(),
        key_secrets: references::key_secrets(server)
            .into_iter()
            .filter(|name| is_there(name))
            .map(|name| (name, key_secret()))
            .collect(),
        existing_references: references::references(server)
            .into_iter()
            .filter(|reference| is_there(&name_of(reference)))
            .collect(),
        ingress_classes: Some(BTreeMap::from([
            ("nginx".to_owned(), class("k8s.io/ingress-nginx", false)),
            ("traefik".to_owned(), class("traefik.io/ingress-controller", true)),
        ])),
        older_claims: vec![Claim {
            host: "taken.example.com".to_owned(),
            path: "/".to_owned(),
            by: "other/older".to_owned(),
        }],
        ..Observed::default()
    }
}
