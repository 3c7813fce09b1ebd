//! Names of what the operator works on.

use std::fmt;

/// The namespace and name of an McpServer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServerKey {
    /// The server `name` in `namespace`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServerKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The kinds of children that a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "they are Kubernetes' own names")]
pub enum Kind {
    ConfigMap,
    Deployment,
    HorizontalPodAutoscaler,
    Ingress,
    NetworkPolicy,
    PodDisruptionBudget,
    Secret,
    Service,
    ServiceAccount,
}

impl Kind {
    /// As the API has it; also the label of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Deployment => "Deployment",
            Self::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            Self::Ingress => "Ingress",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::ServiceAccount => "ServiceAccount",
        }
    }

    /// Whether the API server counts changes of the spec in `metadata.generation`. Where it does not, any change moves
    /// the resourceVersion, and that is what is compared.
    /// A HorizontalPodAutoscaler has a generation since Kubernetes 1.36. Before, it has none, and its status moves the
    /// resourceVersion all the time: what somebody changed there is put right with the next change of ours.
    pub const fn has_generation(self) -> bool {
        matches!(
            self,
            Self::Deployment
                | Self::HorizontalPodAutoscaler
                | Self::Ingress
                | Self::NetworkPolicy
                | Self::PodDisruptionBudget
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A child of a server in the server's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildKey {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ChildKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
