//! The control plane that the suites stand on: real admission and authorization, an audit log, several at once, and
//! nothing left of one that ended, however it ended.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, PostParams};
use mooring_tests::cluster::{Signal, client};
use mooring_tests::installed::DEFINITION;
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options, product};
use serde_json::{Value, json};

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of this kind")
}

fn process_is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn two_run_side_by_side_and_leave_nothing() -> Result<()> {
    let start = || Cluster::local(Level::ControlPlane, Options::default());
    let (one, two) = tokio::try_join!(start(), start())?;

    let namespaces: Api<Namespace> = Api::all(one.client().await?);
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "only-here"}}))).await?;
    let others: Api<Namespace> = Api::all(two.client().await?);
    assert!(others.get_opt("only-here").await?.is_none(), "the clusters must not share their state");
    let version = one.kubectl(["version", "-o", "json"]).await?;
    let version: Value = serde_json::from_str(&version)?;
    assert_eq!(version["serverVersion"]["gitVersion"], "v1.36.3");

    let mut left: Vec<((u32, Vec<u32>), PathBuf)> = Vec::new();
    for cluster in [&one, &two] {
        let local = cluster.own("this test")?;
        left.push((local.pids(), local.data().to_owned()));
    }
    one.stop().await?;
    others.list(&ListParams::default()).await.context("the second must outlive the first")?;
    two.stop().await?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    for ((guard, inside), data) in left {
        assert!(process_is_gone(guard) && inside.into_iter().all(process_is_gone), "a process is left");
        assert!(!data.exists(), "{} is left", data.display());
        assert!(!mounts.contains(&*data.to_string_lossy()), "a mount is left");
    }
    Ok(())
}

#[tokio::test]
async fn admission_authorization_and_audit_are_real() -> Result<()> {
    let cluster = Cluster::local(Level::ControlPlane, Options { audit: true, ..Options::default() }).await?;
    let namespaces: Api<Namespace> = Api::all(cluster.client().await?);
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    namespaces
        .create(&PostParams::default(), &object(json!({"metadata": {"name": "strict", "labels": labels}})))
        .await?;
    let strict = cluster.kubectl(["-n", "strict", "run", "loose", "--image=localhost/none:1"]).await;
    let refusal = format!("{:#}", strict.expect_err("restricted must refuse a pod without a security context"));
    assert!(refusal.contains("violates PodSecurity"), "{refusal}");

    let kubeconfig = cluster.own("this test")?.kubeconfig_for("nobody-in-particular", &[])?;
    let maps: Api<ConfigMap> = Api::namespaced(client(&kubeconfig).await?, "default");
    let map = object(json!({"metadata": {"name": "mine"}}));
    match maps.create(&PostParams::default(), &map).await {
        Err(kube::Error::Api(status)) => assert!(status.is_forbidden(), "{status:?}"),
        other => panic!("a user without rights got {other:?}"),
    }
    let events = cluster.audit()?;
    let tried: Vec<_> = events.iter().filter(|e| e.user.username == "nobody-in-particular" && e.is_write()).collect();
    assert_eq!(tried.len(), 1, "{tried:?}");
    assert_eq!((tried[0].verb.as_str(), tried[0].resource(), tried[0].code()), ("create", "configmaps", 403));
    cluster.stop().await
}

#[tokio::test]
async fn the_api_server_goes_away_and_comes_back() -> Result<()> {
    let cluster = Cluster::local(Level::ControlPlane, Options::default()).await?;
    let local = cluster.own("this test")?;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await?, "default");
    maps.create(&PostParams::default(), &object(json!({"metadata": {"name": "kept"}}))).await?;

    local.signal("kube-apiserver", Signal::Kill).await?;
    let refused = tokio::time::timeout(Duration::from_secs(10), maps.get("kept")).await;
    assert!(!matches!(refused, Ok(Ok(_))), "nobody is there to answer");
    local.restart_api_server().await?;
    maps.get("kept").await?;

    local.signal("kube-apiserver", Signal::Pause).await?;
    let held = tokio::time::timeout(Duration::from_millis(300), maps.get("kept")).await;
    assert!(held.is_err(), "a paused server does not answer");
    local.signal("kube-apiserver", Signal::Resume).await?;
    maps.get("kept").await?;
    cluster.stop().await
}

/// The owner is a second process of this very test, which is told so by its environment, and is killed without a chance to clean up.
#[tokio::test]
async fn a_killed_owner_takes_its_cluster_along() -> Result<()> {
    const OWNER: &str = "MOORING_TEST_OWNER";
    if std::env::var_os(OWNER).is_some() {
        let cluster = Cluster::local(Level::ControlPlane, Options::default()).await?;
        let local = cluster.own("this test")?;
        let (guard, inside) = local.pids();
        eprintln!("owned {guard} {} {}", inside[0], local.data().display());
        return std::future::pending().await;
    }
    let mut owner = Command::new(std::env::current_exe()?)
        .args(["--exact", "a_killed_owner_takes_its_cluster_along", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let stderr = BufReader::new(owner.stderr.take().context("piped")?);
    let line = stderr.lines().map_while(Result::ok).find(|line| line.starts_with("owned "));
    owner.kill()?;
    owner.wait()?;
    let line = line.context("the owner did not come so far")?;
    let words: Vec<&str> = line.split(' ').collect();
    let pids: Vec<u32> = words[1..3].iter().map(|pid| pid.parse()).collect::<Result<_, _>>()?;
    until("the cluster to end", Duration::from_secs(20), || async {
        ensure!(pids.iter().all(|pid| process_is_gone(*pid)), "processes are left");
        ensure!(!Path::new(words[3]).exists(), "{} is left", words[3]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_a_killed_guard_leaves_is_cleared_by_the_next_start() -> Result<()> {
    let start = || Cluster::local(Level::ControlPlane, Options::default());
    let first = start().await?;
    let local = first.own("this test")?;
    let ((guard, inside), data) = (local.pids(), local.data().to_owned());
    ensure!(Command::new("kill").args(["-9", &guard.to_string()]).status()?.success());
    until("pid 1 to follow the guard", Duration::from_secs(20), || async {
        ensure!(inside.iter().all(|pid| process_is_gone(*pid)), "pid 1 is left");
        Ok(())
    })
    .await?;
    assert!(first.stop().await.is_err(), "the handle must tell that its guard was killed");
    let next = start().await?;
    assert!(!data.exists(), "{} is left", data.display());
    next.stop().await
}

/// The names of everything that is not in a namespace, sorted: component statuses come in the order in which they answered.
async fn top_level(cluster: &Cluster) -> Result<String> {
    let kinds = cluster.kubectl(["api-resources", "--namespaced=false", "--verbs=list", "-o", "name"]).await?;
    let kinds: Vec<&str> = kinds.lines().collect();
    let names = cluster.kubectl(["get", &kinds.join(","), "-o", "name"]).await?;
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    Ok(names.join("\n"))
}

#[tokio::test]
async fn a_cluster_of_somebody_else_is_used_and_left_as_it_was() -> Result<()> {
    let theirs = Cluster::local(Level::ControlPlane, Options::default()).await?;
    let before = top_level(&theirs).await?;
    let used = Cluster::external(theirs.kubeconfig(), Some("registry.example.com/team/".to_owned())).await?;
    assert_eq!(used.with_images("image: localhost/mooring:dev"), "image: registry.example.com/team/mooring:dev");

    // What is made there is taken away, and nothing else.
    used.namespace("ours", &[]).await?;
    used.namespace("ours", &[]).await.context("a second time")?;
    let refusal = used.namespace("default", &[]).await.expect_err("it is not ours");
    assert!(refusal.to_string().contains("somebody else's"), "{refusal}");
    let chart = product::workspace().join("charts/mooring").display().to_string();
    used.helm(["install", "mooring", &chart, "--namespace", "ours"]).await?;
    let refusal = Cluster::external(theirs.kubeconfig(), None).await.err().context("it has Mooring")?;
    assert!(refusal.to_string().contains("has Mooring already"), "{refusal}");
    used.mark(&["customresourcedefinition", DEFINITION]).await?;
    Cluster::external(theirs.kubeconfig(), None).await.context("what we have marked is no obstacle")?;
    assert_ne!(top_level(&theirs).await?, before);
    used.clear().await?;
    assert_eq!(top_level(&theirs).await?, before);

    let refusal = used.import_image(Path::new("image.tar")).await.expect_err("no way into somebody else's node");
    assert!(refusal.to_string().contains("MOORING_TEST_KUBECONFIG"), "{refusal}");
    used.stop().await?;
    theirs.client().await?.apiserver_version().await?;
    theirs.stop().await
}
