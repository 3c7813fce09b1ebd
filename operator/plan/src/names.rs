//! What children are called and labelled, and whose they are. Names of Secrets and the ConfigMap have dots, which no
//! McpServer name contains, so no two servers' children collide.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt as _};
use mooring_api::McpServer;

/// Label `app.kubernetes.io/name` of everything that Mooring makes for a server.
pub const APP: &str = "mooring-server";
/// The front door's container.
pub const FRONT_DOOR: &str = "front-door";
/// The user's container.
pub const SERVER: &str = "server";

const LABEL_NAME: &str = "app.kubernetes.io/name";
const LABEL_INSTANCE: &str = "app.kubernetes.io/instance";
const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label of a Secret `<name>.key.<key>`: the key's name in `auth.keys`.
pub const LABEL_KEY: &str = "mooring.dev/key";

/// On the Deployment: generation of the McpServer that it was last applied for.
pub const ANNOTATION_GENERATION: &str = "mooring.dev/generation";
/// On `<name>.keys`: a JSON object, declared key name to the public id that was applied.
pub const ANNOTATION_DECLARED: &str = "mooring.dev/declared";
/// On `<name>.keys`: a JSON object, declared key name to its principal, so that a rotation can copy it.
pub const ANNOTATION_SUBJECTS: &str = "mooring.dev/subjects";
/// On `<name>.key.<key>`: the principal that sessions are bound to.
pub const ANNOTATION_SUBJECT: &str = "mooring.dev/subject";
/// On the McpServer, set by people: whenever its value changes, the keys that seal sessions are rotated once.
pub const ANNOTATION_ROTATE: &str = "mooring.dev/rotate-session-keys";
/// On `<name>.session`: the value of [`ANNOTATION_ROTATE`] that was heeded last.
pub const ANNOTATION_ROTATED: &str = "mooring.dev/rotated-session-keys";
/// On `<name>.session`: since when every front door seals with the current key, where there is one before it.
pub const ANNOTATION_SETTLED: &str = "mooring.dev/settled-session-keys";
/// On pods: the only thing that the operator writes there; a change makes the kubelet refresh the mounts.
pub const ANNOTATION_REFRESH: &str = "mooring.dev/refresh";

/// The ConfigMap with the front door's config.
pub fn config(server: &str) -> String {
    format!("{server}.config")
}

/// The Secret with the records of all keys.
pub fn keys(server: &str) -> String {
    format!("{server}.keys")
}

/// The Secret with what the front doors and the operator share.
pub fn session(server: &str) -> String {
    format!("{server}.session")
}

/// The Secret with the text of a declared key.
pub fn declared_key(server: &str, key: &str) -> String {
    format!("{server}.key.{key}")
}

/// The key's name, when `secret` is the name of a declared key's Secret of `server`.
pub fn declared_key_of<'a>(server: &str, secret: &'a str) -> Option<&'a str> {
    secret.strip_prefix(server)?.strip_prefix(".key.")
}

/// Labels that select the pods of a server. They never change, because a Deployment's selector cannot.
pub fn selector_labels(server: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(LABEL_NAME.to_owned(), APP.to_owned()), (LABEL_INSTANCE.to_owned(), server.to_owned())])
}

/// The same as text, for list calls and for autoscalers.
pub fn selector(server: &str) -> String {
    format!("{LABEL_NAME}={APP},{LABEL_INSTANCE}={server}")
}

/// Selects everything that Mooring makes for any server.
pub fn selector_of_all() -> String {
    format!("{LABEL_NAME}={APP},{LABEL_MANAGED_BY}=mooring")
}

/// Labels of every child.
pub fn labels(server: &str) -> BTreeMap<String, String> {
    let mut labels = selector_labels(server);
    labels.insert(LABEL_MANAGED_BY.to_owned(), "mooring".to_owned());
    labels
}

/// The server's namespace; an McpServer from the API always has one.
pub fn namespace(server: &McpServer) -> String {
    server.namespace().unwrap_or_default()
}

/// The owner reference of every child. It does not block the deletion of the owner: nothing here needs an order, and
/// where the cluster checks that right (OwnerReferencesPermissionEnforcement), the API server refuses it for up to half a
/// minute after the CRD was made, because it does not know the kind yet.
pub fn owner_reference(server: &McpServer) -> Option<OwnerReference> {
    let reference = server.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: None, ..reference })
}

/// Metadata of a child.
pub fn metadata(server: &McpServer, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: server.namespace(),
        labels: Some(labels(&server.name_any())),
        owner_references: owner_reference(server).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    }
}
