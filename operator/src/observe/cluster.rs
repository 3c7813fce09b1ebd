//! Asks the cluster, before anything else, whether the operator can work in it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::version::Info;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use mooring_api::McpServer;

use crate::limit::{self, CallError};
use crate::watch::Scope;

/// The oldest minor version of Kubernetes 1 with native sidecars switched on, which `http` servers are.
const OLDEST_MINOR: u32 = 29;
/// OpenShift's API group of the objects by which it assigns user ids.
const ASSIGNS_USERS: &str = "security.openshift.io";
/// How often to look whether the CRD is there.
const LOOK: Duration = Duration::from_secs(2);

/// Why the operator cannot work in this cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Too old.
    #[error(
        "this is Kubernetes {0}; Mooring needs 1.{OLDEST_MINOR} or newer, because it runs servers as native sidecars"
    )]
    TooOld(String),
    /// No answer.
    #[error("the API server cannot be asked for its version: {0}")]
    Call(#[from] CallError),
}

/// Refuses a Kubernetes that is too old, and tells whether the cluster assigns user ids by namespace.
pub async fn check(client: &Client) -> Result<bool, ClusterError> {
    let version = limit::call(client.apiserver_version()).await?;
    if is_too_old(&version) {
        return Err(ClusterError::TooOld(version.git_version));
    }
    let groups = limit::call(client.list_api_groups()).await?;
    Ok(groups.groups.iter().any(|group| group.name == ASSIGNS_USERS))
}

fn is_too_old(version: &Info) -> bool {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().ok();
    match (number(&version.major), number(&version.minor)) {
        (Some(1), Some(minor)) => minor < OLDEST_MINOR,
        _ => false, // a numbering that we do not know is not older
    }
}

/// Waits until the API server knows McpServers.
pub async fn await_definition(client: &Client, scope: &Scope) {
    let api: Api<PartialObjectMeta<McpServer>> = match scope {
        Scope::Namespaces(namespaces) if !namespaces.is_empty() => {
            Api::namespaced(client.clone(), namespaces.first().map_or("default", String::as_str))
        }
        _ => Api::all(client.clone()),
    };
    let mut looks = 0_u32;
    loop {
        match limit::call(api.list_metadata(&ListParams::default().limit(1))).await {
            Ok(_) => return,
            Err(error) if looks.is_multiple_of(15) => {
                let missing = error.code() == Some(404);
                let hint =
                    if missing { "the CRD is missing: apply the output of `mooring crd`" } else { "it is tried again" };
                tracing::warn!(%error, hint, "McpServers cannot be listed yet; the operator waits, not ready");
            }
            Err(_) => {}
        }
        looks = looks.saturating_add(1);
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_judged_by_their_numbers() {
        let version = |major: &str, minor: &str| Info { major: major.into(), minor: minor.into(), ..Info::default() };
        for (major, minor, too_old) in [
            ("1", "28", true),
            ("1", "28+", true),
            ("1", "29", false),
            ("1", "35+", false),
            ("2", "0", false),
            ("", "", false),
        ] {
            assert_eq!(is_too_old(&version(major, minor)), too_old, "{major}.{minor}");
        }
    }
}
