//! The life of keys, played through: each pass plans, and what it plans is done, as `apply` does it.

use std::collections::{BTreeMap, BTreeSet};

use mooring_api::McpServer;
use mooring_contract::key::ENTROPY;
use mooring_contract::{Key, KeyRecord};
use mooring_plan::observed::{DeclaredKeySecret, KeysSecret, Observed, SessionSecret};
use mooring_plan::outcome::{Mint, Plan};
use mooring_plan::plan::plan;
use mooring_plan::{mint, names};

use crate::world::{fixture, now, session_key, settings};

/// A control plane, as far as keys are concerned.
struct Cluster {
    server: McpServer,
    observed: Observed,
    minted: u8,
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self { server: fixture("keys-declared"), observed: Observed::default(), minted: 0 };
        cluster.settle();
        cluster
    }

    /// Plans and applies until there is nothing left to do.
    fn settle(&mut self) -> Plan {
        for _ in 0..6 {
            let plan = plan(&self.server, &self.observed, &settings(""), now()).unwrap();
            if plan.mint.is_empty() && plan.revoke.is_empty() && plan.revisions.keys.is_some() {
                return plan;
            }
            self.apply(plan);
        }
        panic!("it does not settle");
    }

    fn apply(&mut self, plan: Plan) {
        let minting = !plan.mint.is_empty();
        for mint in plan.mint {
            self.mint(mint);
        }
        if minting {
            return; // what was made is read back first
        }
        for revoke in plan.revoke {
            assert_eq!(self.observed.declared_keys.remove(&revoke.key).unwrap().uid, revoke.uid);
        }
        // Server-side apply: our entries are replaced, others' stay.
        let before = self.observed.keys.take().unwrap_or_default();
        let ours: BTreeSet<_> = before.declared.values().cloned().collect();
        let applied = KeysSecret::from_secret(&plan.desired.keys);
        let others = before.data.into_iter().filter(|(id, _)| !ours.contains(id));
        self.observed.keys = Some(KeysSecret { data: others.chain(applied.data.clone()).collect(), ..applied });
    }

    fn mint(&mut self, what: Mint) {
        self.minted += 1;
        match what {
            Mint::Session => {
                let secret = mint::session_secret(&self.server, "token", &session_key(1)).unwrap();
                self.observed.session = Some(SessionSecret::from_secret(&secret));
            }
            Mint::SessionKeys { .. } => panic!("a Secret that was just made has its key"),
            Mint::DeclaredKey { key: name, subject } => {
                let key = Key::from_entropy(&[self.minted; ENTROPY]);
                let subject = subject.unwrap_or_else(|| format!("random-{}", self.minted));
                let secret = mint::declared_key_secret(&self.server, &name, &key, &subject);
                assert_eq!(names::declared_key_of("keyed", secret.metadata.name.as_ref().unwrap()), Some(&*name));
                let mut stored = DeclaredKeySecret::from_secret(&secret);
                stored.uid = format!("uid-{}", self.minted);
                assert_eq!(stored.key.as_ref(), Some(&key));
                self.observed.declared_keys.insert(name, stored);
            }
        }
    }

    fn keys(&mut self) -> &mut KeysSecret {
        self.observed.keys.as_mut().unwrap()
    }

    fn id(&self, name: &str) -> String {
        self.observed.declared_keys[name].key.as_ref().unwrap().id().to_owned()
    }

    fn record(&self, id: &str) -> Option<KeyRecord> {
        let bytes = self.observed.keys.as_ref()?.data.get(id)?;
        Some(KeyRecord::parse(std::str::from_utf8(bytes).unwrap()).unwrap())
    }
}

#[test]
fn declared_keys_are_minted_and_their_hashes_applied() {
    let cluster = Cluster::new();
    assert_eq!(cluster.observed.declared_keys.keys().collect::<Vec<_>>(), ["ci", "laptop", "old"]);
    let record = cluster.record(&cluster.id("ci")).unwrap();
    assert_eq!(record.metadata.name, "ci");
    assert_eq!(record.metadata.expires.unwrap().to_string(), "2027-01-01T00:00:00Z");
    assert_eq!(record.key_hash, cluster.observed.declared_keys["ci"].key.as_ref().unwrap().hash());
    assert!(cluster.record(&cluster.id("old")).unwrap().is_expired(now()), "an expired key is no error");
}

#[test]
fn deleting_the_secret_of_a_key_rotates_it_and_keeps_its_principal() {
    let mut cluster = Cluster::new();
    let old = cluster.id("laptop");
    let subject = cluster.record(&old).unwrap().metadata.subject;
    cluster.observed.declared_keys.remove("laptop");
    cluster.settle();
    assert_ne!(cluster.id("laptop"), old);
    assert_eq!(cluster.record(&old), None);
    assert_eq!(cluster.record(&cluster.id("laptop")).unwrap().metadata.subject, subject);
}

#[test]
fn deleting_a_declared_entry_rotates_the_key_and_keeps_its_principal() {
    let mut cluster = Cluster::new();
    let (old, other) = (cluster.id("laptop"), cluster.id("ci"));
    let subject = cluster.record(&old).unwrap().metadata.subject;
    cluster.keys().data.remove(&old);
    cluster.settle();
    assert_ne!(cluster.id("laptop"), old);
    assert_eq!(cluster.record(&old), None);
    assert_eq!(cluster.record(&cluster.id("laptop")).unwrap().metadata.subject, subject);
    assert_eq!(cluster.id("ci"), other, "other keys stay");
}

/// Between any two steps the operator may be killed: the entry is gone, and never comes back.
#[test]
fn a_deleted_entry_is_not_restored_by_any_pass() {
    let mut cluster = Cluster::new();
    let old = cluster.id("laptop");
    cluster.keys().data.remove(&old);
    for _ in 0..4 {
        let plan = plan(&cluster.server, &cluster.observed, &settings(""), now()).unwrap();
        assert!(!KeysSecret::from_secret(&plan.desired.keys).data.contains_key(&old));
        cluster.apply(plan);
        assert_eq!(cluster.record(&old), None);
    }
}

#[test]
fn deleting_all_records_restores_declared_keys_and_ends_all_others() {
    let mut cluster = Cluster::new();
    let (laptop, foreign) = (cluster.id("laptop"), crate::world::key("foreign"));
    let (id, record) = mint::key_record(&foreign, "console", "somebody", now(), None);
    cluster.keys().data.insert(id.clone(), record.to_json().unwrap().into_bytes());
    cluster.settle();
    assert!(cluster.record(&id).is_some(), "an entry of others survives every apply");
    cluster.observed.keys = None;
    cluster.settle();
    assert_eq!(cluster.id("laptop"), laptop, "the same key works again");
    assert!(cluster.record(&laptop).is_some());
    assert_eq!(cluster.record(&id), None);
}

#[test]
fn a_key_that_is_no_longer_declared_ends() {
    let mut cluster = Cluster::new();
    let (laptop, ci) = (cluster.id("laptop"), cluster.id("ci"));
    cluster.server.spec.auth.as_mut().unwrap().keys.retain(|key| key.name != "laptop");
    cluster.settle();
    assert!(!cluster.observed.declared_keys.contains_key("laptop"));
    assert_eq!(cluster.record(&laptop), None);
    assert!(cluster.record(&ci).is_some());
    cluster.server.spec.auth = None;
    let plan = cluster.settle();
    assert_eq!(cluster.observed.declared_keys, BTreeMap::new());
    assert_eq!(plan.desired.keys.data, None);
    assert_eq!(plan.desired.keys.metadata.annotations, None);
}

#[test]
fn a_secret_that_somebody_overwrote_is_made_anew() {
    let mut cluster = Cluster::new();
    let old = cluster.id("laptop");
    let subject = cluster.record(&old).unwrap().metadata.subject;
    cluster.observed.declared_keys.get_mut("laptop").unwrap().key = None;
    cluster.settle();
    assert_ne!(cluster.id("laptop"), old);
    assert_eq!(cluster.record(&cluster.id("laptop")).unwrap().metadata.subject, subject);
}

#[test]
fn a_lost_principal_is_never_shared() {
    let mut cluster = Cluster::new();
    for stored in cluster.observed.declared_keys.values_mut() {
        stored.subject.clear();
    }
    let before: Vec<_> = cluster.keys().subjects.values().cloned().collect();
    cluster.settle();
    assert_eq!(cluster.keys().subjects.values().cloned().collect::<Vec<_>>(), before);
    cluster.observed.keys = None;
    cluster.settle();
    let subjects: BTreeSet<_> = cluster.keys().subjects.values().cloned().collect();
    assert_eq!(subjects.len(), 3);
    assert!(!subjects.contains(""));
}

#[test]
fn a_weak_entry_is_refused_by_name_and_the_others_stay() {
    let server = fixture("keys-from-secrets");
    let mut observed = crate::world::world(&server);
    observed.key_secrets.get_mut("from-vault").unwrap().insert("weak".to_owned(), b"hunter2".to_vec());
    observed.keys = Some(KeysSecret {
        data: BTreeMap::from([("plain".to_owned(), crate::world::PLAIN_KEY.as_bytes().to_vec())]),
        ..KeysSecret::default()
    });
    let plan = plan(&server, &observed, &settings(""), now()).unwrap();
    let findings: Vec<_> =
        plan.findings.iter().map(|finding| format!("{}: {}", finding.field, finding.message)).collect();
    insta::assert_yaml_snapshot!(findings);
}
