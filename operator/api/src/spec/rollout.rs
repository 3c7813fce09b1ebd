//! How pods are replaced by newer ones.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How pods are replaced by newer ones. A newer pod takes calls before an older one stops, unless pods cannot exist twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!(has(self.maxSurge) && has(self.strategy) && self.strategy == 'Recreate')")
    .message("maxSurge belongs to the strategy RollingUpdate"))]
pub struct Rollout {
    /// `RollingUpdate`: an older pod stops when a newer one is ready. `Recreate`: all older pods stop first, and nobody is
    /// served meanwhile; for pods that cannot exist twice, because of a ReadWriteOnce volume, an anti-affinity or a tight
    /// quota. Default: `RollingUpdate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RolloutStrategy>,
    /// How many pods there may be beyond the wanted number while newer ones start. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_surge: Option<i32>,
}

/// How pods are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "they are Kubernetes' own names")]
pub enum RolloutStrategy {
    #[default]
    RollingUpdate,
    Recreate,
}

impl Rollout {
    /// The strategy, with its default.
    pub fn strategy(&self) -> RolloutStrategy {
        self.strategy.unwrap_or_default()
    }

    /// The surge, with its default.
    pub fn max_surge(&self) -> i32 {
        self.max_surge.unwrap_or(1)
    }
}
