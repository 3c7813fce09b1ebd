//! Every field of the spec: setting it has its effect in a child, taking it out again brings back exactly the children of before, and pods are
//! restarted only by what concerns them.

mod case;
mod exposure;
mod http;
mod limits;
mod network;
mod pod;
mod scale;
mod sessions;
mod tools;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use self::case::Pods::Stay;
use self::case::{Case, Pods, SERVER, Seen, case, is, look, named};
use crate::world::{Children, World, full, left_out, patched};

/// Another spelling of the same, which has no effect at all.
fn same() -> Vec<Case> {
    vec![
        case(
            "sets in another order",
            json!({"auth": {"keys": [{"name": "ci"}, {"name": "laptop"}]}}),
            is(SERVER, "/image", json!("example.com/server:1")),
            Stay,
        ),
        case(
            "defaults written out",
            json!({"path": "/", "trustedProxies": [], "networkPolicy": {"enabled": true}, "auth": {"anonymous": false}, "limits": {"bodyBytes": 4_194_304, "callTimeout": "600s", "requests": 1024, "idleTimeout": "2m"}, "http": {"path": "/mcp", "transport": "streamableHttp"}, "cors": {"credentials": false, "maxAge": "600s"}, "sessions": {"mode": "Sticky", "idleTimeout": "30m", "maxAge": "24h", "maxPerPod": 1000, "drain": "300s"}, "rollout": {"strategy": "RollingUpdate", "maxSurge": 1}}),
            Seen::Config("/limits/bodyBytes", json!(4_194_304)),
            Stay,
        ),
    ]
}

fn template(children: &Children, name: &str) -> Result<Value> {
    Ok(children.get(&format!("Deployment/{name}"))?["spec"]["template"].clone())
}

/// Children without what a rotation of keys may change; declared keys that came and went are other keys.
fn compared(children: &Children) -> BTreeMap<String, Value> {
    let mut all = children.without_chance().0;
    // A Deployment keeps its replicas when the spec no longer says how many, and so its budget.
    let is_scaled = |child: &Value| child["kind"] == "Deployment" && child["spec"]["replicas"].as_i64() > Some(1);
    if all.values().any(is_scaled) {
        all.retain(|name, _| !name.starts_with("PodDisruptionBudget/"));
    }
    for child in all.values_mut() {
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
    let over_http = [
        http::cases(),
        exposure::cases(),
        network::cases(),
        limits::cases(),
        pod::cases(),
        scale::cases(),
        sessions::cases(),
        same(),
    ];
    let all: Vec<(String, Value, Case)> = over_http
        .into_iter()
        .flatten()
        .map(|case| (full("@.fields.example.com"), case))
        .chain(tools::cases().into_iter().map(|case| (tools.clone(), case)))
        .enumerate()
        .map(|(n, (base, case))| (format!("f{n}"), base, case))
        .collect();
    let names: Vec<&str> = all.iter().map(|(name, ..)| name.as_str()).collect();
    let same: Vec<&str> = same().iter().map(|case| case.field).collect();
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
        if (during.canonical() == before.canonical()) != same.contains(&case.field) {
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
