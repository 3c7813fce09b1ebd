//! Where and as what the pods run.

use serde_json::{Value, json};

use super::case::Pods::{Roll, Stay};
use super::case::{Case, DOOR, POD, Seen, case, has, is};
use crate::world::patched;

/// Over the base with source `http`, which is [`crate::world::full`].
pub(super) fn cases() -> Vec<Case> {
    let pod = |patch: Value| json!({"pod": patch});
    let toleration = json!([{"key": "k", "operator": "Exists"}]);
    let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}]}});
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    let quantities = json!({"requests": {"cpu": "20m"}, "limits": {"memory": "99Mi"}});
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
        case(
            "frontDoor.resources",
            json!({"frontDoor": {"resources": quantities}}),
            is(DOOR, "/resources", quantities.clone()),
            Roll,
        ),
        case(
            "pod.volumes",
            pod(json!({"volumes": [{"name": "v", "configMap": {"name": "c", "optional": true}}]})),
            has(
                POD,
                "/volumes",
                json!({"name": "v", "configMap": {"name": "c", "optional": true, "defaultMode": 420}}),
            ),
            Roll,
        ),
        case(
            "pod.serviceAccountName",
            pod(json!({"serviceAccountName": "default"})),
            is(POD, "/serviceAccountName", json!("default")),
            Roll,
        ),
        case(
            "no own ServiceAccount",
            pod(json!({"serviceAccountName": "default"})),
            Seen::Gone("ServiceAccount/@"),
            Roll,
        ),
        case(
            "pod.imagePullSecrets",
            pod(json!({"imagePullSecrets": [{"name": "r"}]})),
            is(POD, "/imagePullSecrets", json!([{"name": "r"}])),
            Roll,
        ),
        case(
            "pod.nodeSelector",
            pod(json!({"nodeSelector": {"a": "b"}})),
            is(POD, "/nodeSelector", json!({"a": "b"})),
            Roll,
        ),
        case(
            "pod.tolerations",
            pod(json!({"tolerations": toleration})),
            is(POD, "/tolerations", toleration.clone()),
            Roll,
        ),
        case("pod.affinity", pod(json!({"affinity": affinity})), is(POD, "/affinity", affinity.clone()), Roll),
        case(
            "pod.topologySpread",
            pod(json!({"topologySpread": spread})),
            is(POD, "/topologySpreadConstraints/0/topologyKey", json!("zone")),
            Roll,
        ),
        case(
            "pod.priorityClassName",
            pod(json!({"priorityClassName": "system-node-critical"})),
            is(POD, "/priorityClassName", json!("system-node-critical")),
            Roll,
        ),
        case(
            "pod.securityContext",
            pod(json!({"securityContext": {"runAsUser": 1234}})),
            is(POD, "/securityContext/runAsUser", json!(1234)),
            Roll,
        ),
        case(
            "pod.labels",
            pod(json!({"labels": {"a": "b"}})),
            is("/spec/template/metadata", "/labels/a", json!("b")),
            Roll,
        ),
        case(
            "pod.annotations",
            pod(json!({"annotations": {"a": "b"}})),
            is("/spec/template/metadata", "/annotations/a", json!("b")),
            Roll,
        ),
    ]
}
