//! A namespace that enforces *restricted*, and what a scenario does in it: apply McpServers, wait for them, find the ways
//! in, look at pods and conditions.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::ListParams;
use mooring_contract::{DoorStatus, mount, port};
use mooring_plan::names;
use mooring_tests::cluster::Signal;
use mooring_tests::mcp::Target;
use mooring_tests::sessions::Ways;
use mooring_tests::wait::until;
use mooring_tests::{command, installed, metrics};
use serde_json::{Value, json};

use crate::world::{PODS, World, text};

/// A namespace.
#[derive(Clone)]
pub(crate) struct Room {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
}

/// A pod, as far as a scenario compares it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) restarts: i32,
}

impl Room {
    /// Makes the namespace.
    pub(crate) async fn make(world: &Arc<World>, name: &str) -> Result<Self> {
        installed::restricted_namespace(&world.cluster, name).await?;
        Ok(Self::of(world, name))
    }

    /// A namespace that is there.
    pub(crate) fn of(world: &Arc<World>, name: &str) -> Self {
        Self { world: Arc::clone(world), name: name.to_owned() }
    }

    /// Lets the servers and the namespace go, without waiting for them. Nobody waits for what the pods still do, so they go
    /// before what makes them anew would give them their whole grace period. Any of it may be gone.
    pub(crate) async fn leave(&self) {
        for kinds in ["mcpservers", "deployments,replicasets"] {
            let _ = self.kubectl(["delete", kinds, "--all", "--cascade=orphan"]).await;
        }
        let _ = self.kubectl(["delete", "pods", "--all", "--grace-period=1", "--wait=false"]).await;
        let _ = self.world.cluster.kubectl(["delete", "namespace", &self.name, "--wait=false"]).await;
    }

    /// What a person would look at first.
    pub(crate) async fn describe(&self) -> String {
        let shown: [&[&str]; 4] = [
            &["get", "mcpservers,deployments,pods,ingresses", "-o", "wide"],
            &[
                "get",
                "mcpservers",
                "-o",
                "jsonpath={range .items[*]}{.metadata.name}{range .status.conditions[*]}{\"\\n  \"}{.type}={.status} {.reason}: {.message}{end}{\"\\n\"}{end}",
            ],
            &[
                "get",
                "events",
                "--sort-by=.lastTimestamp",
                "-o",
                "custom-columns=OBJECT:.involvedObject.name,REASON:.reason,MESSAGE:.message",
            ],
            &["logs", "-l", "app.kubernetes.io/name=mooring-server", "-c", names::FRONT_DOOR, "--tail=8", "--prefix"],
        ];
        let mut text = format!("namespace {}:\n", self.name);
        for arguments in shown {
            match self.kubectl(arguments).await {
                Ok(said) => text += &command::tail(&said, 40),
                Err(error) => write!(text, "{error:#}").unwrap_or_default(),
            }
            text += "\n\n";
        }
        text
    }

    /// kubectl in this namespace.
    pub(crate) async fn kubectl<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Result<String> {
        let mut all = vec![OsStr::new("--namespace").to_owned(), OsStr::new(&self.name).to_owned()];
        all.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self.world.cluster.kubectl(all).await
    }

    /// Applies an object here, with kubectl.
    pub(crate) async fn apply(&self, mut object: Value) -> Result<()> {
        object["metadata"]["namespace"] = self.name.as_str().into();
        self.world.cluster.apply(&object).await.map(drop)
    }

    /// Applies an McpServer.
    pub(crate) async fn serve(&self, name: &str, spec: &Value) -> Result<()> {
        let api = "mooring.dev/v1alpha1";
        self.apply(json!({"apiVersion": api, "kind": "McpServer", "metadata": {"name": name}, "spec": spec})).await
    }

    /// Changes an McpServer's spec by a merge patch.
    pub(crate) async fn change(&self, name: &str, spec: &Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        self.kubectl(["patch", "mcpserver", name, "--type=merge", "--patch", &patch]).await.map(drop)
    }

    /// Runs the released `mooring` as a person would, in this namespace.
    pub(crate) async fn mooring(&self, arguments: &[&str]) -> Result<String> {
        let mut mooring = tokio::process::Command::new(&self.world.products.operator.binary);
        mooring.env("KUBECONFIG", self.world.cluster.kubeconfig()).args(arguments).args(["--namespace", &self.name]);
        command::run_async(mooring).await
    }

    /// Mints a key by hand and returns its text.
    pub(crate) async fn mint(&self, server: &str, key: &str) -> Result<String> {
        let said = self.mooring(&["keys", "create", server, "--name", key]).await?;
        let found = said.split(|c: char| c.is_whitespace() || c == '"').find(|word| word.starts_with("mk_"));
        Ok(found.with_context(|| format!("no key in: {said}"))?.to_owned())
    }

    /// One of our images as the cluster knows it.
    pub(crate) fn image(&self, name: &str) -> String {
        self.world.cluster.with_images(name)
    }

    /// A public name of a server in this room.
    pub(crate) fn host(&self, server: &str) -> String {
        format!("{server}.{}.example.test", self.name)
    }

    /// Waits until a server is Ready and returns its URL.
    pub(crate) async fn ready(&self, server: &str) -> Result<String> {
        installed::ready(&self.world.cluster, &self.name, server, PODS).await
    }

    /// Waits until every pod of a server is ready, and none is of a template before.
    pub(crate) async fn rolled_out(&self, server: &str) -> Result<()> {
        let limit = format!("--timeout={}s", PODS.as_secs());
        self.kubectl(["rollout", "status", &format!("deployment/{server}"), &limit]).await.map(drop)
    }

    /// The text of a declared key.
    pub(crate) async fn key(&self, server: &str, key: &str) -> Result<String> {
        installed::key(&self.world.cluster, &self.name, server, key).await
    }

    /// The way in through the ingress controller, at the URL that the status shows, once it is Ready and Traefik knows it.
    pub(crate) async fn entrance(&self, server: &str, key: &str) -> Result<Target> {
        let url = self.ready(server).await?;
        let target = Target::of_url(&url, self.world.ingress, Some(self.key(server, key).await?))?;
        until("the ingress controller to route to the server", Duration::from_secs(30), || serves(&target)).await?;
        Ok(target)
    }

    /// The same through every replica of the ingress controller that there is.
    pub(crate) async fn entrances(&self, server: &str, key: &str) -> Result<Ways> {
        let target = self.entrance(server, key).await?;
        let addresses = self.world.ingresses().await?;
        for address in &addresses {
            let target = Target { address: *address, ..target.clone() };
            until("every ingress controller to route to the server", Duration::from_secs(30), || serves(&target))
                .await?;
        }
        Ok(Ways::new(&target, &addresses))
    }

    /// The way in through the Service, under one of the Service's own names, once the node routes there.
    pub(crate) async fn service(&self, server: &str, path: &str, key: &str) -> Result<Target> {
        let address = self.world.cluster.forward(&format!("{}/{server}:80", self.name)).await?;
        let key = Some(self.key(server, key).await?);
        let target = Target {
            address,
            host: format!("{server}.{}", self.name),
            path: path.to_owned(),
            key,
            headers: Vec::new(),
        };
        until("the node to route to the Service", Duration::from_secs(30), || serves(&target)).await?;
        Ok(target)
    }

    /// Each pod's own public port, around the Service.
    pub(crate) async fn at_each_pod(&self, like: &Target, server: &str) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        for pod in self.pods(server).await? {
            let address = self.pod_port(&pod, port::PUBLIC).await?;
            targets.push(Target { address, ..like.clone() });
        }
        Ok(targets)
    }

    /// A port of a pod, as the node sees it: no policy holds for the node.
    pub(crate) async fn pod_port(&self, pod: &Pod, number: u16) -> Result<SocketAddr> {
        self.world.cluster.forward_to_pod(pod, number).await
    }

    /// What the front door of a pod says of itself at `/status`.
    pub(crate) async fn door_status(&self, server: &str, pod: &Pod) -> Result<DoorStatus> {
        let secrets: Api<Secret> = Api::namespaced(self.world.cluster.client().await?, &self.name);
        let secret = secrets.get(&names::session(server)).await?.data.unwrap_or_default();
        let token = secret.get(mount::STATUS_TOKEN_FILE).context("the server has no status token")?;
        let said = self.management(pod, "/status", Some(std::str::from_utf8(&token.0)?.trim())).await?;
        serde_json::from_str(&said).with_context(|| said.clone())
    }

    /// The first process of a container, as the node knows it: containerd's name for it.
    pub(crate) fn container(pod: &Pod, container: &str) -> Result<String> {
        let status = pod.status.as_ref().context("the pod has no status")?;
        let mut statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
        let found = statuses.find(|status| status.name == container).and_then(|status| status.container_id.as_deref());
        let id = found.and_then(|id| id.strip_prefix("containerd://"));
        Ok(id.with_context(|| format!("no container {container}"))?.to_owned())
    }

    /// The node of a pod.
    pub(crate) fn node(pod: &Pod) -> Result<&str> {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).context("the pod is on no node")
    }

    /// Signals the first process of a container, from the node and without a word to Kubernetes.
    pub(crate) async fn signal(&self, pod: &Pod, container: &str, signal: Signal) -> Result<()> {
        let local = self.world.cluster.own("signalling a process of a pod")?;
        let signal = match signal {
            Signal::Kill => "SIGKILL",
            Signal::Terminate => "SIGTERM",
            Signal::Pause => "SIGSTOP",
            Signal::Resume => "SIGCONT",
        };
        let kill = ["ctr", "-n", "k8s.io", "tasks", "kill", "--signal", signal, &Self::container(pod, container)?];
        local.exec_on(Self::node(pod)?, &kill).await.map(drop)
    }

    /// Waits until a container runs anew after the one that this pod shows, and the pod is ready.
    pub(crate) async fn runs_anew(&self, pod: &Pod, container: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.world.cluster.client().await?, &self.name);
        let (before, name) = (Self::container(pod, container)?, pod.metadata.name.clone().unwrap_or_default());
        until(&format!("{container} of {name} to run anew"), PODS, || async {
            let now = pods.get(&name).await?;
            ensure!(Self::container(&now, container)? != before, "it is as it was");
            let conditions = now.status.and_then(|status| status.conditions).unwrap_or_default();
            let ready = conditions.iter().find(|condition| condition.type_ == "Ready").context("no condition")?;
            ensure!(ready.status == "True", "{}", ready.message.as_deref().unwrap_or_default());
            Ok(())
        })
        .await
    }

    /// The sum of a metric of a pod's front door over all its labels; an error where there is no such metric.
    pub(crate) async fn metric(&self, pod: &Pod, name: &str) -> Result<f64> {
        metrics::sum(&self.management(pod, "/metrics", None).await?, name, "")
    }

    async fn management(&self, pod: &Pod, path: &str, token: Option<&str>) -> Result<String> {
        let (address, key) = (self.pod_port(pod, port::MANAGEMENT).await?, token.map(str::to_owned));
        let target = Target { address, host: "localhost".into(), path: path.into(), key, headers: Vec::new() };
        let answer = target.send("GET", "").await?;
        ensure!(answer.status == StatusCode::OK, "{path}: {} {}", answer.status, answer.text());
        Ok(answer.text())
    }

    /// The pods of a server that are not about to end.
    pub(crate) async fn pods(&self, server: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.world.cluster.client().await?, &self.name);
        let list = pods.list(&ListParams::default().labels(&names::selector(server))).await?;
        Ok(list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
    }

    /// The same, as far as they are compared.
    pub(crate) async fn identities(&self, server: &str) -> Result<Vec<Identity>> {
        let mut found: Vec<_> = self.pods(server).await?.into_iter().map(identity).collect();
        found.sort();
        Ok(found)
    }

    /// An McpServer as it is stored.
    pub(crate) async fn server(&self, name: &str) -> Result<Value> {
        let servers = installed::servers(&self.world.cluster, &self.name).await?;
        Ok(servers.get(name).await?.data)
    }

    /// The same once its front door has shaken hands with the server, which may be after it is Ready.
    pub(crate) async fn verified(&self, name: &str) -> Result<Value> {
        self.told(name, "Verified", ("True", "HandshakeSucceeded"), &[]).await?;
        self.server(name).await
    }

    /// A condition of a server.
    pub(crate) async fn condition(&self, server: &str, kind: &str) -> Result<Condition> {
        let server = self.server(server).await?;
        let conditions = server.pointer("/status/conditions").and_then(Value::as_array).context("no conditions yet")?;
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        let found = found.with_context(|| format!("no condition {kind} yet"))?;
        let field = |name: &str| text(found, name).map(str::to_owned);
        Ok(Condition { status: field("/status")?, reason: field("/reason")?, message: field("/message")? })
    }

    /// Waits until a condition has this status and reason, and its message all of these words.
    pub(crate) async fn told(&self, server: &str, kind: &str, expected: (&str, &str), words: &[&str]) -> Result<()> {
        until(&format!("{kind} of {server} to be {expected:?} with {words:?}"), PODS, || async {
            let found = self.condition(server, kind).await?;
            ensure!((found.status.as_str(), found.reason.as_str()) == expected, "it is {found:?}");
            let message = found.message.to_lowercase();
            ensure!(words.iter().all(|word| message.contains(&word.to_lowercase())), "it says: {}", found.message);
            Ok(())
        })
        .await
    }
}

/// Whether a pod serves.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a ready front door is behind a target; no key is asked for it.
async fn serves(target: &Target) -> Result<()> {
    let health = Target { path: target.path.replace("/mcp", "/health/ready"), key: None, ..target.clone() };
    let answer = health.send("GET", "").await?;
    ensure!(answer.status == StatusCode::OK, "{}: {}", answer.status, answer.text());
    Ok(())
}

/// A condition's words.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

fn identity(pod: Pod) -> Identity {
    let status = pod.status.unwrap_or_default();
    let containers = status.container_statuses.into_iter().chain(status.init_container_statuses).flatten();
    Identity {
        name: pod.metadata.name.unwrap_or_default(),
        uid: pod.metadata.uid.unwrap_or_default(),
        restarts: containers.map(|container| container.restart_count).sum(),
    }
}
