//! Copies of the Secrets that are read, each good as long as the watch shows no newer resourceVersion. The watch brings
//! metadata alone, so content is asked for when it changed, and not for every pass.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Secret;

use crate::apply::memory::is_older;

#[derive(Clone)]
struct Copy {
    resource_version: String,
    secret: Arc<Secret>,
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
    pub fn get(&self, namespace: &str, name: &str, shown: Option<&str>) -> Option<Arc<Secret>> {
        let copies = self.lock();
        let copy = copies.get(&(namespace.to_owned(), name.to_owned()))?;
        let good = shown.is_none_or(|shown| shown == copy.resource_version || is_older(shown, &copy.resource_version));
        good.then(|| Arc::clone(&copy.secret))
    }

    /// Whether there is a copy that is no older than `resource_version`.
    pub fn holds(&self, namespace: &str, name: &str, resource_version: &str) -> bool {
        self.get(namespace, name, Some(resource_version)).is_some()
    }

    /// Keeps what the API server answered.
    pub fn put(&self, namespace: &str, name: &str, mut secret: Secret) -> Arc<Secret> {
        // What nobody reads of a copy is not kept.
        secret.metadata.managed_fields = None;
        secret.metadata.labels = None;
        let resource_version = secret.metadata.resource_version.clone().unwrap_or_default();
        let secret = Arc::new(secret);
        let copy = Copy { resource_version, secret: Arc::clone(&secret) };
        self.lock().insert((namespace.to_owned(), name.to_owned()), copy);
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
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    #[test]
    fn a_copy_serves_until_the_watch_shows_something_newer() {
        let book = SecretBook::default();
        let metadata = ObjectMeta { resource_version: Some("10".into()), ..ObjectMeta::default() };
        book.put("demo", "weather.keys", Secret { metadata, ..Secret::default() });
        for (shown, good) in [(None, true), (Some("10"), true), (Some("9"), true), (Some("11"), false)] {
            assert_eq!(book.get("demo", "weather.keys", shown).is_some(), good, "{shown:?}");
        }
        book.forget("demo", "weather.keys");
        assert!(book.get("demo", "weather.keys", None).is_none());
    }
}
