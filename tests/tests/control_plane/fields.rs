//! Every field of the spec: setting it has its effect in a child, taking it out again brings back exactly the children of before, and pods are
//! restarted only by what concerns them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::world::{Children, World, full, left_out, patched};

/// What must be seen in a child.
enum Seen {
    /// Exactly this at a pointer; null means nothing.
    Is(&'static str, &'static str, Value),
    /// A list at a pointer that has this.
    Has(&'static str, &'static str, Value),
    /// This at a pointer into the front door's config.
    Config(&'static str, Value),
    /// No such child.
    Gone(&'static str),
}

/// Whether the pods are restarted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pods {
    Stay,
    Roll,
}

struct Case {
    field: &'static str,
    /// Merged over the base spec.
    patch: Value,
    seen: Seen,
    pods: Pods,
}

fn case(field: &'static str, patch: Value, seen: Seen, pods: Pods) -> Case {
    Case { field, patch, seen, pods }
}

const SERVER: &str = "/spec/template/spec/initContainers/0";
const DOOR: &str = "/spec/template/spec/containers/0";
const POD: &str = "/spec/template/spec";

/// In the Deployment, at a pointer below a root.
fn is(root: &str, pointer: &str, value: Value) -> Seen {
    Seen::Is("Deployment/@", leak(root, pointer), value)
}

fn has(root: &str, pointer: &str, value: Value) -> Seen {
    Seen::Has("Deployment/@", leak(root, pointer), value)
}

/// Pointers are made once for each case and live as long as the test.
fn leak(root: &str, pointer: &str) -> &'static str {
    format!("{root}{pointer}").leak()
}

/// Over the base with source `http`, which is [`full`].
#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    use Pods::{Roll, Stay};
    let pod = |patch: Value| json!({"pod": patch});
    let http = |patch: Value| json!({"http": patch});
    let dns = json!([{"ports": [{"port": 53, "protocol": "UDP"}]}]);
    let peer = json!([{"namespaceSelector": {"matchLabels": {"a": "b"}}}]);
    let toleration = json!([{"key": "k", "operator": "Exists"}]);
    let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}]}});
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    let quantities = json!({"requests": {"cpu": "20m"}, "limits": {"memory": "99Mi"}});
    let rules = "/spec/rules/0/http/paths/0/path";
    vec![
        case("http.image", http(json!({"image": "b:2"})), is(SERVER, "/image", json!("b:2")), Roll),
        case("http.command", http(json!({"command": ["/x"]})), is(SERVER, "/command", json!(["/x"])), Roll),
        case("http.args", http(json!({"args": ["--y"]})), is(SERVER, "/args", json!(["--y"])), Roll),
        case("http.port", http(json!({"port": 9000})), Seen::Config("/source/http/port", json!(9000)), Stay),
        case("http.path", http(json!({"path": "/rpc"})), Seen::Config("/source/http/path", json!("/rpc")), Stay),
        case(
            "http.transport",
            http(json!({"transport": "sse"})),
            Seen::Config("/source/http/transport", json!("sse")),
            Stay,
        ),
        case(
            "http.transport and the default path",
            http(json!({"transport": "sse"})),
            Seen::Config("/source/http/path", json!("/sse")),
            Stay,
        ),
        case(
            "http.env",
            http(json!({"env": [{"name": "A", "value": "b"}]})),
            has(SERVER, "/env", json!({"name": "A", "value": "b"})),
            Roll,
        ),
        case(
            "http.envFrom",
            http(json!({"envFrom": [{"configMapRef": {"name": "c", "optional": true}}]})),
            has(SERVER, "/envFrom", json!({"configMapRef": {"name": "c", "optional": true}})),
            Roll,
        ),
        case(
            "http.resources",
            http(json!({"resources": quantities})),
            is(SERVER, "/resources", quantities.clone()),
            Roll,
        ),
        case(
            "http.volumeMounts",
            json!({"http": {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "pod": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
            has(SERVER, "/volumeMounts", json!({"name": "v", "mountPath": "/v"})),
            Roll,
        ),
        case(
            "http.imagePullPolicy",
            http(json!({"imagePullPolicy": "Always"})),
            is(SERVER, "/imagePullPolicy", json!("Always")),
            Roll,
        ),
        case(
            "http.securityContext",
            http(json!({"securityContext": {"readOnlyRootFilesystem": true}})),
            is(SERVER, "/securityContext/readOnlyRootFilesystem", json!(true)),
            Roll,
        ),
        case("replicas", json!({"replicas": 2}), is("/spec", "/replicas", json!(2)), Stay),
        case(
            "hosts",
            json!({"hosts": ["@.fields.example.com", "second.@.example.com"]}),
            Seen::Is("Ingress/@", "/spec/rules/1/host", json!("second.@.example.com")),
            Stay,
        ),
        case(
            "hosts in the config",
            json!({"hosts": ["@.fields.example.com", "third.@.example.com"]}),
            Seen::Config("/security/hosts?", json!("third.@.example.com")),
            Stay,
        ),
        case(
            "allowedHosts",
            json!({"allowedHosts": ["10.0.0.5:8443"]}),
            Seen::Config("/security/allowedHosts", json!(["10.0.0.5:8443"])),
            Stay,
        ),
        case("path", json!({"path": "/p"}), Seen::Is("Ingress/@", rules, json!("/p")), Stay),
        case("path in the config", json!({"path": "/p"}), Seen::Config("/path", json!("/p")), Stay),
        case(
            "origins",
            json!({"origins": ["https://o.example.com"]}),
            Seen::Config("/security/origins", json!(["https://o.example.com"])),
            Stay,
        ),
        case(
            "cors.origins",
            json!({"cors": {"origins": ["*"]}}),
            Seen::Config("/security/cors/origins", json!(["*"])),
            Stay,
        ),
        case(
            "cors.headers",
            json!({"cors": {"headers": ["x-a"]}}),
            Seen::Config("/security/cors/headers", json!(["x-a"])),
            Stay,
        ),
        case(
            "cors.exposeHeaders",
            json!({"cors": {"exposeHeaders": ["x-a"]}}),
            Seen::Config("/security/cors/exposeHeaders", json!(["x-a"])),
            Stay,
        ),
        case(
            "cors.credentials",
            json!({"cors": {"credentials": true}}),
            Seen::Config("/security/cors/credentials", json!(true)),
            Stay,
        ),
        case(
            "cors.maxAge",
            json!({"cors": {"maxAge": "5m"}}),
            Seen::Config("/security/cors/maxAgeSeconds", json!(300)),
            Stay,
        ),
        case("ingress", json!({"ingress": null}), Seen::Gone("Ingress/@"), Stay),
        case(
            "ingress.className",
            json!({"ingress": {"className": "other"}}),
            Seen::Is("Ingress/@", "/spec/ingressClassName", json!("other")),
            Stay,
        ),
        case(
            "ingress.tls",
            json!({"ingress": {"tls": {"secretName": "t"}}}),
            Seen::Is("Ingress/@", "/spec/tls/0/secretName", json!("t")),
            Stay,
        ),
        case(
            "ingress.annotations",
            json!({"ingress": {"annotations": {"cert-manager.io/cluster-issuer": "x"}}}),
            Seen::Is("Ingress/@", "/metadata/annotations/cert-manager.io~1cluster-issuer", json!("x")),
            Stay,
        ),
        case("auth.keys", json!({"auth": {"keys": [{"name": "laptop"}]}}), Seen::Gone("Secret/@.key.ci"), Stay),
        case(
            "auth.keySecrets",
            json!({"auth": {"keySecrets": [{"name": "shared"}]}}),
            Seen::Config("/security/keySecrets", json!(["shared"])),
            Roll,
        ),
        case(
            "auth.anonymous",
            json!({"auth": {"anonymous": true}}),
            Seen::Config("/security/anonymous", json!(true)),
            Stay,
        ),
        case(
            "limits.bodyBytes",
            json!({"limits": {"bodyBytes": 2048}}),
            Seen::Config("/limits/bodyBytes", json!(2048)),
            Stay,
        ),
        case(
            "limits.callTimeout",
            json!({"limits": {"callTimeout": "90s"}}),
            Seen::Config("/limits/callTimeoutMs", json!(90_000)),
            Roll,
        ),
        case(
            "limits.connections",
            json!({"limits": {"connections": 100}}),
            Seen::Config("/limits/connections", json!(100)),
            Stay,
        ),
        case("limits.requests", json!({"limits": {"requests": 50}}), Seen::Config("/limits/requests", json!(50)), Stay),
        case(
            "limits.streamsPerPrincipal",
            json!({"limits": {"streamsPerPrincipal": 10}}),
            Seen::Config("/limits/streamsPerPrincipal", json!(10)),
            Stay,
        ),
        case(
            "limits.headerBytes",
            json!({"limits": {"headerBytes": 32_768}}),
            Seen::Config("/limits/headerBytes", json!(32_768)),
            Stay,
        ),
        case(
            "limits.headerCount",
            json!({"limits": {"headerCount": 64}}),
            Seen::Config("/limits/headerCount", json!(64)),
            Stay,
        ),
        case(
            "limits.uriBytes",
            json!({"limits": {"uriBytes": 4096}}),
            Seen::Config("/limits/uriBytes", json!(4096)),
            Stay,
        ),
        case(
            "limits.headerTimeout",
            json!({"limits": {"headerTimeout": "5s"}}),
            Seen::Config("/limits/headerTimeoutMs", json!(5000)),
            Stay,
        ),
        case(
            "limits.bodyTimeout",
            json!({"limits": {"bodyTimeout": "30s"}}),
            Seen::Config("/limits/bodyTimeoutMs", json!(30_000)),
            Stay,
        ),
        case(
            "limits.idleTimeout",
            json!({"limits": {"idleTimeout": "5m"}}),
            Seen::Config("/limits/idleTimeoutMs", json!(300_000)),
            Stay,
        ),
        case(
            "limits.writeTimeout",
            json!({"limits": {"writeTimeout": "1500ms"}}),
            Seen::Config("/limits/writeTimeoutMs", json!(1500)),
            Stay,
        ),
        case(
            "frontDoor.resources",
            json!({"frontDoor": {"resources": quantities}}),
            is(DOOR, "/resources", quantities.clone()),
            Roll,
        ),
        case(
            "networkPolicy.enabled",
            json!({"networkPolicy": {"enabled": false}}),
            Seen::Gone("NetworkPolicy/@"),
            Stay,
        ),
        case(
            "networkPolicy.ingressFrom",
            json!({"networkPolicy": {"ingressFrom": peer}}),
            Seen::Is("NetworkPolicy/@", "/spec/ingress/0/from", peer.clone()),
            Stay,
        ),
        case(
            "networkPolicy.egressTo",
            json!({"networkPolicy": {"egressTo": dns}}),
            Seen::Is("NetworkPolicy/@", "/spec/egress", dns.clone()),
            Stay,
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
        // Another spelling of the same has no effect at all.
        case(
            "sets in another order",
            json!({"auth": {"keys": [{"name": "ci"}, {"name": "laptop"}]}}),
            is(SERVER, "/image", json!("example.com/server:1")),
            Stay,
        ),
        case(
            "defaults written out",
            json!({"path": "/", "networkPolicy": {"enabled": true}, "auth": {"anonymous": false}, "limits": {"bodyBytes": 4_194_304, "callTimeout": "600s", "requests": 1024, "idleTimeout": "2m"}, "http": {"path": "/mcp", "transport": "streamableHttp"}, "cors": {"credentials": false, "maxAge": "600s"}}),
            Seen::Config("/limits/bodyBytes", json!(4_194_304)),
            Stay,
        ),
    ]
}

/// Cases that must change nothing at all.
const SAME: [&str; 2] = ["sets in another order", "defaults written out"];

/// Over a base with source `tools`.
fn tool_cases() -> Vec<Case> {
    use Pods::{Roll, Stay};
    let tool = |patch: Value| json!({"tools": [patched(&json!({"name": "a", "http": {"url": "http://a/"}}), &patch)]});
    let first = |pointer: &str| leak("/source/tools/0", pointer);
    let schema = json!({"type": "object", "properties": {"x": {"type": "string", "x-free": [1, {"y": null}]}}});
    let required = patched(&schema, &json!({"required": ["x"]}));
    vec![
        case("tools.name", tool(json!({"name": "b"})), Seen::Config(first("/name"), json!("b")), Stay),
        case("tools.title", tool(json!({"title": "T"})), Seen::Config(first("/title"), json!("T")), Stay),
        case(
            "tools.description",
            tool(json!({"description": "D"})),
            Seen::Config(first("/description"), json!("D")),
            Stay,
        ),
        case(
            "tools.inputSchema",
            tool(json!({"inputSchema": schema})),
            Seen::Config(first("/inputSchema"), schema.clone()),
            Stay,
        ),
        case(
            "tools.http.method",
            tool(json!({"http": {"method": "PUT"}})),
            Seen::Config(first("/http/method"), json!("PUT")),
            Stay,
        ),
        case(
            "tools.http.url",
            tool(json!({"inputSchema": required, "http": {"url": "https://b/{x}"}})),
            Seen::Config(first("/http/url"), json!("https://b/{x}")),
            Stay,
        ),
        case(
            "tools.http.timeout",
            tool(json!({"http": {"timeout": "5s"}})),
            Seen::Config(first("/http/timeoutMs"), json!(5000)),
            Stay,
        ),
        case(
            "tools.http.headers",
            tool(json!({"http": {"headers": [{"name": "X-A", "value": "b"}]}})),
            Seen::Config(first("/http/headers/0"), json!({"name": "X-A", "value": "b"})),
            Stay,
        ),
        case(
            "tools.overrides.stdio",
            tool(json!({"overrides": {"stdio": {"description": "D", "inputSchema": schema}}})),
            Seen::Config(first("/overrides/stdio"), json!({"description": "D", "inputSchema": schema})),
            Stay,
        ),
        case(
            "tools.overrides.http",
            tool(json!({"overrides": {"http": {"http": {"url": "http://b/"}}}})),
            Seen::Config(first("/overrides/http/http/url"), json!("http://b/")),
            Stay,
        ),
        case(
            "tools.overrides.http with a secret",
            tool(
                json!({"overrides": {"http": {"http": {"url": "http://b/", "headers": [{"name": "X-A", "secret": {"name": "shared", "key": "k"}}]}}}}),
            ),
            is(DOOR, "/env/0/valueFrom/secretKeyRef", json!({"name": "shared", "key": "k"})),
            Roll,
        ),
        case(
            "tools.http.headers.secret",
            tool(json!({"http": {"headers": [{"name": "X-A", "secret": {"name": "shared", "key": "k"}}]}})),
            is(DOOR, "/env/0/valueFrom/secretKeyRef", json!({"name": "shared", "key": "k"})),
            Roll,
        ),
    ]
}

/// The same with `@` replaced by the server's name.
fn named(value: &Value, name: &str) -> Result<Value> {
    Ok(serde_json::from_str(&value.to_string().replace('@', name))?)
}

fn look(seen: &Seen, children: &Children, name: &str) -> Result<()> {
    let child = |child: &str| children.get(&child.replace('@', name)).cloned();
    match seen {
        Seen::Is(of, pointer, wanted) => {
            let wanted = named(wanted, name)?;
            let object = child(of)?;
            let found = object.pointer(pointer).unwrap_or(&Value::Null);
            ensure!(*found == wanted, "{of} has {found} at {pointer}, wanted {wanted}");
        }
        Seen::Has(of, pointer, wanted) => {
            let object = child(of)?;
            let list = object
                .pointer(pointer)
                .and_then(Value::as_array)
                .with_context(|| format!("{of} has no list at {pointer}"))?;
            ensure!(list.contains(wanted), "{of} has {list:?} at {pointer}, wanted {wanted}");
        }
        Seen::Config(pointer, wanted) => {
            let wanted = named(wanted, name)?;
            let config = child("ConfigMap/@.config")?;
            let config: Value = serde_json::from_str(config["data"]["config.json"].as_str().context("a config")?)?;
            let (pointer, member) = pointer.strip_suffix('?').map_or((*pointer, false), |pointer| (pointer, true));
            let found = config.pointer(pointer).unwrap_or(&Value::Null);
            let fits =
                if member { found.as_array().is_some_and(|list| list.contains(&wanted)) } else { *found == wanted };
            ensure!(fits, "the config has {found} at {pointer}, wanted {wanted}");
        }
        Seen::Gone(of) => ensure!(child(of).is_err(), "{of} is there"),
    }
    Ok(())
}

fn template(children: &Children, name: &str) -> Result<Value> {
    Ok(children.get(&format!("Deployment/{name}"))?["spec"]["template"].clone())
}

/// Children without what a rotation of keys may change; declared keys that came and went are other keys.
fn compared(children: &Children) -> BTreeMap<String, Value> {
    let mut all = children.without_chance().0;
    for child in all.values_mut() {
        // A Deployment keeps its replicas when the spec no longer says how many.
        if let Some(spec) = child.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("replicas");
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_has_its_effect_and_leaves_no_trace() -> Result<()> {
    if left_out("its many pods, whose images nobody has, never come to rest where a kubelet runs them")? {
        return Ok(());
    }
    let world = World::new("fields").await?;
    let shared = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shared"}, "stringData": {"k": "0b6f4d5e-8f0e-4f43-9e58-1b6a3f4c2d10"}});
    world.put(&shared).await?;
    let _operator = world.operator().await?;
    let tools = json!({"tools": [{"name": "a", "http": {"url": "http://a/"}}]});
    let all: Vec<(String, Value, Case)> = cases()
        .into_iter()
        .map(|case| (full("@.fields.example.com"), case))
        .chain(tool_cases().into_iter().map(|case| (tools.clone(), case)))
        .enumerate()
        .map(|(n, (base, case))| (format!("f{n}"), base, case))
        .collect();
    let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
    let mut faults = Vec::new();

    for (name, base, _) in &all {
        world.apply(name, &named(base, name)?).await?;
    }
    world.at_rest(&names).await?;
    let before = world.children_of(&names).await?;
    for (name, base, case) in &all {
        world.apply(name, &named(&patched(base, &case.patch), name)?).await.with_context(|| case.field)?;
    }
    world.at_rest(&names).await?;
    let during = world.children_of(&names).await?;
    for (name, _, case) in &all {
        let (before, during) = (&before[name], &during[name]);
        if let Err(error) = look(&case.seen, during, name) {
            faults.push(format!("{}: {error:#}", case.field));
        }
        let rolled = template(during, name)? != template(before, name)?;
        if rolled != (case.pods == Pods::Roll) {
            faults.push(format!("{}: the pods should {:?}, and the template changed: {rolled}", case.field, case.pods));
        }
        if (during.canonical() == before.canonical()) != SAME.contains(&case.field) {
            faults.push(format!("{}: what changed is not what should", case.field));
        }
    }
    for (name, base, _) in &all {
        world.apply(name, &named(base, name)?).await?;
    }
    world.at_rest(&names).await?;
    let after = world.children_of(&names).await?;
    for (name, _, case) in &all {
        let (found, wanted) = (compared(&after[name]), compared(&before[name]));
        for child in found.keys().chain(wanted.keys()).collect::<BTreeSet<_>>() {
            let (found, wanted) = (found.get(child), wanted.get(child));
            if found != wanted {
                faults.push(format!("{} leaves a trace: {child} is {found:?}, was {wanted:?}", case.field));
            }
        }
    }
    assert_eq!(world.forbidden()?, Vec::<String>::new(), "the chart's rights suffice");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));

    // No field without a case: the table is held against the schema.
    let tested: Vec<&str> = all.iter().map(|(_, _, case)| case.field).collect();
    let missing: Vec<String> = fields_of_schema()?
        .into_iter()
        .filter(|field| !tested.iter().any(|case| case.starts_with(field.as_str())))
        .collect();
    assert!(missing.is_empty(), "fields without a case: {missing:?}");
    Ok(())
}

/// The fields of the spec, two levels deep: those of Kubernetes' own types count as one.
fn fields_of_schema() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(mooring_tests::product::workspace().join("crds/mcpservers.yaml"))?;
    let definition: Value = serde_saphyr::from_str(&text)?;
    let spec =
        definition.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties").context("a schema")?;
    let names = |properties: &Value| Vec::from_iter(properties.as_object().cloned().unwrap_or_default());
    let mut fields = Vec::new();
    for (name, schema) in names(spec) {
        let own =
            schema.get("properties").or_else(|| schema.pointer("/items/properties")).map(names).unwrap_or_default();
        if own.is_empty() {
            fields.push(name.clone());
        }
        for (inner, schema) in own {
            if name == "tools" && inner == "http" {
                fields.extend(names(&schema["properties"]).into_iter().map(|(deep, _)| format!("tools.http.{deep}")));
            } else {
                fields.push(format!("{name}.{inner}"));
            }
        }
    }
    Ok(fields)
}
