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
    server: String,
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
    /// Makes every certificate that a cluster needs once. Its API server is reached at `server`, which is one of the two addresses.
    pub(super) fn create(folder: &Path, server: &str, addresses: [IpAddr; 2]) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let server = format!("https://{server}");
        let pki = Self { folder: folder.to_owned(), cluster: Authority::new("cluster-ca")?, server };
        let front_proxy = Authority::new("front-proxy-ca")?;
        write(folder, "ca.crt", &pki.cluster.certificate)?;
        write(folder, "ca.key", &pki.cluster.issuer.key().serialize_pem())?;
        write(folder, "front-proxy.crt", &front_proxy.certificate)?;

        let accounts = KeyPair::generate()?;
        write(folder, "service-accounts.key", &accounts.serialize_pem())?;
        write(folder, "service-accounts.pub", &accounts.public_key_pem())?;

        let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"].map(String::from);
        let [node, service] = addresses;
        let addresses = [IpAddr::from([127, 0, 0, 1]), node, service];
        let mut names = names.to_vec();
        names.push("kubernetes.default.svc.cluster.local".into());
        store(folder, "apiserver", &pki.cluster.server("kube-apiserver", &names, &addresses)?)?;
        let names = ["metrics-server.kube-system.svc".to_owned()];
        store(folder, "metrics-server", &pki.cluster.server("metrics-server", &names, &[])?)?;
        store(folder, "front-proxy-client", &front_proxy.client("front-proxy-client", &[])?)?;
        let masters = ["system:masters"];
        store(folder, "apiserver-kubelet", &pki.cluster.client("kube-apiserver-kubelet-client", &masters)?)?;

        for (name, user, groups) in [
            ("controller-manager", "system:kube-controller-manager", &[][..]),
            ("scheduler", "system:kube-scheduler", &[]),
            ("proxy", "system:kube-proxy", &[]),
            ("dns", "dns", &masters),
            ("network-policy", "network-policy", &masters),
            ("metrics-server", "metrics-server", &masters),
        ] {
            pki.kubeconfig(&pki.folder.join(format!("{name}.kubeconfig")), &pki.server, user, groups)?;
        }
        Ok(pki)
    }

    /// The certificate of the authority that signs servers and clients, as a field of an object holds it.
    pub(super) fn bundle(&self) -> String {
        STANDARD.encode(&self.cluster.certificate)
    }

    /// Makes what the kubelet of a node shows and is known by, in this folder.
    pub(super) fn node(&self, folder: &Path, name: &str, address: IpAddr) -> Result<()> {
        fs::create_dir_all(folder)?;
        store(folder, "kubelet-serving", &self.cluster.server(name, &[name.into()], &[address])?)?;
        let user = format!("system:node:{name}");
        self.kubeconfig(&folder.join("kubelet.kubeconfig"), &self.server, &user, &["system:nodes"])
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
}

fn store(folder: &Path, name: &str, identity: &Identity) -> Result<()> {
    write(folder, &format!("{name}.crt"), &identity.certificate)?;
    write(folder, &format!("{name}.key"), &identity.key)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
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
