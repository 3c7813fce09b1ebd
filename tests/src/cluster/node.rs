//! A node of a cluster: what is its own, and the components that every node has. All but the first are nothing more than this.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::components::{Component, fill, show};
use crate::parts;

/// A node. It is a machine of its own to everybody inside: its namespaces, its containerd, its folder.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// Its address, and that of everything that listens on it.
    pub(super) address: IpAddr,
    /// The network of its pods.
    pub(super) pods: String,
    data: PathBuf,
}

impl Node {
    /// The nodes of a cluster with this data directory.
    pub(super) fn all(data: &Path, count: u8) -> Vec<Self> {
        let node = |number| Self {
            name: format!("node-{number}"),
            address: Ipv4Addr::new(10, 99, 0, number).into(),
            pods: format!("10.244.{}.0/24", number - 1),
            data: data.to_owned(),
        };
        (1..=count.max(1)).map(node).collect()
    }

    /// What only this node has: its certificates, the configuration of its components, and what they keep.
    pub(super) fn folder(&self) -> PathBuf {
        self.data.join(&self.name)
    }

    fn own(&self, name: &str) -> String {
        show(&self.folder().join(name))
    }

    /// Writes the configuration of its components, with the cgroup that the guard makes for its pods.
    pub(super) fn write_configuration(&self, cgroup: &str) -> Result<()> {
        let files = [
            ("cni/10-pods.conflist", include_str!("../../cluster/conf/bridge.conflist")),
            ("containerd.toml", include_str!("../../cluster/conf/containerd.toml")),
            ("kubelet.yaml", include_str!("../../cluster/conf/kubelet.yaml")),
            ("proxy.yaml", include_str!("../../cluster/conf/proxy.yaml")),
            ("resolv.conf", "nameserver 10.96.0.10\n"),
        ];
        let values = [
            ("@DATA@", show(&self.data)),
            ("@OWN@", show(&self.folder())),
            ("@NODE@", self.name.clone()),
            ("@PODS@", self.pods.clone()),
            ("@CGROUP@", format!("{cgroup}/{}", self.name)),
            ("@PAUSE@", parts::PAUSE.to_owned()),
        ];
        fill(&self.folder().join("conf"), &files, &values)
    }

    fn component(&self, name: &'static str, arguments: Vec<String>) -> Component {
        let argv = std::iter::once(name.to_owned()).chain(arguments).collect();
        Component { name, argv, log: self.data.join("log").join(format!("{name}-{}.log", self.name)) }
    }

    pub(super) fn containerd(&self) -> Component {
        self.component("containerd", vec!["--config".into(), self.own("conf/containerd.toml")])
    }

    pub(super) fn kubelet(&self) -> Component {
        let arguments = vec![
            format!("--kubeconfig={}", self.own("pki/kubelet.kubeconfig")),
            format!("--config={}", self.own("conf/kubelet.yaml")),
            format!("--hostname-override={}", self.name),
            format!("--node-ip={}", self.address),
            format!("--root-dir={}", self.own("kubelet")),
            format!("--cert-dir={}", self.own("kubelet-certificates")),
        ];
        self.component("kubelet", arguments)
    }

    pub(super) fn proxy(&self) -> Component {
        self.component("kube-proxy", vec![format!("--config={}", self.own("conf/proxy.yaml"))])
    }

    /// Enforces NetworkPolicy, and does nothing else.
    pub(super) fn network_policy(&self, kube_router: &Path) -> Component {
        let kubeconfig = show(&self.data.join("pki/network-policy.kubeconfig"));
        let fixed = "--run-firewall=true --run-router=false --run-service-proxy=false --metrics-port=0 --health-port=0 \
                     --service-cluster-ip-range=10.96.0.0/16 --service-node-port-range=30000-32767";
        let mut argv = vec![show(kube_router), format!("--kubeconfig={kubeconfig}")];
        argv.push(format!("--hostname-override={}", self.name));
        argv.extend(fixed.split_whitespace().map(String::from));
        Component { argv, ..self.component("kube-router", Vec::new()) }
    }
}
