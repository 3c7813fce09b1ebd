//! The pods' identity: no right, and no token.

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt as _;
use mooring_api::McpServer;

use crate::names;

/// The ServiceAccount, unless the spec names one.
pub(crate) fn service_account(server: &McpServer) -> Option<ServiceAccount> {
    let named = server.spec.pod.as_ref().is_some_and(|pod| pod.service_account_name.is_some());
    (!named).then(|| ServiceAccount {
        metadata: names::metadata(server, server.name_any()),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    })
}
