//! The command line of each component. Everything listens inside the namespaces only, so fixed ports never collide.

use std::path::{Path, PathBuf};

/// The name of the only node.
pub(super) const NODE: &str = "node-1";
/// The address of the node, and of everything that listens on it.
pub(super) const NODE_IP: &str = "10.99.0.1";
/// The first address of the service range, which the API server takes for `kubernetes.default`.
pub(super) const SERVICE_IP: &str = "10.96.0.1";
/// The API server, as its own node sees it.
pub(super) const API_SERVER: &str = "127.0.0.1:6443";
/// Where Traefik listens for HTTP and HTTPS.
pub(super) const TRAEFIK: (&str, &str) = ("10.99.0.1:30080", "10.99.0.1:30443");

/// A program and how it is started: the name, then its arguments.
pub(super) struct Component {
    /// Also the name of its log.
    pub(super) name: &'static str,
    pub(super) argv: Vec<String>,
}

/// The data directory of a cluster, and what stands where in it.
pub(super) struct Layout {
    pub(super) data: PathBuf,
}

impl Layout {
    pub(super) fn pki(&self) -> PathBuf {
        self.data.join("pki")
    }

    pub(super) fn conf(&self, name: &str) -> PathBuf {
        self.data.join("conf").join(name)
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.data.join("log").join(format!("{name}.log"))
    }

    pub(super) fn audit(&self) -> PathBuf {
        self.data.join("log/audit.jsonl")
    }

    pub(super) fn admin(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    fn own(&self, name: &str) -> String {
        show(&self.data.join(name))
    }

    fn kubeconfig(&self, name: &str) -> String {
        show(&self.pki().join(format!("{name}.kubeconfig")))
    }

    fn pem(&self, name: &str) -> String {
        show(&self.pki().join(name))
    }

    pub(super) fn etcd(&self) -> Component {
        component("etcd", &[&self.own("etcd"), "http://127.0.0.1:2379"])
    }

    pub(super) fn api_server(&self, audit: bool) -> Component {
        let mut argv = vec![
            "--etcd-servers=http://127.0.0.1:2379".into(),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            format!("--advertise-address={NODE_IP}"),
            "--secure-port=6443".into(),
            format!("--cert-dir={}", self.own("apiserver")),
            format!("--tls-cert-file={}", self.pem("apiserver.crt")),
            format!("--tls-private-key-file={}", self.pem("apiserver.key")),
            format!("--client-ca-file={}", self.pem("ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            format!("--service-account-signing-key-file={}", self.pem("service-accounts.key")),
            format!("--service-account-key-file={}", self.pem("service-accounts.pub")),
            "--authorization-mode=Node,RBAC".into(),
            // The second one is off by default, but on in OpenShift and hardened clusters: an operator must hold the right
            // to set the owner references that it sets. PodSecurity is on by default.
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement".into(),
            "--allow-privileged=true".into(),
            format!("--kubelet-client-certificate={}", self.pem("apiserver-kubelet.crt")),
            format!("--kubelet-client-key={}", self.pem("apiserver-kubelet.key")),
            format!("--kubelet-certificate-authority={}", self.pem("ca.crt")),
            "--kubelet-preferred-address-types=InternalIP".into(),
            format!("--requestheader-client-ca-file={}", self.pem("front-proxy.crt")),
            "--requestheader-allowed-names=front-proxy-client".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            format!("--proxy-client-cert-file={}", self.pem("front-proxy-client.crt")),
            format!("--proxy-client-key-file={}", self.pem("front-proxy-client.key")),
        ];
        if audit {
            argv.push(format!("--audit-policy-file={}", show(&self.conf("audit.yaml"))));
            argv.push(format!("--audit-log-path={}", show(&self.audit())));
        }
        Component::new("kube-apiserver", argv)
    }

    pub(super) fn controller_manager(&self, metrics: bool) -> Component {
        let mut argv = self.authenticated("controller-manager");
        argv.extend([
            "--use-service-account-credentials".into(),
            format!("--root-ca-file={}", self.pem("ca.crt")),
            format!("--service-account-private-key-file={}", self.pem("service-accounts.key")),
            format!("--cluster-signing-cert-file={}", self.pem("ca.crt")),
            format!("--cluster-signing-key-file={}", self.pem("ca.key")),
            "--allocate-node-cidrs".into(),
            "--cluster-cidr=10.244.0.0/16".into(),
            "--leader-elect=false".into(),
            // With the default of 20 the controllers wait seconds for their own start.
            "--kube-api-qps=1000".into(),
            "--kube-api-burst=1000".into(),
        ]);
        if metrics {
            // Autoscalers look as often as there are new figures, and think of less pods soon: the default is 5 min.
            argv.push("--horizontal-pod-autoscaler-sync-period=5s".into());
            argv.push("--horizontal-pod-autoscaler-initial-readiness-delay=10s".into());
            argv.push("--horizontal-pod-autoscaler-downscale-stabilization=20s".into());
        }
        Component::new("kube-controller-manager", argv)
    }

    pub(super) fn scheduler(&self) -> Component {
        let mut argv = self.authenticated("scheduler");
        argv.push("--leader-elect=false".into());
        Component::new("kube-scheduler", argv)
    }

    pub(super) fn containerd(&self) -> Component {
        component("containerd", &["--config", &show(&self.conf("containerd.toml"))])
    }

    pub(super) fn kubelet(&self) -> Component {
        let argv = vec![
            format!("--kubeconfig={}", self.kubeconfig("kubelet")),
            format!("--config={}", show(&self.conf("kubelet.yaml"))),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={NODE_IP}"),
            format!("--root-dir={}", self.own("kubelet")),
            format!("--cert-dir={}", self.own("kubelet-certificates")),
        ];
        Component::new("kubelet", argv)
    }

    pub(super) fn proxy(&self) -> Component {
        Component::new("kube-proxy", vec![format!("--config={}", show(&self.conf("proxy.yaml")))])
    }

    pub(super) fn dns(&self) -> Component {
        component("coredns", &["-conf", &show(&self.conf("Corefile"))])
    }

    /// Enforces NetworkPolicy, and does nothing else.
    pub(super) fn network_policy(&self, kube_router: &Path) -> Component {
        let mut argv = vec![show(kube_router), format!("--kubeconfig={}", self.kubeconfig("network-policy"))];
        argv.push(format!("--hostname-override={NODE}"));
        let fixed = "--run-firewall=true --run-router=false --run-service-proxy=false --metrics-port=0 --health-port=0 \
                     --service-cluster-ip-range=10.96.0.0/16 --service-node-port-range=30000-32767";
        argv.extend(fixed.split_whitespace().map(String::from));
        Component { name: "kube-router", argv }
    }

    /// Measures what pods use, and serves it behind the API server.
    pub(super) fn metrics(&self, metrics_server: &Path) -> Component {
        let mut argv = vec![show(metrics_server)];
        argv.extend(self.authenticated("metrics-server"));
        argv.retain(|argument| !argument.starts_with("--bind-address") && !argument.starts_with("--cert-dir"));
        argv.extend([
            format!("--bind-address={NODE_IP}"),
            "--secure-port=4443".into(),
            format!("--tls-cert-file={}", self.pem("metrics-server.crt")),
            format!("--tls-private-key-file={}", self.pem("metrics-server.key")),
            format!("--kubelet-certificate-authority={}", self.pem("ca.crt")),
            "--kubelet-preferred-address-types=InternalIP".into(),
            // It takes no less.
            "--metric-resolution=10s".into(),
            "--kubelet-request-timeout=5s".into(),
        ]);
        Component { name: "metrics-server", argv }
    }

    fn authenticated(&self, name: &str) -> Vec<String> {
        let kubeconfig = self.kubeconfig(name);
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".into(),
            format!("--cert-dir={}", self.own(name)),
        ]
    }
}

impl Component {
    fn new(name: &'static str, arguments: Vec<String>) -> Self {
        Self { name, argv: std::iter::once(name.to_owned()).chain(arguments).collect() }
    }
}

fn component(name: &'static str, arguments: &[&str]) -> Component {
    Component::new(name, arguments.iter().map(|a| (*a).to_owned()).collect())
}

fn show(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
