//! A whole cluster, servers that nobody here wrote as plain Deployments behind Traefik, and every client against each:
//! `cargo run -p mooring-tests --example third_party`. No part of Mooring is in it, so what fails here is the harness.

use anyhow::Result;
use mooring_tests::clients::{Client, Session};
use mooring_tests::parts::servers::{self, EVERYTHING, FASTMCP};
use mooring_tests::{Cluster, Level, Options};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<()> {
    let images =
        tokio::task::spawn_blocking(|| Ok::<_, anyhow::Error>(vec![servers::everything()?, servers::fastmcp()?]));
    let cluster = Cluster::local(Level::Node, Options { images: images.await??, ..Options::default() }).await?;
    if let Cluster::Local(local) = &cluster {
        println!("ready after {:.1} s", local.ready_after().as_secs_f32());
    }
    let outcome = run(&cluster).await;
    let start = std::time::Instant::now();
    cluster.stop().await?;
    println!("stopped in {:.1} s", start.elapsed().as_secs_f32());
    outcome
}

async fn run(cluster: &Cluster) -> Result<()> {
    let traefik = cluster.forward("traefik").await?;
    for (name, image, port, tool, arguments) in [
        ("everything", EVERYTHING, 3001, "echo", json!({"message": "hello"})),
        ("calculator", FASTMCP, 8000, "add", json!({"a": 2, "b": 3})),
    ] {
        let file = std::env::temp_dir().join(format!("mooring-{name}-{}.json", std::process::id()));
        std::fs::write(&file, serde_json::to_vec(&manifest(name, image, port))?)?;
        cluster.kubectl(["apply", "-f", &file.to_string_lossy()]).await?;
        std::fs::remove_file(file)?;
        cluster.kubectl(["rollout", "status", &format!("deployment/{name}"), "--timeout=60s"]).await?;
        let url = format!("http://{name}.example.com:{}/mcp", traefik.port());
        for client in Client::ALL {
            for session in [Session::new(&url), Session::new(&url).legacy()] {
                let session = session.resolve_to(traefik.ip()).call(tool, arguments.clone());
                let report = client.run(&session).await?;
                println!("{name}: {report:?}");
            }
        }
    }
    Ok(())
}

fn manifest(name: &str, image: &str, port: u16) -> serde_json::Value {
    let labels = json!({"app": name});
    let container = json!({
        "name": "server", "image": image, "ports": [{"containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
        "securityContext": {
            "runAsUser": 65532, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    let path =
        json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": name, "port": {"number": 80}}}});
    let host = format!("{name}.example.com");
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        }},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {
            "selector": labels, "ports": [{"port": 80, "targetPort": port}],
        }},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name}, "spec": {
            "ingressClassName": "traefik", "rules": [{"host": host, "http": {"paths": [path]}}],
        }},
    ]})
}
