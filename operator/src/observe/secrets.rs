//! Copies of the Secrets that are read, each good as long as the watch shows no newer resourceVersion. The watch brings
//! metadata alone, so content is asked for when it changed, and not for every pass.
//!
//! Every server has several, and a parsed one is mostly empty fields: a copy is kept as text, and read when it is asked for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::Secret;

use crate::apply::memory::is_older;

struct Copy {
    resource_version: Box<str>,
    json: Box<[u8]>,
}

impl Copy {
    /// Whether it is no older than what the watch shows (`None` where it does not show it yet).
    fn is_good(&self, shown: Option<&str>) -> bool {
        shown.is_none_or(|shown| *shown == *self.resource_version || is_older(shown, &self.resource_version))
    }
}

/// The copies, by namespace and name.
#[derive(Default)]
pub struct SecretBook {
    copies: Mutex<HashMap<(String, String), Copy>>,
}

impl std::fmt::Debug for SecretBook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SecretBook")
    }
}

impl SecretBook {
    /// The copy of a Secret, if it is no older than what the watch shows (`None` where it does not show it yet).
    pub fn get(&self, namespace: &str, name: &str, shown: Option<&str>) -> Option<Secret> {
        let copies = self.lock();
        let copy = copies.get(&(namespace.to_owned(), name.to_owned())).filter(|copy| copy.is_good(shown))?;
        serde_json::from_slice(&copy.json).ok()
    }

    /// Whether there is a copy that is no older than `resource_version`.
    pub fn holds(&self, namespace: &str, name: &str, resource_version: &str) -> bool {
        let copies = self.lock();
        copies.get(&(namespace.to_owned(), name.to_owned())).is_some_and(|copy| copy.is_good(Some(resource_version)))
    }

    /// Keeps what the API server answered, without what nobody reads of it, and gives that back.
    pub fn put(&self, namespace: &str, name: &str, mut secret: Secret) -> Secret {
        secret.metadata.managed_fields = None;
        secret.metadata.labels = None;
        if let Ok(json) = serde_json::to_vec(&secret) {
            let resource_version = secret.metadata.resource_version.as_deref().unwrap_or_default();
            let copy = Copy { resource_version: resource_version.into(), json: json.into_boxed_slice() };
            self.lock().insert((namespace.to_owned(), name.to_owned()), copy);
        }
        secret
    }

    /// The Secret is gone, or may be another one.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.lock().remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Keeps the copies of which `keep` says so, by namespace and name.
    pub fn retain(&self, keep: impl Fn(&str, &str) -> bool) {
        self.lock().retain(|(namespace, name), _| keep(namespace, name));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), Copy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    #[test]
    fn a_copy_serves_until_the_watch_shows_something_newer() {
        let book = SecretBook::default();
        let metadata = ObjectMeta { resource_version: Some("10".into()), ..ObjectMeta::default() };
        let data = Some(BTreeMap::from([("key".to_owned(), ByteString(vec![0, 255]))]));
        let secret = Secret { metadata, data, ..Secret::default() };
        book.put("demo", "weather.keys", secret.clone());
        for (shown, good) in [(None, true), (Some("10"), true), (Some("9"), true), (Some("11"), false)] {
            assert_eq!(book.get("demo", "weather.keys", shown), good.then(|| secret.clone()), "{shown:?}");
        }
        book.forget("demo", "weather.keys");
        assert!(book.get("demo", "weather.keys", None).is_none());
    }
}
