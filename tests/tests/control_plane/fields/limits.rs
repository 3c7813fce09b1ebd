//! Fields of `limits`.

use serde_json::{Value, json};

use super::case::Pods::{self, Roll, Stay};
use super::case::{Case, Seen, case, leak};

/// Over the base with source `http`, which is [`crate::world::full`].
pub(super) fn cases() -> Vec<Case> {
    vec![
        limit("bodyBytes", 2048, "bodyBytes", 2048, Stay),
        limit("bodyBytesTotal", 8_388_608, "bodyBytesTotal", 8_388_608, Stay),
        limit("callTimeout", "90s", "callTimeoutMs", 90_000, Roll),
        limit("connections", 100, "connections", 100, Stay),
        limit("requests", 50, "requests", 50, Stay),
        limit("streamsPerPrincipal", 10, "streamsPerPrincipal", 10, Stay),
        limit("headerBytes", 32_768, "headerBytes", 32_768, Stay),
        limit("headerCount", 64, "headerCount", 64, Stay),
        limit("uriBytes", 4096, "uriBytes", 4096, Stay),
        limit("headerTimeout", "5s", "headerTimeoutMs", 5000, Stay),
        limit("bodyTimeout", "30s", "bodyTimeoutMs", 30_000, Stay),
        limit("idleTimeout", "5m", "idleTimeoutMs", 300_000, Stay),
        limit("writeTimeout", "1500ms", "writeTimeoutMs", 1500, Stay),
    ]
}

/// A field, and what the front door's config has for it.
fn limit(field: &str, value: impl Into<Value>, configured: &str, seen: impl Into<Value>, pods: Pods) -> Case {
    let value: Value = value.into();
    let patch = json!({"limits": {field: value}});
    case(leak("limits.", field), patch, Seen::Config(leak("/limits/", configured), seen.into()), pods)
}
