//! What specs refer to: Secrets, ConfigMaps, ServiceAccounts and PersistentVolumeClaims by their existence, and
//! IngressClasses. Only what some spec refers to is kept, however much of it a cluster has.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use mooring_plan::observed::{IngressClass, Reference};

use super::{Cause, State, Wake, World};
use crate::key::ServerKey;
use crate::watch::view::ReadServer;

/// What is known of an object that a spec refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Known {
    /// Nothing yet: it has to be asked for.
    #[default]
    Unknown,
    /// It does not exist.
    Absent,
    /// It exists.
    Present,
}

#[derive(Debug, Default)]
pub(super) struct Tracked {
    known: Known,
    resource_version: String,
    by: BTreeSet<ServerKey>,
}

impl World {
    /// What is known of the objects that a server refers to.
    pub fn references(&self, key: &ServerKey, of: &BTreeSet<Reference>) -> BTreeMap<Reference, Known> {
        let state = self.read();
        let known = |reference: &Reference| {
            state
                .tracked
                .get(&(key.namespace.clone(), reference.clone()))
                .map_or(Known::Unknown, |tracked| tracked.known)
        };
        of.iter().map(|reference| (reference.clone(), known(reference))).collect()
    }

    /// Whether a spec refers to the object.
    pub fn is_tracked(&self, namespace: &str, reference: &Reference) -> bool {
        self.read().tracked.contains_key(&(namespace.to_owned(), reference.clone()))
    }

    /// The resourceVersion of a tracked object, for telling whether a copy of it is still good.
    pub fn reference_version(&self, namespace: &str, reference: &Reference) -> Option<String> {
        let state = self.read();
        let tracked = state.tracked.get(&(namespace.to_owned(), reference.clone()))?;
        (tracked.known == Known::Present).then(|| tracked.resource_version.clone())
    }

    /// An object was asked for directly. What a watch said meanwhile stands.
    pub fn learn(&self, namespace: &str, reference: &Reference, resource_version: Option<String>) {
        if let Some(tracked) = self.write().tracked.get_mut(&(namespace.to_owned(), reference.clone()))
            && tracked.known == Known::Unknown
        {
            tracked.known = if resource_version.is_some() { Known::Present } else { Known::Absent };
            tracked.resource_version = resource_version.unwrap_or_default();
        }
    }

    /// An object that some spec may refer to was seen, or is gone (`None`).
    pub fn put_reference(&self, namespace: &str, reference: Reference, resource_version: Option<&str>) -> Vec<Wake> {
        let is_secret = matches!(reference, Reference::Secret(_));
        let mut state = self.write();
        let Some(tracked) = state.tracked.get_mut(&(namespace.to_owned(), reference)) else { return Vec::new() };
        let known = if resource_version.is_some() { Known::Present } else { Known::Absent };
        let resource_version = resource_version.unwrap_or_default();
        let appeared = tracked.known != known;
        // Only Secrets are read; of everything else, existence is all that matters.
        let changed = appeared || (is_secret && tracked.resource_version != resource_version);
        tracked.known = known;
        resource_version.clone_into(&mut tracked.resource_version);
        if !changed {
            return Vec::new();
        }
        let cause = if is_secret { Cause::Keys } else { Cause::Other };
        tracked.by.iter().map(|server| (server.clone(), cause)).collect()
    }

    /// A complete list of one kind was seen: what is not in it has to be asked for again, because an object that was
    /// tracked only while the list was under way may have been passed over.
    pub fn retain_references(
        &self,
        of_kind: impl Fn(&Reference) -> Option<&str>,
        namespace: Option<&str>,
        seen: &HashSet<(String, String)>,
    ) -> Vec<Wake> {
        let mut wakes = Vec::new();
        for ((in_namespace, reference), tracked) in &mut self.write().tracked {
            let Some(name) = of_kind(reference) else { continue };
            let in_scope = namespace.is_none_or(|namespace| namespace == in_namespace);
            if in_scope && tracked.known == Known::Present && !seen.contains(&(in_namespace.clone(), name.to_owned())) {
                tracked.known = Known::Unknown;
                wakes.extend(tracked.by.iter().map(|server| (server.clone(), Cause::Other)));
            }
        }
        wakes
    }

    // IngressClasses

    /// The IngressClasses, by name; absent while no complete list was seen, which without the right to it is for ever.
    pub fn ingress_classes(&self) -> Option<BTreeMap<String, IngressClass>> {
        self.read().classes.clone()
    }

    /// An IngressClass was seen, or is gone (`None`).
    pub fn put_ingress_class(&self, name: &str, class: Option<IngressClass>) -> Vec<Wake> {
        let mut state = self.write();
        let classes = state.classes.get_or_insert_default();
        if classes.get(name) == class.as_ref() {
            return Vec::new();
        }
        match class {
            Some(class) => classes.insert(name.to_owned(), class),
            None => classes.remove(name),
        };
        let asks = |read: &Arc<ReadServer>| read.server.spec.ingress.is_some();
        state.servers.iter().filter(|(_, read)| asks(read)).map(|(key, _)| (key.clone(), Cause::Other)).collect()
    }

    /// A complete list of IngressClasses was seen.
    pub fn retain_ingress_classes(&self, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        let gone: Vec<String> = self
            .write()
            .classes
            .get_or_insert_default()
            .keys()
            .filter(|name| !seen.contains(&(String::new(), (*name).clone())))
            .cloned()
            .collect();
        gone.iter().flat_map(|name| self.put_ingress_class(name, None)).collect()
    }
}

impl State {
    /// A server refers to these objects, and to no others any more.
    pub(super) fn track(&mut self, key: &ServerKey, references: &BTreeSet<Reference>) {
        for reference in references {
            self.tracked.entry((key.namespace.clone(), reference.clone())).or_default().by.insert(key.clone());
        }
        self.tracked.retain(|(namespace, reference), tracked| {
            if *namespace == key.namespace && !references.contains(reference) {
                tracked.by.remove(key);
            }
            !tracked.by.is_empty()
        });
    }
}
