//! TLS at the ingress controller: the certificate of the Secret that the spec names, and no answer in the clear.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use mooring_tests::clients::{Client, Session};
use mooring_tests::mcp::Target;
use mooring_tests::wait::until;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::room::Room;
use crate::specs::{self, KEY};

/// A certificate for a host as the Secret that a spec refers to, and the file of the authority that clients trust.
fn certificate(host: &str, folder: &TempDir) -> Result<(Value, PathBuf)> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, "an authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let file = folder.path().join("authority.pem");
    std::fs::write(&file, authority.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(authority, key);

    let mut leaf = CertificateParams::new(vec![host.to_owned()])?;
    leaf.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &issuer)?.pem();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "secured-tls"},
        "stringData": {"tls.crt": certificate, "tls.key": key.serialize_pem()},
    });
    Ok((secret, file))
}

/// A redirect would come after the key has travelled in the clear, and would hide that: Traefik answers 404.
pub(crate) async fn with_tls_nothing_is_served_in_the_clear(room: Room) -> Result<()> {
    let host = room.host("secured");
    let mut spec = specs::tools(&room, "secured");
    spec["ingress"] = json!({"tls": {"secretName": "secured-tls"}});
    room.serve("secured", &spec).await?;
    room.told("secured", "Exposed", ("False", "TlsSecretNotFound"), &["secured-tls"]).await?;
    let folder = tempfile::tempdir()?;
    let (secret, authority) = certificate(&host, &folder)?;
    room.apply(secret).await?;
    let url = room.ready("secured").await?;
    ensure!(url == format!("https://{host}/mcp"), "the URL is {url}");

    let key = room.key("secured", KEY).await?;
    let address = room.world.cluster.forward("traefik-https").await?;
    let url = format!("https://{host}:{}/mcp", address.port());
    let session = Session::new(url).resolve_to(address.ip()).key(&key).call("health", json!({}));
    for client in Client::IN_CLUSTERS {
        let trusting = session.clone().trust(&authority);
        let report =
            until("Traefik to serve the certificate", Duration::from_secs(30), || client.run(&trusting)).await?;
        ensure!(report.text == [r#"{"status":"alive"}"#], "{report:?}");
        let refused = client.run(&session).await.err().with_context(|| format!("{client:?} checks no certificate"))?;
        ensure!(!format!("{refused:#}").contains("404"), "{refused:#}");
    }

    let plain = Target { address: room.world.ingress, host, path: "/mcp".into(), key: Some(key), headers: Vec::new() };
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for (method, body) in [("POST", list.as_str()), ("GET", "")] {
        let answer = plain.send(method, body.to_owned()).await?;
        ensure!(answer.status == StatusCode::NOT_FOUND, "{method} in the clear: {}: {}", answer.status, answer.text());
        ensure!(answer.message().is_err(), "the front door was reached: {}", answer.text());
    }
    Ok(())
}
