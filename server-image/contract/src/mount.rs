//! Where the pod mounts what the operator writes. Secrets and the ConfigMap are mounted as directories (never by
//! `subPath`), because only directories are refreshed by the kubelet.

/// Below this path everything belongs to Mooring; a user's `volumeMounts` may not lie in it.
pub const ROOT: &str = "/etc/mooring";
/// The ConfigMap `<name>.config`.
pub const CONFIG_DIR: &str = "/etc/mooring/config";
/// The one entry of that ConfigMap.
pub const CONFIG_FILE: &str = "config.json";
/// The Secret `<name>.keys`. Its mount is optional, so that deleting the Secret empties the directory.
pub const KEYS_DIR: &str = "/etc/mooring/keys";
/// One directory for each Secret of `auth.keySecrets`, named like the Secret.
pub const KEY_SECRETS_DIR: &str = "/etc/mooring/key-secrets";
/// The Secret `<name>.session`: the token for `/status`, and one entry for each [`crate::Slot`] of a session key.
pub const SESSION_DIR: &str = "/etc/mooring/session";
/// The entry of that Secret which holds the bearer token for `/status` on the management port.
pub const STATUS_TOKEN_FILE: &str = "status-token";
/// Volume names of Mooring begin so; a user's volumes may not.
pub const VOLUME_PREFIX: &str = "mooring-";
/// The writable home directory that the user's container gets.
pub const HOME: &str = "/home/mooring";
