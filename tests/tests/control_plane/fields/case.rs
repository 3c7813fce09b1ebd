//! What a case says of a field, and how it is seen in the children.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::world::Children;

/// What must be seen in a child.
pub(super) enum Seen {
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
pub(super) enum Pods {
    Stay,
    Roll,
}

/// A field, set over a base spec.
pub(super) struct Case {
    /// Its name, and a word more where it has several cases.
    pub(super) field: &'static str,
    /// Merged over the base.
    pub(super) patch: Value,
    pub(super) seen: Seen,
    pub(super) pods: Pods,
}

pub(super) fn case(field: &'static str, patch: Value, seen: Seen, pods: Pods) -> Case {
    Case { field, patch, seen, pods }
}

/// The server's container in the Deployment.
pub(super) const SERVER: &str = "/spec/template/spec/initContainers/0";
/// The front door's.
pub(super) const DOOR: &str = "/spec/template/spec/containers/0";
/// The pods'.
pub(super) const POD: &str = "/spec/template/spec";

/// In the Deployment, at a pointer below a root.
pub(super) fn is(root: &str, pointer: &str, value: Value) -> Seen {
    Seen::Is("Deployment/@", leak(root, pointer), value)
}

/// The same for a list and one of its items.
pub(super) fn has(root: &str, pointer: &str, value: Value) -> Seen {
    Seen::Has("Deployment/@", leak(root, pointer), value)
}

/// Pointers are made once for each case and live as long as the test.
pub(super) fn leak(root: &str, pointer: &str) -> &'static str {
    format!("{root}{pointer}").leak()
}

/// The same with `@` replaced by the server's name.
pub(super) fn named(value: &Value, name: &str) -> Result<Value> {
    Ok(serde_json::from_str(&value.to_string().replace('@', name))?)
}

/// Whether what must be seen is there.
pub(super) fn look(seen: &Seen, children: &Children, name: &str) -> Result<()> {
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
