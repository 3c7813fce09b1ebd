//! Where and as what the pods run.

use serde_json::{Value, json};

use super::case::Pods::Roll;
use super::case::{Case, DOOR, POD, Seen, case, has, is};

/// Over the base with source `http`, which is [`crate::world::full`].
pub(super) fn cases() -> Vec<Case> {
    let pod = |patch: Value| json!({"pod": patch});
    let toleration = json!([{"key": "k", "operator": "Exists"}]);
    let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}]}});
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    let quantities = json!({"requests": {"cpu": "20m"}, "limits": {"memory": "99Mi"}});
    vec![
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
