//! The condition types and their reasons, each once: the operator writes no other, and the docs list these.

/// What a condition tells of. `Ready` is the summary that `kubectl wait` and kstatus understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The spec can be served.
    Accepted,
    /// Pods of the current spec are available.
    Available,
    /// The backend answered an MCP handshake.
    Verified,
    /// Ingress and hosts are as asked.
    Exposed,
    /// The server can be used: accepted, available, and neither refuted by the handshake nor unexposed.
    Ready,
    /// Nothing will change until somebody acts. Only present while true (kstatus).
    Stalled,
}

impl ConditionType {
    /// In the order in which they stand in the status.
    pub const ALL: [Self; 6] =
        [Self::Accepted, Self::Available, Self::Verified, Self::Exposed, Self::Ready, Self::Stalled];

    /// When it is True, for the docs.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Accepted => "the spec can be served",
            Self::Available => "pods of the server take calls",
            Self::Verified => "the server behind the front door answered an MCP handshake",
            Self::Exposed => "ingress and hosts are as the spec asks",
            Self::Ready => "the server can be used: the summary, for `kubectl wait --for=condition=Ready`",
            Self::Stalled => "nothing will change until somebody acts; present only while it is so",
        }
    }

    /// As the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Available => "Available",
            Self::Verified => "Verified",
            Self::Exposed => "Exposed",
            Self::Ready => "Ready",
            Self::Stalled => "Stalled",
        }
    }
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a condition has its status, in one word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Reason {
            /// Every reason, in the order of the docs.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// As the API has it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it means, for the docs.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc,)+),)+
                }
            }
        }
    };
}

reasons! {
    /// The spec is served as written.
    Accepted,
    /// A Secret of `auth.keySecrets` does not exist.
    KeySecretNotFound,
    /// An entry of a Secret of `auth.keySecrets` is too weak or not understood.
    KeyRefused,
    /// A rotation of the keys that seal sessions waits for pods or for sessions of before, or was refused.
    SessionKeysWaiting,
    /// Pods of the server do not reach each other, so sessions are lost to requests that come by another pod.
    PeersUnreachable,
    /// The HorizontalPodAutoscaler does not act, for example because nothing measures the use of CPU.
    AutoscalerInactive,
    /// The spec says something that cannot be served.
    InvalidSpec,
    /// A front door does not understand its newest config, and keeps the last good one.
    ConfigRefused,
    /// An object with the name of a child exists and is not Mooring's.
    NameConflict,
    /// The stored object does not parse as an McpServer.
    Unreadable,
    /// All wanted pods are available.
    Available,
    /// Pods of the newest spec are starting.
    Progressing,
    /// No replicas are wanted.
    ScaledToZero,
    /// An image cannot be pulled.
    ImagePullBackOff,
    /// A container ends again and again.
    CrashLoopBackOff,
    /// A container cannot be made, for example because a Secret or ConfigMap is missing.
    CreateContainerConfigError,
    /// A container cannot be started.
    ContainerCannotRun,
    /// The cluster refuses to make pods, by quota or policy.
    FailedCreate,
    /// No node takes the pods.
    Unschedulable,
    /// A pod waits for its volumes or its network.
    VolumesNotReady,
    /// A ConfigMap, Secret or ServiceAccount that the spec refers to does not exist.
    ReferenceNotFound,
    /// The API server refused a child.
    ChildRefused,
    /// The backend answered an MCP handshake.
    HandshakeSucceeded,
    /// The backend answered no MCP handshake.
    HandshakeFailed,
    /// No pod has been asked yet.
    HandshakePending,
    /// The operator cannot reach the pods, so it cannot tell.
    PodsUnreachable,
    /// The server is reached at its URL.
    Exposed,
    /// No ingress is asked for; the Service is the way in.
    NotRequested,
    /// Ingress is asked for, and there is no host to serve.
    NoHosts,
    /// An older McpServer has the same host and path.
    HostConflict,
    /// The IngressClass does not exist.
    IngressClassNotFound,
    /// The TLS Secret does not exist.
    TlsSecretNotFound,
    /// An Ingress annotation would change what Mooring promises.
    AnnotationRefused,
    /// The server can be used.
    Ready,
}

impl std::fmt::Display for ConditionType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The table of `docs/conditions.md`: every condition type, and every reason with its meaning.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Conditions of an McpServer\n\nGenerated by `cargo xtask generate` from the code that sets them.\n\n| condition | it is True when |\n|---|---|\n",
    );
    text.extend(ConditionType::ALL.map(|kind| format!("| `{kind}` | {} |\n", kind.meaning())));
    text.push_str("\n| reason | meaning |\n|---|---|\n");
    text.extend(Reason::ALL.iter().map(|reason| format!("| `{reason}` | {} |\n", reason.meaning().trim())));
    text
}
