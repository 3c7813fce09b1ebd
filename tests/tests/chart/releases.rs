//! How releases come, change and go around servers that stay: installed, upgraded, rolled back, removed, under another
//! name, and over a definition that kubectl applied.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use mooring_tests::{Cluster, installed, product};
use serde_json::{Value, json};

use crate::cluster::{
    DEFINITION, apply_hello, definition, hello, helm, live_definition, namespaces, on_a_cluster, write,
};
use crate::rendered::{NAMESPACE, Rendered, VALUES, read};

async fn operator_exists(cluster: &Cluster, namespace: &str, name: &str) -> Result<bool> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client().await?, namespace);
    Ok(deployments.get_opt(name).await?.is_some())
}

#[tokio::test]
async fn a_release_comes_changes_and_goes() -> Result<()> {
    on_a_cluster(false, async |cluster| {
        namespaces(cluster, &["team-a"]).await?;
        let notes = helm(cluster, "install", "mooring", &[]).await?;
        ensure!(operator_exists(cluster, "mooring-system", "mooring").await?, "no operator");
        apply_what_the_notes_say(cluster, &notes).await.context("the notes")?;
        let (uid, spec, owner) = live_definition(cluster).await?;
        assert_eq!(owner.as_deref(), Some("mooring"));
        let before = hello(cluster, "team-a").await?;

        // A change of the values, and back.
        helm(cluster, "upgrade", "mooring", &["--set", "replicas=2"]).await?;
        cluster.helm(["rollback", "mooring", "1", "--namespace", "mooring-system"]).await?;
        assert_eq!(hello(cluster, "team-a").await?, before);
        assert_eq!(live_definition(cluster).await?, (uid.clone(), spec.clone(), owner));

        // It goes; what it served stays.
        cluster.helm(["uninstall", "mooring", "--namespace", "mooring-system"]).await?;
        ensure!(!operator_exists(cluster, "mooring-system", "mooring").await?, "the operator stayed");
        assert_eq!(hello(cluster, "team-a").await?, before);

        // Another release, of another name in another namespace, takes the definition over and goes on with it.
        for (verb, more) in [("install", "replicas=1"), ("upgrade", "replicas=2"), ("upgrade", "replicas=3")] {
            helm(cluster, verb, "second", &["--set", more]).await.with_context(|| format!("{verb} {more}"))?;
            ensure!(operator_exists(cluster, "second-system", "second-mooring").await?, "no operator");
            assert_eq!(live_definition(cluster).await?, (uid.clone(), spec.clone(), Some("second".to_owned())));
            assert_eq!(hello(cluster, "team-a").await?, before);
        }

        // The first comes back beside it by mistake, and both go: the definition has changed hands, and is still kept.
        helm(cluster, "install", "mooring", &[]).await?;
        helm(cluster, "upgrade", "second", &[]).await?;
        helm(cluster, "upgrade", "mooring", &[]).await?;
        cluster.helm(["uninstall", "second", "--namespace", "second-system"]).await?;
        cluster.helm(["uninstall", "mooring", "--namespace", "mooring-system"]).await?;
        assert_eq!(live_definition(cluster).await?.0, uid);
        assert_eq!(hello(cluster, "team-a").await?, before);
        Ok(())
    })
    .await
}

/// The manifest in the notes is the README's, and kubectl takes it.
async fn apply_what_the_notes_say(cluster: &Cluster, notes: &str) -> Result<()> {
    let (_, rest) = notes.split_once("Save this as mcpserver.yaml:\n").context("no manifest")?;
    let (manifest, _) = rest.split_once("and apply it:").context("no end of the manifest")?;
    let said: Value = serde_saphyr::from_str(manifest)?;
    let shipped: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(product::workspace().join("mcpserver.yaml"))?)?;
    assert_eq!(said, shipped);
    let folder = tempfile::tempdir()?;
    let file = write(folder.path(), "mcpserver.json", &said.to_string())?.display().to_string();
    cluster.kubectl(["apply", "--namespace", "team-a", "--filename", &file]).await.map(drop)
}

#[tokio::test]
async fn a_definition_that_kubectl_applied_is_taken_over() -> Result<()> {
    on_a_cluster(false, async |cluster| {
        namespaces(cluster, &["team-a"]).await?;
        for mode in ["--server-side=false", "--server-side=true"] {
            cluster.kubectl(["apply", mode, "--filename", &definition()]).await?;
            apply_hello(cluster, "team-a").await?;
            let (uid, spec, owner) = live_definition(cluster).await?;
            assert_eq!(owner, None);
            let before = hello(cluster, "team-a").await?;
            for verb in ["install", "upgrade"] {
                helm(cluster, verb, "mooring", &[]).await.with_context(|| format!("{mode}, {verb}"))?;
                assert_eq!(live_definition(cluster).await?, (uid.clone(), spec.clone(), Some("mooring".to_owned())));
            }
            cluster.helm(["uninstall", "mooring", "--namespace", "mooring-system"]).await?;
            // And back to kubectl.
            cluster.kubectl(["apply", mode, "--filename", &definition()]).await?;
            assert_eq!(hello(cluster, "team-a").await?, before, "{mode}");
            cluster.kubectl(["delete", "crd", DEFINITION]).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn another_version_that_kubectl_applied_is_a_conflict_with_a_way_out() -> Result<()> {
    on_a_cluster(false, async |cluster| {
        namespaces(cluster, &["team-a"]).await?;
        let folder = tempfile::tempdir()?;
        let older = read("files/mcpservers.yaml")?.replace("    - mcps\n", "    - older\n");
        let older = write(folder.path(), "older.yaml", &older)?.display().to_string();
        cluster.kubectl(["apply", "--filename", &older]).await?;
        apply_hello(cluster, "team-a").await?;
        let before = hello(cluster, "team-a").await?;
        let old = live_definition(cluster).await?;

        let Err(refused) = helm(cluster, "install", "mooring", &[]).await else { panic!("it was overwritten") };
        let said = format!("{refused:#}");
        assert!(said.contains(".spec.names.shortNames") && said.contains("kubectl-client-side-apply"), "{said}");
        assert_eq!(live_definition(cluster).await?, old);

        // What README.md says.
        let chart = product::workspace().join("charts/mooring").display().to_string();
        let ours = cluster.helm(["template", "mooring", &chart, "--show-only", "templates/crd.yaml"]).await?;
        let ours = write(folder.path(), "ours.yaml", &ours)?.display().to_string();
        cluster.kubectl(["apply", "--filename", &ours]).await?;
        helm(cluster, "upgrade", "mooring", &["--install"]).await?;
        let (uid, spec, owner) = live_definition(cluster).await?;
        assert_eq!((uid, owner.as_deref()), (old.0, Some("mooring")));
        assert_eq!(spec["names"]["shortNames"], json!(["mcps"]));
        assert_eq!(hello(cluster, "team-a").await?, before);
        Ok(())
    })
    .await
}

/// The API server's own opinion of every object, and of the pod under the *restricted* profile.
#[tokio::test]
async fn the_api_server_takes_every_object() -> Result<()> {
    on_a_cluster(false, async |cluster| {
        namespaces(cluster, &[NAMESPACE, "team-a", "team-b"]).await?;
        installed::restricted_namespace(cluster, "strict").await?;
        let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "strict");
        let folder = tempfile::tempdir()?;
        for values in VALUES {
            let rendered = Rendered::of(values)?;
            // The Prometheus operator's kind is not in a bare cluster.
            let known: Vec<&Value> = rendered.documents().iter().filter(|d| d["kind"] != "ServiceMonitor").collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "items": known}).to_string();
            let list = write(folder.path(), "list.json", &list)?.display().to_string();
            let dry = ["apply", "--dry-run=server", "--validate=strict", "--filename", &list];
            let said = cluster.kubectl(dry).await.with_context(|| format!("{values:?}"))?;
            assert_eq!(said.lines().count(), known.len(), "{said}");

            let template = rendered.one::<Deployment>()?.spec.context("a spec")?.template;
            let mut pod =
                Pod { metadata: template.metadata.unwrap_or_default(), spec: template.spec, ..Pod::default() };
            pod.metadata.name = Some("operator".to_owned());
            let spec = pod.spec.as_mut().context("a pod")?;
            spec.service_account_name = None; // it is in another namespace
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            pods.create(&dry, &pod).await.with_context(|| format!("{values:?}, restricted"))?;
            let container = &mut pod.spec.as_mut().context("a pod")?.containers[0];
            container.security_context = None;
            assert!(pods.create(&dry, &pod).await.is_err(), "the profile is not enforced");
        }
        Ok(())
    })
    .await
}
