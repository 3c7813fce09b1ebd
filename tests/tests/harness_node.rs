//! The whole cluster that the suites stand on, with no part of Mooring in it: pods run, Traefik routes, NetworkPolicy holds, what pods use is
//! measured, a server that nobody here wrote answers every client, and the machine is afterwards as it was.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use mooring_tests::clients::{Client, Session};
use mooring_tests::parts::servers;
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options};
use serde_json::{Value, json};
use tokio::sync::Mutex;

const SYSCTLS: [&str; 3] = ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"];
/// The sysctls are the machine's: while another cluster runs they are not as they were.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn sysctls() -> Vec<String> {
    SYSCTLS.iter().map(|name| std::fs::read_to_string(format!("/proc/sys/{name}")).expect("a sysctl")).collect()
}

/// Where the cgroup of a cluster's pods is or would be, in every tree of this machine.
fn cgroups(data: &Path) -> Result<Vec<PathBuf>> {
    let name = format!("mooring-{}", data.file_name().context("a name")?.to_string_lossy());
    let trees = std::fs::read_dir("/sys/fs/cgroup")?.chain(std::fs::read_dir("/sys/fs")?);
    Ok(trees.flatten().map(|tree| tree.path().join(&name)).collect())
}

/// However many processes run beside them, pods have a part of the machine.
fn pods_are_weighed(cluster: &Cluster) -> Result<()> {
    let files = cgroups(cluster.own("this test")?.data())?;
    let files = files.iter().flat_map(|cgroup| ["cpu.shares", "cpu.weight"].map(|file| cgroup.join(file)));
    let weights: Vec<String> = files.filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let weight = weights.first().context("no tree weighs CPU")?.trim();
    assert!(["10240", "1000"].contains(&weight), "pods weigh {weight}, which is not ten times the default");
    Ok(())
}

/// Ends a cluster, after which the machine must be as it was.
async fn stop(cluster: Cluster, before: Vec<String>) -> Result<()> {
    let local = cluster.own("this test")?;
    let ((guard, inside), data) = (local.pids(), local.data().to_owned());
    cluster.stop().await?;
    for pid in inside.into_iter().chain([guard]) {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "a process is left");
    }
    assert!(!data.exists());
    for cgroup in cgroups(&data)? {
        assert!(!cgroup.exists(), "{} is left", cgroup.display());
    }
    assert_eq!(sysctls(), before, "the machine's sysctls are as they were");
    Ok(())
}

#[tokio::test]
async fn a_whole_cluster_serves_and_leaves_nothing() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let archive = tokio::task::spawn_blocking(servers::everything).await??;
    let before = sysctls();
    let cluster = Cluster::local(Level::Node, Options { images: vec![archive], ..Options::default() }).await?;
    pods_are_weighed(&cluster)?;
    cluster.apply(&servers::plain("everything", servers::EVERYTHING, 3001)).await?;
    cluster.kubectl(["rollout", "status", "deployment/everything", "--timeout=120s"]).await?;
    every_client_is_answered(&cluster).await?;
    a_policy_holds(&cluster).await?;
    use_is_measured(&cluster).await?;
    stop(cluster, before).await
}

/// A pod of this name on this node that serves at port 3001, and a Service of the same name.
fn on(node: &str, name: &str) -> [Value; 2] {
    let container = json!({"name": "everything", "image": servers::EVERYTHING, "args": ["streamableHttp"]});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container]},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 3001}]},
    });
    [pod, service]
}

#[tokio::test]
async fn two_nodes_are_one_cluster() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let archive = tokio::task::spawn_blocking(servers::everything).await??;
    let before = sysctls();
    let options = Options { nodes: 2, images: vec![archive], ..Options::default() };
    let cluster = Cluster::local(Level::Node, options).await?;
    eprintln!("two nodes are ready after {:?}", cluster.own("this test")?.ready_after());
    let pods = [on("node-1", "one"), on("node-2", "two"), on("node-1", "other")].concat();
    cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": pods})).await?;
    cluster.kubectl(["wait", "--for=condition=Ready", "pods", "--all", "--timeout=120s"]).await?;

    // Either asks the other: at its address, and by the name of its Service, for which the second node asks the first.
    let address = |pod: &'static str| cluster.kubectl(["get", "pod", pod, "-o", "jsonpath={.status.podIP}"]);
    let (one, two) = (address("one").await?, address("two").await?);
    assert!(one.starts_with("10.244.0.") && two.starts_with("10.244.1."), "{one} {two}");
    let ask = async |from: &str, to: &str| {
        let script =
            format!("fetch('http://{to}/mcp').then(r => console.log(r.status), e => console.log(e.cause.code))");
        let said = cluster.kubectl(["exec", from, "--", "/usr/bin/node", "-e", &script]).await?;
        anyhow::Ok(said.trim().to_owned())
    };
    let (at_one, at_two) = (format!("{one}:3001"), format!("{two}:3001"));
    for (from, to, at) in [("one", "two", &at_two), ("two", "one", &at_one)] {
        for target in [at, to] {
            until("an answer across nodes", Duration::from_secs(30), || async {
                let said = ask(from, target).await?;
                ensure!(said == "400", "{from} got {said} from {target}");
                Ok(())
            })
            .await?;
        }
        let log = cluster.kubectl(["logs", to]).await?;
        assert!(log.contains("3001"), "the log of {to}: {log}");
    }

    // A policy knows who asks, on whatever node.
    let from = json!([{"from": [{"podSelector": {"matchLabels": {"app": "one"}}}]}]);
    let spec = json!({"podSelector": {"matchLabels": {"app": "two"}}, "policyTypes": ["Ingress"], "ingress": from});
    let kind = "NetworkPolicy";
    let metadata = json!({"name": "two"});
    assert_eq!(ask("other", "two").await?, "400", "without a policy every pod reaches every other");
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec});
    cluster.apply(&policy).await?;
    until("the policy to hold", Duration::from_secs(30), || async {
        let said = ask("other", "two").await?;
        ensure!(said == "ECONNREFUSED", "the other pod got {said}");
        Ok(())
    })
    .await?;
    assert_eq!(ask("one", "two").await?, "400", "whom the policy names");
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    let way = cluster.forward_to_pod(&pods.get("two").await?, 3001).await?;
    Client::TypeScript.run(&Session::new(format!("http://{way}/mcp"))).await.context("around the policy")?;

    // What is drained goes, and comes no more.
    cluster.kubectl(["drain", "node-2", "--force", "--ignore-daemonsets", "--delete-emptydir-data"]).await?;
    assert!(pods.get_opt("two").await?.is_none());
    stop(cluster, before).await
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
