//! Secrets with random content: made once by POST, never applied. Where one is there already it is read back. The
//! session keys of one that is there are changed by patches.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mooring_contract::key::{ENTROPY, base62};
use mooring_contract::{Key, SessionKey, session_key};
use mooring_plan::outcome::Mint;
use mooring_plan::{FIELD_MANAGER, mint, names};

use super::{ApplyError, Done, Owner, Writer, name_conflict};
use crate::clock;
use crate::key::{ChildKey, Kind, ServerKey};
use crate::limit;
use crate::observe::is_owned_by;
use crate::random;
use mooring_api::{McpServer, Reason};
use mooring_plan::Applied;

/// Digits of 32 random bytes in base 62.
const TOKEN_DIGITS: usize = 43;
/// Digits of 16 random bytes in base 62.
const SUBJECT_DIGITS: usize = 22;

impl Writer {
    /// Makes the Secrets that a plan asks for. What is refused or in somebody else's hands is told in the result; where
    /// that is empty, everything is there and can be planned with.
    pub async fn mint(&self, key: &ServerKey, server: &McpServer, wanted: &[Mint]) -> Result<Applied, ApplyError> {
        let owner = Owner { key, server };
        let made = futures::future::join_all(wanted.iter().map(|mint| self.mint_one(owner, mint))).await;
        let mut applied = Applied::default();
        for one in made {
            match one? {
                Done::Applied => {}
                Done::Refused(finding) => applied.refused.push(finding),
                Done::Waiting => applied.waiting = true,
            }
        }
        Ok(applied)
    }

    async fn mint_one(&self, owner: Owner<'_>, wanted: &Mint) -> Result<Done, ApplyError> {
        let secret = match wanted {
            Mint::Session => {
                let token = base62(&random::bytes::<32>()?, TOKEN_DIGITS);
                mint::session_secret(owner.server, &token, &new_session_key()?)?
            }
            Mint::SessionKeys { uid, resource_version, step } => {
                let seen = (uid.as_str(), resource_version.as_str());
                let patch = mint::session_keys_patch(owner.server, seen, step, &new_session_key()?, clock::now())?;
                return self.patch_session(owner, patch).await;
            }
            Mint::DeclaredKey { key, subject } => {
                let subject = match subject {
                    Some(subject) => subject.clone(),
                    None => new_subject()?,
                };
                let made = Key::from_entropy(&random::bytes::<ENTROPY>()?);
                mint::declared_key_secret(owner.server, key, &made, &subject)
            }
        };
        let name = secret.metadata.name.clone().unwrap_or_default();
        let child = ChildKey { kind: Kind::Secret, namespace: owner.key.namespace.clone(), name };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &child.namespace);
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match limit::call(api.create(&params, &secret)).await {
            Ok(secret) => {
                self.metrics.wrote(Kind::Secret.as_str());
                self.world.secrets.put(&child.namespace, &child.name, secret);
                Ok(Done::Applied)
            }
            Err(error) if error.code() == Some(409) => self.read_back(owner, &child).await,
            Err(error) if error.is_refusal() => Ok(super::finding(&child, Reason::ChildRefused, error.to_string())),
            Err(source) => Err(ApplyError::Write { child, source }),
        }
    }

    /// Changes `<name>.session`. Where it is another one by now, the next look decides anew.
    async fn patch_session(&self, owner: Owner<'_>, patch: serde_json::Value) -> Result<Done, ApplyError> {
        let ServerKey { namespace, name } = owner.key;
        let child = ChildKey { kind: Kind::Secret, namespace: namespace.clone(), name: names::session(name) };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match limit::call(api.patch(&child.name, &params, &Patch::Merge(patch))).await {
            Ok(secret) => {
                self.metrics.wrote(Kind::Secret.as_str());
                self.world.secrets.put(namespace, &child.name, secret);
                Ok(Done::Applied)
            }
            Err(error) if matches!(error.code(), Some(404 | 409)) => {
                self.world.secrets.forget(namespace, &child.name);
                Ok(Done::Applied)
            }
            Err(error) if error.is_refusal() => {
                let message = format!(
                    "a step of the rotation of the session keys was refused, and they stay as they are: {error}"
                );
                Ok(super::finding(&child, Reason::SessionKeysWaiting, message))
            }
            Err(source) => Err(ApplyError::Write { child, source }),
        }
    }

    /// A Secret of that name is there already: ours, an earlier server's, or somebody else's.
    async fn read_back(&self, owner: Owner<'_>, child: &ChildKey) -> Result<Done, ApplyError> {
        let Some(secret) = self.observer.get_secret(&child.namespace, &child.name).await? else {
            return Ok(Done::Waiting); // gone again meanwhile
        };
        if is_owned_by(&secret, owner.server) && secret.metadata.deletion_timestamp.is_none() {
            return Ok(Done::Applied);
        }
        self.world.secrets.forget(&child.namespace, &child.name);
        let owners = secret.metadata.owner_references.iter().flatten();
        let ours_once = owners
            .into_iter()
            .any(|other| other.controller == Some(true) && other.kind == "McpServer" && other.name == owner.key.name);
        Ok(if ours_once { Done::Waiting } else { name_conflict(child) })
    }
}

fn new_session_key() -> Result<SessionKey, random::RandomError> {
    Ok(SessionKey::from_entropy(&random::bytes::<{ session_key::ENTROPY }>()?, clock::now()))
}

/// A new principal.
pub fn new_subject() -> Result<String, random::RandomError> {
    Ok(base62(&random::bytes::<16>()?, SUBJECT_DIGITS))
}
