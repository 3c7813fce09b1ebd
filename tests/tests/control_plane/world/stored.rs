//! Objects as they are stored: the children of a server, compared without what chance and other controllers put in.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::core::DynamicObject;
use serde_json::Value;

/// An object of a list, with the kind that lists leave out.
pub(super) fn stored(kind: &str, object: DynamicObject) -> Result<Value> {
    let mut object = serde_json::to_value(object)?;
    object["kind"] = kind.into();
    Ok(object)
}

/// The kinds that an McpServer's children have.
pub(super) const CHILD_KINDS: [&str; 9] = [
    "ConfigMap",
    "Deployment",
    "HorizontalPodAutoscaler",
    "Ingress",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Secret",
    "Service",
    "ServiceAccount",
];

/// Children by `Kind/name`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Children(pub(crate) BTreeMap<String, Value>);

impl Children {
    pub(crate) fn get(&self, child: &str) -> Result<&Value> {
        self.0.get(child).with_context(|| format!("no {child}; there are {:?}", self.0.keys()))
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// The resourceVersion of each.
    pub(crate) fn versions(&self) -> BTreeMap<String, String> {
        let version = |object: &Value| {
            object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        self.0.iter().map(|(name, object)| (name.clone(), version(object))).collect()
    }

    /// What the children say, without what the API server, the cluster's controllers and chance put in.
    pub(crate) fn canonical(&self) -> Self {
        Self(self.0.iter().map(|(name, object)| (name.clone(), canonical(name, object))).collect())
    }

    /// The same with the random content of Secrets hidden, to compare two servers of the same spec.
    pub(crate) fn without_chance(&self) -> Self {
        let mut children = self.canonical();
        for (name, object) in &mut children.0 {
            for annotation in ["mooring.dev/declared", "mooring.dev/subjects", "mooring.dev/subject"] {
                hide(object, &["metadata", "annotations", annotation]);
            }
            if name.starts_with("Secret/")
                && let Some(data) = object.get_mut("data").and_then(Value::as_object_mut)
            {
                let entries = std::mem::take(data);
                let hidden = entries.keys().enumerate().map(|(n, entry)| match entry.len() {
                    11 => (format!("id-{n}"), Value::Null), // ids of keys
                    _ => (entry.clone(), Value::Null),
                });
                *data = hidden.collect();
            }
        }
        let text = serde_json::to_string(&children.0).unwrap_or_default();
        let uid = uid_of_server(&self.0);
        let masked = if uid.is_empty() { text } else { text.replace(&uid, "<uid>") };
        Self(serde_json::from_str(&masked).unwrap_or_default())
    }
}

fn uid_of_server(children: &BTreeMap<String, Value>) -> String {
    let owner = children.values().find_map(|child| child.pointer("/metadata/ownerReferences/0/uid")?.as_str());
    owner.unwrap_or_default().to_owned()
}

fn canonical(name: &str, object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"];
    for field in metadata {
        hide(&mut object, &["metadata", field]);
    }
    hide(&mut object, &["metadata", "annotations", "deployment.kubernetes.io/revision"]);
    hide(&mut object, &["metadata", "annotations", "mooring.dev/generation"]);
    hide(&mut object, &["status"]);
    if name.starts_with("Service/") {
        for field in ["clusterIP", "clusterIPs"] {
            hide(&mut object, &["spec", field]);
        }
    }
    object
}

fn hide(object: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(object, |object, key| object.get_mut(*key));
    if let Some(parent) = parent.and_then(Value::as_object_mut) {
        parent.remove(*last);
    }
}

/// A condition of an McpServer; null where it is not there.
pub(crate) fn condition(server: &Value, kind: &str) -> Value {
    let conditions = server.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().find(|condition| text(condition, "type") == kind).cloned().unwrap_or_default()
}

/// A text field; empty where it is not there.
pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The bytes of a Secret's entry.
pub(crate) fn entry(secret: &Value, name: &str) -> Result<Vec<u8>> {
    let found = secret.get("data").and_then(|data| data.get(name)).and_then(Value::as_str);
    let found = found.with_context(|| format!("the Secret has no entry {name}"))?;
    Ok(serde_json::from_value::<k8s_openapi::ByteString>(found.into())?.0)
}

/// The entries of a Secret, by name.
pub(crate) fn entries(secret: &Value) -> Vec<&str> {
    secret.get("data").and_then(Value::as_object).into_iter().flat_map(|data| data.keys().map(String::as_str)).collect()
}
