//! Laws for every spec and every world, as proptest finds them.

use std::collections::BTreeSet;

use mooring_api::{McpServer, McpServerStatus, Reason};
use mooring_plan::observed::{Door, Observed, ObservedPod};
use mooring_plan::outcome::{Finding, Plan};
use mooring_plan::plan::plan;
use mooring_plan::status::next_change;
use mooring_plan::{Applied, names};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use crate::bundles::document;
use crate::statuses::{after, after_with, deployment, handshaken, pod, pods, refused, running, terminated, waiting};
use crate::world::{PLAIN_KEY, STATUS_TOKEN, key, now, session_key, settings, world};

/// A field that is absent, or has one of these values.
fn maybe(values: Vec<Value>) -> impl Strategy<Value = Option<Value>> {
    proptest::option::of(select(values))
}

/// Some of these, in their order.
fn some(values: Vec<Value>) -> impl Strategy<Value = Value> {
    let count = values.len();
    subsequence(values, 0..=count).prop_map(Value::from)
}

fn http() -> impl Strategy<Value = Value> {
    let env = some(vec![
        json!({"name": "HOME", "value": "/srv"}),
        json!({"name": "A", "value": ""}),
        json!({"name": "B", "valueFrom": {"secretKeyRef": {"name": "missing-b", "key": "b"}}}),
        json!({"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "c", "optional": true}}}),
    ]);
    let mounts = some(vec![json!({"name": "b", "mountPath": "/b"}), json!({"name": "a", "mountPath": "/a"})]);
    let context = maybe(vec![json!({}), json!({"runAsUser": 1, "capabilities": {"add": [], "drop": []}})]);
    let resources = maybe(vec![json!({}), json!({"limits": {}, "requests": {"cpu": 1}})]);
    let path = maybe(vec![json!("/mcp"), json!("/a/mcp/")]);
    (env, mounts, context, resources, path, any::<bool>()).prop_map(|(env, mounts, context, resources, path, args)| {
        json!({
            "image": "a", "env": env, "volumeMounts": mounts, "securityContext": context, "resources": resources,
            "path": path, "args": if args { json!(["--a", "$(B)"]) } else { json!([]) },
            "envFrom": [{"secretRef": {"name": "from"}}],
        })
    })
}

fn tools() -> impl Strategy<Value = Value> {
    let header = |name: &str, secret: &str| json!({"name": name, "secret": {"name": secret, "key": "k"}});
    let headers = some(vec![header("X-A", "one"), header("X-B", "two"), json!({"name": "X-C", "value": ""})]);
    let schema =
        maybe(vec![json!({"type": "object"}), json!({"type": "object", "properties": {"q": {"type": "string"}}})]);
    (headers, schema).prop_map(|(headers, schema)| {
        let url = if schema.as_ref().is_some_and(|schema| schema.get("properties").is_some()) {
            "http://a/?q={q}"
        } else {
            "http://a"
        };
        json!([{"name": "a", "inputSchema": schema, "http": {"url": url, "headers": headers}}])
    })
}

fn pod_settings() -> impl Strategy<Value = Value> {
    let volumes = Just(json!([
        {"name": "b", "secret": {"secretName": "of-b", "items": []}},
        {"name": "a", "emptyDir": {}},
    ]));
    let spread =
        maybe(vec![json!([]), json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}])]);
    let affinity =
        maybe(vec![json!({}), json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}})]);
    let secrets = some(vec![json!({"name": "pull-b"}), json!({"name": "pull-a"})]);
    let context = maybe(vec![json!({}), json!({"runAsUser": 5, "supplementalGroups": [], "sysctls": []})]);
    (volumes, spread, affinity, secrets, context).prop_map(|(volumes, spread, affinity, secrets, context)| {
        json!({
            "volumes": volumes, "topologySpread": spread.unwrap_or(json!([])), "affinity": affinity,
            "imagePullSecrets": secrets, "securityContext": context, "nodeSelector": {}, "tolerations": [],
        })
    })
}

fn auth() -> impl Strategy<Value = Value> {
    let keys = some(vec![
        json!({"name": "laptop"}),
        json!({"name": "ci", "expires": "2027-01-01T00:00:00Z"}),
        json!({"name": "old", "expires": "2026-01-01T00:00:00Z"}),
    ]);
    let secrets = some(vec![json!({"name": "vault"}), json!({"name": "from"})]);
    (keys, secrets, maybe(vec![json!(false), json!(true)]))
        .prop_map(|(keys, secrets, anonymous)| json!({"keys": keys, "keySecrets": secrets, "anonymous": anonymous}))
}

fn ingress() -> impl Strategy<Value = Value> {
    let class = maybe(vec![json!("nginx"), json!("traefik"), json!("missing-class")]);
    let tls = maybe(vec![json!({"secretName": "tls"}), json!({"secretName": "missing-tls"})]);
    let annotations = select(vec![json!({}), json!({"a.example.com/b": "c", "nginx.org/server-snippets": "x"})]);
    (class, tls, annotations)
        .prop_map(|(class, tls, annotations)| json!({"className": class, "tls": tls, "annotations": annotations}))
}

fn network_policy() -> impl Strategy<Value = Value> {
    let from = some(vec![
        json!({"podSelector": {"matchLabels": {}}}),
        json!({"namespaceSelector": {"matchExpressions": []}}),
        json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": []}}),
    ]);
    let to = some(vec![json!({}), json!({"to": [], "ports": []}), json!({"ports": [{"port": 53}]})]);
    (from, to, maybe(vec![json!(true), json!(false)]))
        .prop_map(|(from, to, enabled)| json!({"ingressFrom": from, "egressTo": to, "enabled": enabled}))
}

fn removed_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(removed_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(removed_nulls),
        _ => {}
    }
}

fn server() -> impl Strategy<Value = McpServer> {
    let text = |texts: &[&str]| some(texts.iter().map(|text| json!(text)).collect());
    let names = (
        select(vec!["a", "weather", "a-name-that-is-as-long-as-a-name-may-be0"]),
        text(&["taken.example.com", "b.example.com", "a.example.com"]),
        text(&["mcp:*", "10.0.0.5:80"]),
        text(&["https://b.example.com", "https://a.example.com"]),
        maybe(vec![json!("/"), json!("/a/b")]),
        maybe(vec![json!([]), json!(["fd00::/8", "10.0.0.5", "10.0.0.0/8"])]),
        maybe(vec![
            json!({}),
            json!({"origins": ["https://c.example.com", "*"], "headers": ["x-b", "x-a"], "maxAge": "1h"}),
        ]),
    );
    let source = prop_oneof![http().prop_map(|http| ("http", http)), tools().prop_map(|tools| ("tools", tools))];
    let optional = (
        proptest::option::of(auth()),
        proptest::option::of(ingress()),
        proptest::option::of(network_policy()),
        maybe(vec![json!(0), json!(1), json!(3)]),
        maybe(vec![json!({}), json!({"bodyBytes": 4096, "callTimeout": "90s", "requests": 7})]),
        maybe(vec![json!({}), json!({"resources": {"limits": {}}})]),
        maybe(vec![json!({}), json!({"maxSurge": 2}), json!({"strategy": "Recreate"})]),
        maybe(vec![json!({}), json!({"drain": "0s", "maxPerPod": 1}), json!({"mode": "Stateless"})]),
        maybe(vec![json!({"maxReplicas": 1}), json!({"minReplicas": 2, "maxReplicas": 3})]),
    );
    (names, source, pod_settings(), optional).prop_map(|(names, source, pod, optional)| {
        let (name, hosts, allowed_hosts, origins, path, trusted_proxies, cors) = names;
        let (auth, ingress, network_policy, replicas, limits, front_door, rollout, sessions, autoscaling) = optional;
        // Autoscaling takes the place of replicas, and wants every container's request of CPU.
        let requests_cpu = |of: &Value| of.pointer("/resources/requests/cpu").is_some();
        let has_requests = (source.0 == "tools" || requests_cpu(&source.1))
            && front_door != Some(json!({"resources": {"limits": {}}}));
        let autoscaling = autoscaling.filter(|_| replicas.is_none() && has_requests);
        let mut spec = json!({
            "hosts": hosts, "allowedHosts": allowed_hosts, "origins": origins, "path": path, "pod": pod, "cors": cors,
            "auth": auth, "ingress": ingress, "networkPolicy": network_policy, "replicas": replicas,
            "limits": limits, "frontDoor": front_door, "rollout": rollout, "sessions": sessions,
            "trustedProxies": trusted_proxies,
            "autoscaling": autoscaling, (source.0): source.1,
        });
        removed_nulls(&mut spec);
        let metadata = json!({"name": name, "namespace": "demo", "uid": "1", "generation": 3});
        serde_json::from_value(json!({
            "apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer", "metadata": metadata, "spec": spec,
        }))
        .unwrap()
    })
}

fn door() -> impl Strategy<Value = Door> {
    prop_oneof![
        Just(Door::Unasked),
        Just(Door::Unreachable("timed out".to_owned())),
        Just(Door::Unauthorized),
        Just(handshaken()),
        Just(refused("connection refused")),
    ]
}

fn any_pod() -> impl Strategy<Value = ObservedPod> {
    let state = select(vec![
        json!({}),
        running(),
        waiting("ErrImagePull", "not found"),
        waiting("ImagePullBackOff", "Back-off pulling image \"x\""),
        waiting("CrashLoopBackOff", "back-off 10s"),
        waiting("CreateContainerConfigError", "secret \"x\" not found"),
        terminated("Error", 1, "one"),
    ]);
    let last = select(vec![json!({}), terminated("Error", 1, "two"), terminated("OOMKilled", 137, "")]);
    (any::<bool>(), state, last, door(), any::<bool>()).prop_map(|(ready, state, last, door, terminating)| {
        ObservedPod { door, terminating, ..pod(ready, state, last) }
    })
}

/// A server, and a world that has come some way towards it.
fn situation() -> impl Strategy<Value = (McpServer, Observed)> {
    let counts = proptest::option::of((0..4, 0..4, 0..4));
    (server(), counts, proptest::collection::vec(any_pod(), 0..3), any::<[bool; 3]>()).prop_map(
        |(server, counts, some_pods, [minted, existing, base])| {
            let mut observed = world(&server);
            if !minted {
                observed.declared_keys.clear();
                observed.session = None;
            }
            if !existing {
                observed.existing_references.clear();
            }
            if base {
                observed.older_claims.clear();
            }
            observed.deployment = counts.map(|(replicas, updated, available)| deployment(replicas, updated, available));
            observed.pods = pods(some_pods);
            (server, observed)
        },
    )
}

fn planned(server: &McpServer, observed: &Observed) -> Plan {
    plan(server, observed, &settings(""), now()).unwrap()
}

/// Where an empty object means something.
const MEANINGFUL: [&str; 4] = ["emptyDir", "namespaceSelector", "podSelector", "affinity"];

fn assert_nothing_empty(value: &Value, at: &str) {
    match value {
        Value::Null => panic!("null at {at}"),
        Value::Array(items) => {
            assert!(!items.is_empty(), "an empty list at {at}");
            for item in items {
                assert_nothing_empty(item, at);
            }
        }
        Value::Object(fields) => {
            let last = at.rsplit('.').next().unwrap_or_default();
            // A rule without fields allows everything, and an anti-affinity without terms asks for nothing.
            let meaningful = MEANINGFUL.contains(&last) || ["egress", "podAntiAffinity"].contains(&last);
            assert!(!fields.is_empty() || meaningful, "an empty map at {at}");
            for (name, value) in fields {
                assert_nothing_empty(value, &format!("{at}.{name}"));
            }
        }
        _ => {}
    }
}

/// The children that are there.
fn children(plan: &Plan) -> Vec<Value> {
    let children = document(plan)["children"].take();
    children.as_array().unwrap().iter().filter(|child| !child.is_null()).cloned().collect()
}

fn reversed<T>(list: &mut [T]) {
    list.reverse();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_empty_is_sent((server, observed) in situation()) {
        for child in children(&planned(&server, &observed)) {
            assert_nothing_empty(&child, child["kind"].as_str().unwrap());
        }
    }

    #[test]
    fn the_same_gives_the_same((server, observed) in situation()) {
        let again: McpServer = serde_json::from_value(serde_json::to_value(&server).unwrap()).unwrap();
        let texts = [&server, &again].map(|server| document(&planned(server, &observed)).to_string());
        prop_assert_eq!(&texts[0], &texts[1]);
    }

    #[test]
    fn names_are_within_limits((server, observed) in situation()) {
        let plan = planned(&server, &observed);
        let mut seen = BTreeSet::new();
        for child in children(&plan) {
            let metadata = &child["metadata"];
            let name = metadata["name"].as_str().unwrap();
            prop_assert!(name.len() <= 63, "{}", name);
            prop_assert!(seen.insert((child["kind"].clone().to_string(), name.to_owned())));
            prop_assert_eq!(metadata["namespace"].as_str(), Some("demo"));
            prop_assert_eq!(metadata["ownerReferences"].as_array().map(Vec::len), Some(1));
            for value in metadata["labels"].as_object().unwrap().values() {
                prop_assert!(value.as_str().unwrap().len() <= 63);
            }
        }
        let pod = plan.desired.deployment.spec.unwrap().template.spec.unwrap();
        let volumes: Vec<_> = pod.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
        prop_assert_eq!(volumes.iter().collect::<BTreeSet<_>>().len(), volumes.len());
        prop_assert!(volumes.iter().all(|name| name.len() <= 63));
        for container in pod.containers.iter().chain(pod.init_containers.iter().flatten()) {
            let mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
            prop_assert!(mounts.iter().all(|mount| volumes.contains(&mount.name)));
            let env: Vec<_> = container.env.iter().flatten().map(|variable| &variable.name).collect();
            prop_assert_eq!(env.iter().collect::<BTreeSet<_>>().len(), env.len());
        }
    }

    /// A Deployment's selector can never change, so nothing but the name may have a say in it.
    #[test]
    fn the_selector_follows_from_the_name_alone((server, observed) in situation()) {
        let name = server.metadata.name.clone().unwrap();
        let desired = planned(&server, &observed).desired;
        let deployment = desired.deployment.spec.unwrap();
        let selector = names::selector_labels(&name);
        prop_assert_eq!(deployment.selector.match_labels.as_ref(), Some(&selector));
        let labels = deployment.template.metadata.unwrap().labels.unwrap();
        prop_assert!(selector.iter().all(|(label, value)| labels.get(label) == Some(value)));
        prop_assert_eq!(desired.service.spec.unwrap().selector, Some(selector));
    }

    #[test]
    fn no_secret_is_anywhere((server, observed) in situation()) {
        let plan = planned(&server, &observed);
        let status = after(&McpServerStatus::default(), &server, &observed);
        let texts = [document(&plan).to_string(), format!("{plan:?}"), serde_json::to_string(&status).unwrap()];
        let declared = ["laptop", "ci", "old"].map(|name| key(name).expose().to_owned());
        let session_key = session_key(1).to_json().unwrap();
        for secret in declared.iter().map(String::as_str).chain([PLAIN_KEY, STATUS_TOKEN, session_key.as_str()]) {
            prop_assert!(texts.iter().all(|text| !text.contains(secret)));
        }
        let records = plan.desired.keys.data.unwrap_or_default();
        let leaks = |bytes: &[u8]| declared.iter().any(|secret| String::from_utf8_lossy(bytes).contains(secret));
        let leaked = records.values().any(|bytes| leaks(&bytes.0));
        prop_assert!(!leaked);
    }

    #[test]
    fn the_order_of_sets_means_nothing((server, observed) in situation()) {
        let mut other = server.clone();
        let spec = &mut other.spec;
        reversed(&mut spec.hosts);
        reversed(&mut spec.allowed_hosts);
        reversed(&mut spec.origins);
        spec.trusted_proxies.iter_mut().for_each(|proxies| reversed(proxies));
        if let Some(cors) = &mut spec.cors {
            reversed(&mut cors.origins);
            reversed(&mut cors.headers);
        }
        if let Some(auth) = &mut spec.auth {
            reversed(&mut auth.keys);
            reversed(&mut auth.key_secrets);
        }
        if let Some(pod) = &mut spec.pod {
            reversed(&mut pod.volumes);
            reversed(&mut pod.image_pull_secrets);
        }
        spec.http.iter_mut().for_each(|http| reversed(&mut http.volume_mounts));
        spec.tools.iter_mut().flatten().for_each(|tool| reversed(&mut tool.http.headers));
        prop_assert_eq!(document(&planned(&server, &observed)), document(&planned(&other, &observed)));
        prop_assert_eq!(
            after(&McpServerStatus::default(), &server, &observed),
            after(&McpServerStatus::default(), &other, &observed)
        );
    }

    /// Every default that the API documents, written down.
    #[test]
    fn an_absent_field_means_its_default((server, observed) in situation()) {
        let mut written = serde_json::to_value(&server).unwrap();
        let spec = written["spec"].as_object_mut().unwrap();
        let defaults = [
            ("path", json!("/")),
            ("hosts", json!([])),
            ("trustedProxies", json!([])),
            ("auth", json!({"anonymous": false})),
            ("limits", json!({
                "bodyBytes": 4_194_304, "bodyBytesTotal": 67_108_864, "callTimeout": "10m", "connections": 4096, "requests": 1024,
                "streamsPerPrincipal": 1024, "headerBytes": 16384, "headerCount": 100, "uriBytes": 8192,
                "headerTimeout": "10s", "bodyTimeout": "60s", "idleTimeout": "120s", "writeTimeout": "60s",
            })),
            ("networkPolicy", json!({"enabled": true})),
            ("sessions", json!({
                "mode": "Sticky", "idleTimeout": "30m", "maxAge": "24h", "maxPerPod": 1000, "drain": "5m",
            })),
            ("rollout", json!({"strategy": "RollingUpdate", "maxSurge": 1})),
            ("frontDoor", json!({"resources": {
                "requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": 1, "memory": "256Mi"},
            }})),
        ];
        for (field, default) in defaults {
            let present = spec.entry(field).or_insert_with(|| json!({}));
            match (present.as_object_mut(), default) {
                (Some(present), Value::Object(default)) => {
                    default.into_iter().for_each(|(name, value)| { present.entry(name).or_insert(value); });
                }
                (Some(_), default) => *present = default,
                (None, _) => {}
            }
        }
        if let Some(http) = spec.get_mut("http").and_then(Value::as_object_mut) {
            http.entry("port").or_insert(json!(8000));
            http.entry("path").or_insert(json!("/mcp"));
        }
        for tool in spec.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
            let http = tool["http"].as_object_mut().unwrap();
            http.entry("method").or_insert(json!("GET"));
            http.entry("timeout").or_insert(json!("30s"));
        }
        let mut written: McpServer = serde_json::from_value(written).unwrap();
        // What is written and empty is replaced by the default too.
        if let Some(resources) = written.spec.front_door.as_mut().and_then(|front_door| front_door.resources.as_mut())
            && resources.limits.is_empty()
        {
            *resources = serde_json::from_value(json!({
                "requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "256Mi"},
            })).unwrap();
        }
        prop_assert_eq!(document(&planned(&server, &observed)), document(&planned(&written, &observed)));
    }

    #[test]
    fn a_status_is_a_fixed_point(
        (server, observed) in situation(),
        (_, before) in situation(),
        refusal in proptest::option::of((select(Reason::ALL), select(vec!["Ingress a", "Service a"]))),
        waiting in any::<bool>(),
    ) {
        let refused = refusal.map(|(reason, child)| Finding {
            reason,
            field: child.to_owned(),
            message: "no".to_owned(),
        });
        let applied = Applied { refused: refused.into_iter().collect(), waiting };
        let old = after(&McpServerStatus::default(), &server, &before);
        let first = after_with(&old, &server, &observed, &applied);
        prop_assert_eq!(&after_with(&first, &server, &observed, &applied), &first);
        // What the API server gives back is what was written.
        let stored: McpServerStatus = serde_json::from_str(&serde_json::to_string(&first).unwrap()).unwrap();
        prop_assert_eq!(&after_with(&stored, &server, &observed, &applied), &first);
        let kinds: Vec<_> = first.conditions.iter().map(|condition| condition.type_.as_str()).collect();
        prop_assert_eq!(&kinds[..5], ["Accepted", "Available", "Verified", "Exposed", "Ready"]);
        let known: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        for condition in &first.conditions {
            prop_assert!(known.contains(condition.reason.as_str()));
            prop_assert!(!condition.message.is_empty());
            prop_assert_eq!(condition.observed_generation, Some(3));
        }
        prop_assert!(next_change(&server, &observed, now()).is_none_or(|wait| !wait.is_zero()));
    }
}

/// Every reason has a place where it is set, and a meaning in the docs.
#[test]
fn every_reason_is_used_and_documented() {
    let docs = mooring_api::condition::markdown();
    let sources = sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
        + &sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../src"));
    for reason in Reason::ALL {
        assert!(docs.contains(&format!("| `{reason}` |")), "{reason} is not documented");
        assert!(sources.contains(&format!("Reason::{reason}")), "{reason} is never set");
    }
}

fn sources(folder: &std::path::Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &std::fs::read_to_string(&path).unwrap();
        }
    }
    text
}
