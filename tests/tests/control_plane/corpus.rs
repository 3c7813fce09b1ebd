//! What the API server itself refuses, and what it must not.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use mooring_tests::product;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::{cluster, patched};

#[derive(Deserialize)]
struct Refused {
    what: String,
    name: Option<String>,
    #[serde(default = "nothing")]
    spec: Value,
    says: String,
}

#[derive(Deserialize)]
struct Accepted {
    what: String,
    spec: Value,
}

fn nothing() -> Value {
    json!({})
}

fn corpus(file: &str) -> Result<String> {
    let path = product::workspace().join("tests/corpus").join(file);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

async fn judge(name: &str, spec: &Value) -> Result<Result<(), String>> {
    let client = cluster().await?.client().await?;
    let server =
        json!({"apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer", "metadata": {"name": name}, "spec": spec});
    let address = "/apis/mooring.dev/v1alpha1/namespaces/default/mcpservers?dryRun=All&fieldValidation=Strict";
    let request = http::Request::post(address)
        .header("content-type", "application/json")
        .body(server.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) => Ok(Err(status.message.clone())),
        Err(error) => bail!(error),
    }
}

fn good() -> Value {
    json!({"http": {"image": "a"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_served_is_refused_with_field_and_reason() -> Result<()> {
    let cases: Vec<Refused> = serde_saphyr::from_str(&corpus("refused.yaml")?)?;
    let mut faults = Vec::new();
    for Refused { what, name, spec, says } in &cases {
        let merged = patched(&good(), spec);
        match judge(name.as_deref().unwrap_or("corpus"), &merged).await? {
            Ok(()) => faults.push(format!("{what}: accepted")),
            Err(message) if message.contains(says) => {}
            Err(message) => faults.push(format!("{what}: wanted {says:?}, got {message:?}")),
        }
    }
    assert!(cases.len() > 60, "the corpus has {} cases", cases.len());
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_served_is_accepted() -> Result<()> {
    let cases: Vec<Accepted> = serde_saphyr::from_str(&corpus("accepted.yaml")?)?;
    let mut faults = Vec::new();
    for Accepted { what, spec } in &cases {
        let merged = patched(&good(), spec);
        if let Err(message) = judge("corpus", &merged).await? {
            faults.push(format!("{what}: {message}"));
        }
    }
    assert!(cases.len() > 20, "the corpus has {} cases", cases.len());
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), cases.len(), faults.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_that_ships_can_be_applied_with_plain_kubectl() -> Result<()> {
    let cluster = cluster().await?;
    let examples = std::fs::read_dir(product::workspace().join("examples"))?;
    let mut files = vec![product::workspace().join("mcpserver.yaml")];
    let examples = examples.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.extend(examples.into_iter().filter(|path| path.is_file())); // as kubectl does with a folder
    let client = cluster.client().await?;
    mooring_tests::wait::until("the namespace default", Duration::from_secs(30), || async {
        Ok(Api::<Namespace>::all(client.clone()).get("default").await?)
    })
    .await?;
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let file = file.to_string_lossy().into_owned();
        let said =
            cluster.kubectl(["apply", "--dry-run=server", "--validate=strict", "-n", "default", "-f", &file]).await?;
        assert!(said.contains("mcpserver.mooring.dev/"), "{file}: {said}");
        assert!(!said.to_lowercase().contains("warning"), "{file}: {said}");
    }
    Ok(())
}
