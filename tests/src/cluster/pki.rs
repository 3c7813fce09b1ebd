//! The certificates and kubeconfigs of one cluster. A single authority signs clients and servers, a second one the front
//! proxy, as the API server asks. Files lie in `pki/` of the data directory.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};

/// The authorities, kept for as long as the cluster lives, so that a test can ask for another identity.
pub(super) struct Pki {
    folder: PathBuf,
    cluster: Authority,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate with its key, both PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Pki {
    /// Makes every certificate that the components of a one-node cluster need.
    pub(super) fn create(folder: &Path, node: &str, node_ip: IpAddr, service_ip: IpAddr) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let pki = Self { folder: folder.to_owned(), cluster: Authority::new("cluster-ca")? };
        let front_proxy = Authority::new("front-proxy-ca")?;
        pki.write("ca.crt", &pki.cluster.certificate)?;
        pki.write("ca.key", &pki.cluster.issuer.key().serialize_pem())?;
        pki.write("front-proxy.crt", &front_proxy.certificate)?;

        let accounts = KeyPair::generate()?;
        pki.write("service-accounts.key", &accounts.serialize_pem())?;
        pki.write("service-accounts.pub", &accounts.public_key_pem())?;

        let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"].map(String::from);
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let mut names = names.to_vec();
        names.push("kubernetes.default.svc.cluster.local".into());
        pki.store("apiserver", &pki.cluster.server("kube-apiserver", &names, &[loopback, service_ip, node_ip])?)?;
        pki.store("kubelet-serving", &pki.cluster.server(node, &[node.into()], &[node_ip])?)?;
        let names = ["metrics-server.kube-system.svc".to_owned()];
        pki.store("metrics-server", &pki.cluster.server("metrics-server", &names, &[])?)?;
        pki.store("front-proxy-client", &front_proxy.client("front-proxy-client", &[])?)?;
        let masters = ["system:masters"];
        pki.store("apiserver-kubelet", &pki.cluster.client("kube-apiserver-kubelet-client", &masters)?)?;

        let kubelet = format!("system:node:{node}");
        for (name, user, groups) in [
            ("controller-manager", "system:kube-controller-manager", &[][..]),
            ("scheduler", "system:kube-scheduler", &[]),
            ("proxy", "system:kube-proxy", &[]),
            ("dns", "dns", &masters),
            ("network-policy", "network-policy", &masters),
            ("metrics-server", "metrics-server", &masters),
            ("kubelet", &kubelet, &["system:nodes"]),
        ] {
            pki.kubeconfig(&pki.folder.join(format!("{name}.kubeconfig")), "https://127.0.0.1:6443", user, groups)?;
        }
        Ok(pki)
    }

    /// The certificate of the authority that signs servers and clients, as a field of an object holds it.
    pub(super) fn bundle(&self) -> String {
        STANDARD.encode(&self.cluster.certificate)
    }

    /// Writes a kubeconfig that needs no other file, for a user in these groups. JSON is YAML too.
    pub(super) fn kubeconfig(&self, path: &Path, server: &str, user: &str, groups: &[&str]) -> Result<()> {
        let identity = self.cluster.client(user, groups)?;
        let config: Value = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "mooring-test", "cluster": {
                "server": server,
                "certificate-authority-data": self.bundle(),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate-data": STANDARD.encode(identity.certificate),
                "client-key-data": STANDARD.encode(identity.key),
            }}],
            "contexts": [{"name": "mooring-test", "context": {"cluster": "mooring-test", "user": user}}],
            "current-context": "mooring-test",
        });
        fs::write(path, serde_json::to_string_pretty(&config)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn store(&self, name: &str, identity: &Identity) -> Result<()> {
        self.write(&format!("{name}.crt"), &identity.certificate)?;
        self.write(&format!("{name}.key"), &identity.key)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Authority {
    fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    fn client(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn server(&self, name: &str, names: &[String], addresses: &[IpAddr]) -> Result<Identity> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = distinguished(name, &[]);
        params.subject_alt_names.extend(addresses.iter().map(|ip| SanType::IpAddress(*ip)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

/// Kubernetes takes the common name for the user and each organization for a group.
fn distinguished(user: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for group in groups {
        name.push(DnType::OrganizationName, *group);
    }
    name.push(DnType::CommonName, user);
    name
}
