//! How many pods there are, by their use of CPU.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Asks for a HorizontalPodAutoscaler: as many pods as it takes to keep their use of CPU at a target. It needs the
/// resource metrics API (metrics-server), and a CPU request on every container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minReplicas) || self.minReplicas <= self.maxReplicas")
    .message("minReplicas must not be above maxReplicas"))]
pub struct Autoscaling {
    /// Fewest pods. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_replicas: Option<i32>,
    /// Most pods.
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: i32,
    /// What the pods should use on average, in percent of the CPU that they request. Default: 80.
    #[serde(default, rename = "targetCPU", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub target_cpu: Option<i32>,
}

impl Autoscaling {
    /// The fewest pods, with their default.
    pub fn min_replicas(&self) -> i32 {
        self.min_replicas.unwrap_or(1)
    }

    /// The target, with its default.
    pub fn target_cpu(&self) -> i32 {
        self.target_cpu.unwrap_or(80)
    }
}
