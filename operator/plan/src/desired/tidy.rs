//! Removes what is empty from the fragments that a user writes in Kubernetes' own types. An empty object stays where it
//! means something (`emptyDir: {}`, `podSelector: {}`).

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Fields that hold a map from texts; empty they mean the same as absent.
const MAPS: [&str; 7] =
    ["annotations", "labels", "limits", "matchLabels", "nodeSelector", "requests", "volumeAttributes"];

/// The same without nulls, empty lists and empty maps.
pub(super) fn tidied<T: Serialize + DeserializeOwned>(fragment: T) -> T {
    let Ok(mut value) = serde_json::to_value(&fragment) else { return fragment };
    tidy(&mut value);
    serde_json::from_value(value).unwrap_or(fragment)
}

fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy);
            fields.retain(|name, value| match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(map) => !map.is_empty() || !MAPS.contains(&name.as_str()),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_selectors_stay_and_empty_lists_go() {
        let written = json!({"namespaceSelector": {}, "podSelector": {"matchLabels": {}, "matchExpressions": []}});
        let peer: NetworkPolicyPeer = serde_json::from_value(written).unwrap();
        let expected = json!({"namespaceSelector": {}, "podSelector": {}});
        assert_eq!(serde_json::to_value(tidied(peer)).unwrap(), expected);
    }
}
