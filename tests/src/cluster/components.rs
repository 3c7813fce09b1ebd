//! The command line of each component of the control plane. Everything listens inside the namespaces only, so fixed ports never
//! collide.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::node::Node;
use super::pki::Pki;
use crate::parts;

/// The first address of the service range, which the API server takes for `kubernetes.default`.
pub(super) const SERVICE_IP: &str = "10.96.0.1";
/// Where the API server listens on the first node.
pub(super) const API_SERVER_PORT: u16 = 6443;
/// The ports of the first node at which Traefik listens for HTTP and HTTPS.
pub(super) const TRAEFIK: (u16, u16) = (30080, 30443);

/// A program and how it is started: the name, then its arguments.
pub(super) struct Component {
    pub(super) name: &'static str,
    pub(super) argv: Vec<String>,
    pub(super) log: PathBuf,
}

/// The data directory of a cluster, and what stands where in it.
pub(super) struct Layout {
    pub(super) data: PathBuf,
    /// At least one. The first holds the control plane.
    pub(super) nodes: Vec<Node>,
}

impl Layout {
    pub(super) fn first(&self) -> &Node {
        self.nodes.first().expect("a cluster has a node")
    }

    /// The API server, as everybody inside sees it.
    pub(super) fn api_server_address(&self) -> String {
        format!("{}:{API_SERVER_PORT}", self.first().address)
    }

    /// Writes the configuration of everything that the cluster has once, and of each node.
    pub(super) fn write_configuration(&self, cgroup: &str, pki: &Pki) -> Result<()> {
        let files = [
            ("Corefile", include_str!("../../cluster/conf/Corefile")),
            ("audit.yaml", include_str!("../../cluster/conf/audit.yaml")),
            ("dns.yaml", include_str!("../../cluster/conf/dns.yaml")),
            ("metrics.yaml", include_str!("../../cluster/conf/metrics.yaml")),
            ("traefik.yaml", include_str!("../../cluster/conf/traefik.yaml")),
        ];
        let values = [
            ("@DATA@", show(&self.data)),
            ("@NODE@", self.first().name.clone()),
            ("@ADDRESS@", self.first().address.to_string()),
            ("@CA@", pki.bundle()),
            ("@TRAEFIK@", parts::TRAEFIK.to_owned()),
        ];
        fill(&self.conf(""), &files, &values)?;
        self.nodes.iter().try_for_each(|node| node.write_configuration(cgroup))
    }

    pub(super) fn pki(&self) -> PathBuf {
        self.data.join("pki")
    }

    pub(super) fn conf(&self, name: &str) -> PathBuf {
        self.data.join("conf").join(name)
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
        self.component("etcd", vec![self.own("etcd"), "http://127.0.0.1:2379".into()])
    }

    pub(super) fn api_server(&self, audit: bool) -> Component {
        let mut argv = vec![
            "--etcd-servers=http://127.0.0.1:2379".into(),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            format!("--advertise-address={}", self.first().address),
            format!("--secure-port={API_SERVER_PORT}"),
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
        self.component("kube-apiserver", argv)
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
        self.component("kube-controller-manager", argv)
    }

    pub(super) fn scheduler(&self) -> Component {
        let mut argv = self.authenticated("scheduler");
        argv.push("--leader-elect=false".into());
        self.component("kube-scheduler", argv)
    }

    pub(super) fn dns(&self) -> Component {
        self.component("coredns", vec!["-conf".into(), show(&self.conf("Corefile"))])
    }

    /// Measures what pods use, and serves it behind the API server.
    pub(super) fn metrics(&self, metrics_server: &Path) -> Component {
        let mut argv = vec![show(metrics_server)];
        argv.extend(self.known("metrics-server"));
        argv.extend([
            format!("--bind-address={}", self.first().address),
            "--secure-port=4443".into(),
            format!("--tls-cert-file={}", self.pem("metrics-server.crt")),
            format!("--tls-private-key-file={}", self.pem("metrics-server.key")),
            format!("--kubelet-certificate-authority={}", self.pem("ca.crt")),
            "--kubelet-preferred-address-types=InternalIP".into(),
            // It takes no less.
            "--metric-resolution=10s".into(),
            "--kubelet-request-timeout=5s".into(),
        ]);
        Component { argv, ..self.component("metrics-server", Vec::new()) }
    }

    /// How a component is known to the API server, and knows who asks it.
    fn known(&self, name: &str) -> Vec<String> {
        let kubeconfig = self.kubeconfig(name);
        ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
            .map(|flag| format!("--{flag}={kubeconfig}"))
            .into()
    }

    /// The same for one that only its own node asks.
    fn authenticated(&self, name: &str) -> Vec<String> {
        let mut argv = self.known(name);
        argv.extend(["--bind-address=127.0.0.1".into(), format!("--cert-dir={}", self.own(name))]);
        argv
    }
    fn component(&self, name: &'static str, arguments: Vec<String>) -> Component {
        let argv = std::iter::once(name.to_owned()).chain(arguments).collect();
        Component { name, argv, log: self.data.join("log").join(format!("{name}.log")) }
    }
}

/// Writes files into a folder, with the values in place of their marks.
pub(super) fn fill(folder: &Path, files: &[(&str, &str)], values: &[(&str, String)]) -> Result<()> {
    for (name, template) in files {
        let path = folder.join(name);
        let parent = path.parent().context("a file has a folder")?;
        std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        let text = values.iter().fold((*template).to_owned(), |text, (mark, value)| text.replace(mark, value));
        std::fs::write(path, text)?;
    }
    Ok(())
}

pub(super) fn show(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
