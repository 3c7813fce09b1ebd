//! What calls and containers may use.

use std::collections::BTreeMap;

use kube::{KubeSchema, core::Duration};
use serde::{Deserialize, Serialize};

use crate::Quantity;

/// What one call may cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Largest request body in bytes; a larger one gets 413. Default: 4194304 (4 MiB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 1_073_741_824))]
    pub body_bytes: Option<i64>,
    /// Longest time from a call's first byte to the end of its answer, for example `30m`; then it gets 504, or its
    /// stream ends. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')")
        .message("callTimeout is a duration such as 90s or 1h30m, from 1s to 24h"))]
    pub call_timeout: Option<Duration>,
}

/// The front door's own container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct FrontDoor {
    /// CPU and memory. Default: requests of 10m CPU and 32Mi memory, limits of 1 CPU and 256Mi memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
}

/// CPU, memory and other resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// What the container is given at least. Default: the limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub requests: BTreeMap<String, Quantity>,
    /// What the container is given at most. Default: none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub limits: BTreeMap<String, Quantity>,
}
