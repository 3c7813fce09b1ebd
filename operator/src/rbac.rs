//! The rights that the operator needs, each with its reason: the one source for the chart's roles, for its README and for
//! the test that compares them.

/// Where a right has to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In the namespaces that are served, or in all of them.
    Served,
    /// In the operator's own namespace.
    Own,
    /// In the cluster. The operator can do without where only namespaces were given.
    Cluster,
}

/// One right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it has to be given.
    pub place: Where,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resources.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// What for.
    pub why: &'static str,
}

const fn served(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Rule {
    Rule { place: Where::Served, group, resources, verbs, why }
}

/// Every right, and no other. Each kind of child has `delete`, even where the operator leaves deletion to the garbage
/// collector: a cluster with the admission plugin OwnerReferencesPermissionEnforcement asks for it before it lets an
/// owner reference be set.
const RULES: &[Rule] = &[
    served("mooring.dev", &["mcpservers"], &["list", "watch"], "reads the servers it runs"),
    served("mooring.dev", &["mcpservers/status"], &["patch"], "writes what it found"),
    served(
        "",
        &["configmaps", "serviceaccounts", "services"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "makes the children of a server; ConfigMaps and ServiceAccounts that a spec refers to are looked up by metadata",
    ),
    served(
        "",
        &["secrets"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "mints keys and keeps their hashes; lists and watches metadata only, and reads the bytes of its own Secrets and of auth.keySecrets alone",
    ),
    served(
        "",
        &["pods"],
        &["list", "patch", "watch"],
        "reads why a pod does not start; patches one annotation, so that the kubelet refreshes keys at once",
    ),
    served(
        "",
        &["persistentvolumeclaims"],
        &["get", "list", "watch"],
        "tells of a volume that does not exist (metadata only)",
    ),
    served(
        "apps",
        &["deployments"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "runs the pods of a server",
    ),
    served(
        "networking.k8s.io",
        &["ingresses", "networkpolicies"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "exposes a server, and keeps its backend's port closed",
    ),
    served(
        "autoscaling",
        &["horizontalpodautoscalers"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "scales a server that asks for it, and tells why one is not scaled",
    ),
    served(
        "policy",
        &["poddisruptionbudgets"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "lets the drain of a node take one pod of a server at a time",
    ),
    served("events.k8s.io", &["events"], &["create", "patch"], "tells of changes"),
    Rule {
        place: Where::Own,
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["create", "get", "update"],
        why: "leader election",
    },
    Rule {
        place: Where::Cluster,
        group: "networking.k8s.io",
        resources: &["ingressclasses"],
        verbs: &["list", "watch"],
        why: "which ingress controller an Ingress is for, so that it gets the right annotations",
    },
];

/// Every right that the operator needs.
pub fn rules() -> &'static [Rule] {
    RULES
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_right_is_given_twice_and_each_has_a_reason() {
        let mut seen = BTreeSet::new();
        for rule in rules() {
            assert!(!rule.why.is_empty());
            for resource in rule.resources {
                for verb in rule.verbs {
                    assert!(seen.insert((rule.group, *resource, *verb)), "{resource} {verb}");
                    assert_ne!(*verb, "*");
                }
            }
        }
    }
}
