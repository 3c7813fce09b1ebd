//! The whole cluster that the suites stand on, with no part of Mooring in it: pods run, Traefik routes, NetworkPolicy holds, a server that
//! nobody here wrote answers every client, and the machine is afterwards as it was.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mooring_tests::clients::{Client, Session};
use mooring_tests::parts::servers;
use mooring_tests::wait::until;
use mooring_tests::{Cluster, Level, Options};
use serde_json::{Value, json};

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

    apply(&cluster, &server("everything", servers::EVERYTHING, 3001)).await?;
    cluster.kubectl(["rollout", "status", "deployment/everything", "--timeout=120s"]).await?;
    every_client_is_answered(&cluster).await?;
    a_policy_holds(&cluster).await?;

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
    for client in Client::ALL {
        // The Ingress is there before Traefik has read it.
        let report = until("an answer", Duration::from_secs(30), || client.run(&session)).await?;
        assert_eq!(
            (report.server.as_str(), &report.text[..]),
            ("mcp-servers/everything", &["Echo: hello".to_owned()][..])
        );
        assert!(report.tools.contains(&"get-sum".to_owned()), "{:?}", report.tools);
    }
    Ok(())
}

/// The node reaches a pod whatever a policy says, as the kubelet must, so the question is asked from another pod.
async fn a_policy_holds(cluster: &Cluster) -> Result<()> {
    let local = cluster.own("this test")?;
    let address = local_pod_address(cluster, "app=everything").await?;
    let ask =
        format!("fetch('http://{address}:3001/mcp').then(r => console.log(r.status), e => console.log(e.cause.code))");
    let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "labels": {"app": "other"}}, "spec": {
        "enableServiceLinks": false,
        "containers": [{"name": "idle", "image": servers::EVERYTHING, "command": ["/usr/bin/node", "-e", "setInterval(() => {}, 1e6)"]}],
    }});
    apply(cluster, &other).await?;
    cluster.kubectl(["wait", "--for=condition=Ready", "pod/other", "--timeout=60s"]).await?;
    let exec = || cluster.kubectl(["exec", "other", "--", "/usr/bin/node", "-e", &ask]);
    assert_eq!(exec().await?.trim(), "400", "without a policy every pod reaches every other");

    apply(
        cluster,
        &json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "closed"}, "spec": {
            "podSelector": {"matchLabels": {"app": "everything"}}, "policyTypes": ["Ingress"],
        }}),
    )
    .await?;
    until("the policy to hold", Duration::from_secs(30), || async {
        let said = exec().await?;
        ensure!(said.trim() == "ECONNREFUSED", "the other pod got {said}");
        Ok(())
    })
    .await
}

async fn local_pod_address(cluster: &Cluster, selector: &str) -> Result<String> {
    cluster.kubectl(["get", "pod", "-l", selector, "-o", "jsonpath={.items[0].status.podIP}"]).await
}

async fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    let file = cluster.own("this test")?.data().join("apply.json");
    std::fs::write(&file, serde_json::to_vec(object)?)?;
    cluster.kubectl(["apply", "-f", &file.to_string_lossy()]).await?;
    Ok(())
}

fn server(name: &str, image: &str, port: u16) -> Value {
    let labels = json!({"app": name});
    let container = json!({
        "name": "server", "image": image, "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": {
            "runAsUser": 65532, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    let path =
        json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"enableServiceLinks": false, "containers": [container]}},
        }},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
            "selector": labels, "ports": [{"port": 80, "targetPort": port}],
        }},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": {
            "ingressClassName": "traefik", "rules": [{"host": format!("{name}.example.com"), "http": {"paths": [path]}}],
        }},
    ]})
}
