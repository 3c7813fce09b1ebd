//! Puts the decisions together: what to mint, to revoke, to apply and to prune.

use std::collections::BTreeSet;

use jiff::Timestamp;
use mooring_api::{McpServer, Reason};
use mooring_contract::KeyEntry;

use crate::declared::declared;
use crate::desired::{self, Exposure};
use crate::observed::{ChildKind, Observed, Reference};
use crate::outcome::{Desired, Finding, Mint, Plan, Rejection};
use crate::revisions::revisions;
use crate::settings::Settings;
use crate::validate::{invalid, validate};
use crate::{autoscaling, names, peers, references, rotation};

/// What is to be done for one McpServer. The time decides about session keys and what is told of pods alone: an expired
/// API key stays in the Secret, and the front door refuses it.
pub fn plan(server: &McpServer, observed: &Observed, settings: &Settings, now: Timestamp) -> Result<Plan, Rejection> {
    validate(server)?;
    require_key_secrets(server, observed)?;
    let unwritable = |error: serde_json::Error| invalid("spec", format!("it cannot be written as JSON: {error}"));

    let mut declared = declared(server, observed).map_err(unwritable)?;
    let mut mint: Vec<_> = session(server, observed, now).into_iter().collect();
    mint.append(&mut declared.mint);
    let Exposure { ingress, url, mut findings } = desired::exposure(server, observed, settings);
    findings.extend(missing_references(server, observed));
    findings.extend(refused_keys(server, observed));
    findings.extend(observed.session.iter().filter_map(|session| rotation::waiting(server, session, observed)));
    findings.extend(peers::unreachable(server, observed, now));
    findings.extend(autoscaling::inactive(server, observed, now));

    let desired = Desired {
        service_account: desired::service_account(server),
        config_map: desired::config_map(server, observed, settings).map_err(unwritable)?,
        keys: desired::keys(server, &declared),
        network_policy: desired::network_policy(server),
        service: desired::service(server),
        deployment: desired::deployment(server, observed, settings),
        autoscaler: desired::autoscaler(server),
        disruption_budget: desired::disruption_budget(server, observed),
        ingress,
    };
    Ok(Plan {
        mint,
        prune: prune(&desired, &observed.existing_children),
        revisions: revisions(&desired.config_map, &declared, observed),
        revoke: declared.revoke,
        desired,
        url,
        findings,
    })
}

/// What is to be done with the Secret that front doors and operator share.
fn session(server: &McpServer, observed: &Observed, now: Timestamp) -> Option<Mint> {
    let Some(session) = &observed.session else { return Some(Mint::Session) };
    let (uid, resource_version) = (session.uid.clone(), session.resource_version.clone());
    rotation::step(server, session, observed, now).map(|step| Mint::SessionKeys { uid, resource_version, step })
}

/// A front door that waits for keys which do not exist would refuse everybody: only this missing reference rejects.
fn require_key_secrets(server: &McpServer, observed: &Observed) -> Result<(), Rejection> {
    let missing: Vec<_> =
        references::key_secrets(server).into_iter().filter(|name| !observed.key_secrets.contains_key(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Rejection {
        reason: Reason::KeySecretNotFound,
        field: "auth.keySecrets".to_owned(),
        message: match missing.as_slice() {
            [one] => format!("Secret {one} does not exist: create it in this namespace, or remove it here"),
            many => {
                format!("Secrets {} do not exist: create them in this namespace, or remove them here", many.join(", "))
            }
        },
    })
}

fn missing_references(server: &McpServer, observed: &Observed) -> Vec<Finding> {
    let mut located = references::of_pods(server);
    located.sort();
    let missing = located.into_iter().filter(|located| !observed.existing_references.contains(&located.reference));
    let finding = |located: references::Located| Finding {
        reason: Reason::ReferenceNotFound,
        message: format!("{} does not exist in this namespace: create it", describe(&located.reference)),
        field: located.field,
    };
    missing.map(finding).collect()
}

fn describe(reference: &Reference) -> String {
    match reference {
        Reference::Secret(name) => format!("Secret {name}"),
        Reference::ConfigMap(name) => format!("ConfigMap {name}"),
        Reference::ServiceAccount(name) => format!("ServiceAccount {name}"),
        Reference::PersistentVolumeClaim(name) => format!("PersistentVolumeClaim {name}"),
    }
}

/// Entries of key Secrets that no front door accepts. They do not end the other keys.
fn refused_keys(server: &McpServer, observed: &Observed) -> Vec<Finding> {
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let own = observed.keys.iter().flat_map(|keys| &keys.data).filter_map(|(entry, bytes)| {
        let why = match KeyEntry::parse(bytes) {
            Ok(KeyEntry::Record(_)) => return None,
            Ok(KeyEntry::Plain { .. }) => "only hashed records belong here".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(refused_key("auth.keys".to_owned(), &names::keys(name), entry, &why))
    });
    let others = observed.key_secrets.iter().flat_map(|(secret, entries)| {
        entries.iter().filter_map(move |(entry, bytes)| {
            let error = KeyEntry::parse(bytes).err()?;
            Some(refused_key(format!("auth.keySecrets[{secret}]"), secret, entry, &error.to_string()))
        })
    });
    own.chain(others).collect()
}

fn refused_key(field: String, secret: &str, entry: &str, why: &str) -> Finding {
    Finding { reason: Reason::KeyRefused, field, message: format!("key {entry} of Secret {secret} is refused: {why}") }
}

/// Optional children that are there and no longer wanted.
fn prune(desired: &Desired, existing: &BTreeSet<ChildKind>) -> Vec<ChildKind> {
    let unwanted = |kind: &ChildKind| match kind {
        ChildKind::NetworkPolicy => desired.network_policy.is_none(),
        ChildKind::Ingress => desired.ingress.is_none(),
        ChildKind::HorizontalPodAutoscaler => desired.autoscaler.is_none(),
        ChildKind::PodDisruptionBudget => desired.disruption_budget.is_none(),
        ChildKind::ServiceAccount => desired.service_account.is_none(),
    };
    existing.iter().copied().filter(unwanted).collect()
}
