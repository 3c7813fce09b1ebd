//! How many pods there are, and how newer ones replace them.

use serde_json::{Value, json};

use super::case::Pods::{Roll, Stay};
use super::case::{Case, Seen, case, is};
use crate::world::patched;

/// Over the base with source `http`, which is [`crate::world::full`].
pub(super) fn cases() -> Vec<Case> {
    let scaled = |patch: Value| {
        let autoscaling = patched(&json!({"maxReplicas": 3}), &patch);
        json!({"http": {"resources": {"requests": {"cpu": "10m"}}}, "autoscaling": autoscaling})
    };
    vec![
        case("replicas", json!({"replicas": 2}), is("/spec", "/replicas", json!(2)), Stay),
        case(
            "replicas and the budget of drains",
            json!({"replicas": 2}),
            Seen::Is("PodDisruptionBudget/@", "/spec/unhealthyPodEvictionPolicy", json!("AlwaysAllow")),
            Stay,
        ),
        case(
            "autoscaling.minReplicas",
            scaled(json!({"minReplicas": 2})),
            Seen::Is("HorizontalPodAutoscaler/@", "/spec/minReplicas", json!(2)),
            Roll, // by the CPU that the server requests
        ),
        case(
            "autoscaling.maxReplicas",
            scaled(json!({})),
            Seen::Is("HorizontalPodAutoscaler/@", "/spec/maxReplicas", json!(3)),
            Roll,
        ),
        case(
            "autoscaling.targetCPU",
            scaled(json!({"targetCPU": 50})),
            Seen::Is(
                "HorizontalPodAutoscaler/@",
                "/spec/metrics/0/resource/target",
                json!({"type": "Utilization", "averageUtilization": 50}),
            ),
            Roll,
        ),
        case(
            "rollout.strategy",
            json!({"rollout": {"strategy": "Recreate"}}),
            is("/spec", "/strategy", json!({"type": "Recreate"})),
            Stay,
        ),
        case(
            "rollout.maxSurge",
            json!({"rollout": {"maxSurge": 3}}),
            is("/spec", "/strategy/rollingUpdate", json!({"maxSurge": 3, "maxUnavailable": 0})),
            Stay,
        ),
    ]
}
