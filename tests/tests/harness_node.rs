//! The whole cluster that the suites stand on, with no part of Mooring in it: pods run, Traefik routes, NetworkPolicy holds, what pods use is
//! measured, a server that nobody here wrote answers every client, and the machine is afterwards as it was.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mooring_tests::clients::{Client, Session};
use mooring_tests::parts::servers;
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options};
use serde_json::json;

const SYSCTLS: [&str; 3] = ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"];

fn sysctls() -> Vec<String> {
    SYSCTLS.iter().map(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).expect("a sysctl")).collect()
}

#[tokio::test]
async fn a_whole_cluster_serves_and_leaves_nothing() -> Result<()> {
    let archive = tokio::task::spawn_blocking(servers::everything).await??;
    let before = sysctls();
    let cluster = Cluster::local(Level::Node, Options { images: vec![archive], ..Options::default() }).await?;
    let local = cluster.own("this test")?;
    let (guard, pid1) = local.pids();
    let data = local.data().to_owned();

    cluster.apply(&servers::plain("everything", servers::EVERYTHING, 3001)).await?;
    cluster.kubectl(["rollout", "status", "deployment/everything", "--timeout=120s"]).await?;
    every_client_is_answered(&cluster).await?;
    a_policy_holds(&cluster).await?;
    use_is_measured(&cluster).await?;

    cluster.stop().await?;
    assert!(!std::path::Path::new(&format!("/proc/{guard}")).exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid1}")).exists());
    assert!(!data.exists());
    let name = data.file_name().context("a name")?.to_string_lossy().into_owned();
    let trees = std::fs::read_dir("/sys/fs/cgroup")?.chain(std::fs::read_dir("/sys/fs")?).flatten();
    for tree in trees {
        assert!(!tree.path().join(format!("mooring-{name}")).exists(), "a cgroup is left in {}", tree.path().display());
    }
    assert_eq!(sysctls(), before, "the machine's sysctls are as they were");
    Ok(())
}

async fn every_client_is_answered(cluster: &Cluster) -> Result<()> {
    let traefik = cluster.forward("traefik").await?;
    let url = format!("http://everything.example.com:{}/mcp", traefik.port());
    let session = Session::new(url).resolve_to(traefik.ip()).call("echo", json!({"message": "hello"}));
    for client in Client::IN_CLUSTERS {
        // The Ingress is there before Traefik has read it.
        let report = until("an answer", Duration::from_secs(30), || client.run(&session)).await?;
        assert_eq!(
            (report.server.as_str(), &report.text[..]),
            ("mcp-servers/everything", &["Echo: hello".to_owned()][..])
        );
        assert!(report.tools.contains(&"get-sum".to_owned()), "{:?}", report.tools);
    }
    // A Service is reached too, through either handle.
    let used = Cluster::external(cluster.kubeconfig(), None).await?;
    for handle in [cluster, &used] {
        let address = handle.forward("default/everything:80").await?;
        let report = Client::TypeScript.run(&Session::new(format!("http://{address}/mcp"))).await?;
        assert_eq!(report.server, "mcp-servers/everything");
    }
    Ok(())
}

/// The node reaches a pod whatever a policy says, as the kubelet must, so the question is asked from another pod.
async fn a_policy_holds(cluster: &Cluster) -> Result<()> {
    let path = "jsonpath={.items[0].status.podIP}";
    let address = cluster.kubectl(["get", "pod", "-l", "app=everything", "-o", path]).await?;
    let ask =
        format!("fetch('http://{address}:3001/mcp').then(r => console.log(r.status), e => console.log(e.cause.code))");
    let idle = json!(["/usr/bin/node", "-e", "setInterval(() => {}, 1e6)"]);
    let container = json!({"name": "idle", "image": servers::EVERYTHING, "command": idle});
    let other = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": {"containers": [container]},
    });
    cluster.apply(&other).await?;
    cluster.kubectl(["wait", "--for=condition=Ready", "pod/other", "--timeout=60s"]).await?;
    let exec = || cluster.kubectl(["exec", "other", "--", "/usr/bin/node", "-e", &ask]);
    assert_eq!(exec().await?.trim(), "400", "without a policy every pod reaches every other");

    let spec = json!({"podSelector": {"matchLabels": {"app": "everything"}}, "policyTypes": ["Ingress"]});
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"}, "spec": spec,
    });
    cluster.apply(&policy).await?;
    until("the policy to hold", Duration::from_secs(30), || async {
        let said = exec().await?;
        ensure!(said.trim() == "ECONNREFUSED", "the other pod got {said}");
        Ok(())
    })
    .await
}

async fn use_is_measured(cluster: &Cluster) -> Result<()> {
    until("a figure of the server", Duration::from_secs(60), || async {
        let top = cluster.kubectl(["top", "pods", "-l", "app=everything", "--no-headers"]).await?;
        let columns: Vec<_> = top.split_whitespace().collect();
        let [_, cpu, memory] = columns[..] else { anyhow::bail!("it says {top}") };
        ensure!(cpu.ends_with('m') && memory.ends_with("Mi"), "it says {top}");
        Ok(())
    })
    .await
}
