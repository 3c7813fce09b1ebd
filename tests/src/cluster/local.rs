//! Brings up a cluster of the harness's own: lays the data directory, starts the components in order, waits until each part serves.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Service, ServiceAccount};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::audit::{self, AuditEvent};
use super::components::{Component, Layout, SERVICE_IP, TRAEFIK};
use super::guard::{Guard, Setup, Signal};
use super::node;
use super::pki::Pki;
use super::{Level, Options, client};
use crate::command::{run_async, tail};
use crate::wait::until;
use crate::{cache, parts, preflight};

/// How long one part may take to serve. A machine that is busy with builds needs several times what an idle one does.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster that this process started. It ends when this handle is dropped.
pub struct Local {
    guard: Arc<Guard>,
    layout: Layout,
    admin: PathBuf,
    pki: Pki,
    audit: bool,
    api_server: SocketAddr,
    ready_after: Duration,
}

/// The programs and archives that a level needs.
struct Parts {
    binary: PathBuf,
    /// What the node itself needs; it is loaded before the kubelet starts.
    images: Vec<PathBuf>,
    kube_router: Option<PathBuf>,
    metrics_server: Option<PathBuf>,
}

impl Parts {
    fn get(level: Level, options: &Options) -> Result<Self> {
        preflight::check(level)?;
        let binary = parts::cluster_binary()?;
        parts::kubectl()?;
        let mut found = Self { binary, images: Vec::new(), kube_router: None, metrics_server: None };
        if level == Level::Node {
            found.images.push(parts::pause()?);
            if options.traefik {
                found.images.push(parts::traefik()?);
            }
            if options.network_policy {
                found.kube_router = Some(parts::kube_router()?);
            }
            if options.metrics {
                found.metrics_server = Some(parts::metrics_server()?);
            }
        }
        Ok(found)
    }
}

impl Local {
    pub(super) async fn start(level: Level, options: Options) -> Result<Self> {
        let wanted = options.clone();
        let parts = tokio::task::spawn_blocking(move || Parts::get(level, &wanted)).await??;
        let start = Instant::now();
        let run = cache::root().join("run");
        let data = run.join(unique());
        let cgroup = if level == Level::Node { format!("mooring-{}", name(&data)) } else { String::new() };
        let layout = Layout { nodes: node::Node::all(&data, options.nodes), data };
        let service = SERVICE_IP.parse()?;
        let pki = Pki::create(&layout.pki(), &layout.api_server_address(), [layout.first().address, service])?;
        for node in &layout.nodes {
            pki.node(&node.folder().join("pki"), &node.name, node.address)?;
        }
        layout.write_configuration(&cgroup, &pki)?;
        let guard = Guard::start(&Setup {
            binary: &parts.binary,
            data: &layout.data,
            state: &run,
            nodes: &layout.nodes,
            cgroup: &cgroup,
            keep: options.keep,
        })?;
        let guard = Arc::new(guard);
        let api_server = guard.forward(&layout.first().name, &layout.api_server_address()).await?;
        pki.kubeconfig(&layout.admin(), &format!("https://{api_server}"), "admin", &["system:masters"])?;
        let mut cluster = Self {
            guard,
            admin: layout.admin(),
            layout,
            pki,
            audit: options.audit,
            api_server,
            ready_after: Duration::ZERO,
        };
        if let Err(error) = cluster.bring_up(level, &options, &parts).await {
            let logs = cluster.logs();
            cluster.stop().await?;
            return Err(error.context(format!("the cluster did not come up; the ends of its logs:\n{logs}")));
        }
        cluster.ready_after = start.elapsed();
        Ok(cluster)
    }

    async fn bring_up(&self, level: Level, options: &Options, parts: &Parts) -> Result<()> {
        self.run(&self.layout.etcd()).await?;
        self.run(&self.layout.api_server(options.audit)).await?;
        if level == Level::ControlPlane {
            self.control_plane(false).await?;
            return self.default_account().await;
        }
        for node in &self.layout.nodes {
            self.run_on(node, &node.containerd()).await?;
        }
        let (served, loaded) = tokio::join!(self.control_plane(options.metrics), self.load(&parts.images));
        served.and(loaded)?;
        let (up, loaded) = tokio::join!(self.nodes(options, parts), self.load(&options.images));
        up.and(loaded)
    }

    async fn nodes(&self, options: &Options, parts: &Parts) -> Result<()> {
        let client = client(self.kubeconfig()).await?;
        let nodes: Api<Node> = Api::all(client.clone());
        self.run(&self.layout.scheduler()).await?;
        for node in &self.layout.nodes {
            // Before its kubelet does it, because that cannot say which addresses its pods have.
            let spec = json!({"podCIDR": node.pods, "podCIDRs": [node.pods]});
            let object = json!({"metadata": {"name": node.name}, "spec": spec});
            nodes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
            self.run_on(node, &node.proxy()).await?;
            self.run_on(node, &node.kubelet()).await?;
        }
        let mut objects = vec!["dns.yaml"];
        self.run(&self.layout.dns()).await?;
        if options.traefik {
            objects.push("traefik.yaml");
        }
        if let Some(metrics_server) = &parts.metrics_server {
            self.run(&self.layout.metrics(metrics_server)).await?;
            objects.push("metrics.yaml");
        }
        self.apply(&objects).await?;
        for node in &self.layout.nodes {
            until(&format!("{} to be Ready", node.name), PATIENCE, || async {
                let status = nodes.get(&node.name).await?.status;
                let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
                let ready = conditions.iter().find(|c| c.type_ == "Ready").context("no condition yet")?;
                ensure!(ready.status == "True", "{}", ready.message.as_deref().unwrap_or("no reason given"));
                Ok(())
            })
            .await?;
            if let Some(kube_router) = &parts.kube_router {
                // It gives up where its node is not there yet.
                self.run_on(node, &node.network_policy(kube_router)).await?;
            }
        }
        self.default_account().await?;
        if options.traefik {
            let deployments: Api<Deployment> = Api::namespaced(client.clone(), "kube-system");
            until("Traefik to be available", PATIENCE, || async {
                let status = deployments.get("traefik").await?.status.context("no status yet")?;
                ensure!(status.available_replicas == Some(1), "no available replica");
                Ok(())
            })
            .await?;
        }
        if let Some(metrics_server) = &parts.metrics_server {
            // A group that nobody serves yet is an error for who asks what there is, and no namespace goes meanwhile.
            let services: Api<APIService> = Api::all(client);
            until("the metrics API to be served", PATIENCE, || async {
                self.alive(self.layout.first(), &self.layout.metrics(metrics_server)).await?;
                let conditions = services.get("v1beta1.metrics.k8s.io").await?.status.unwrap_or_default().conditions;
                let available = conditions.into_iter().flatten().find(|c| c.type_ == "Available");
                let available = available.context("no condition yet")?;
                ensure!(available.status == "True", "{}", available.message.unwrap_or_default());
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Waits for the API server and starts the controller manager, which would give up without it.
    async fn control_plane(&self, metrics: bool) -> Result<()> {
        self.api_server_ready().await?;
        self.run(&self.layout.controller_manager(metrics)).await
    }

    /// Waits until the API server says that it is ready.
    pub async fn api_server_ready(&self) -> Result<()> {
        let client = client(self.kubeconfig()).await?;
        until("the API server", PATIENCE, || async {
            self.alive(self.layout.first(), &self.layout.api_server(self.audit)).await?;
            client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
            Ok(())
        })
        .await
    }

    /// Waits for the account without which no pod is admitted.
    async fn default_account(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(client(self.kubeconfig()).await?, "default");
        until("the default ServiceAccount", PATIENCE, || async { Ok(accounts.get("default").await?) }).await?;
        Ok(())
    }

    /// Loads image archives into every node, side by side.
    async fn load(&self, images: &[PathBuf]) -> Result<()> {
        try_join_all(self.layout.nodes.iter().map(|node| self.load_into(node, images))).await.map(drop)
    }

    async fn load_into(&self, node: &node::Node, images: &[PathBuf]) -> Result<()> {
        until("containerd", PATIENCE, || async {
            self.alive(node, &node.containerd()).await?;
            self.exec_on(&node.name, &["ctr", "version"]).await
        })
        .await?;
        for image in images {
            let mut import = self.guard.command(&node.name, "ctr")?;
            import.args(["-n", "k8s.io", "images", "import"]).arg(std::fs::canonicalize(image)?);
            run_async(import).await.with_context(|| format!("cannot load {}", image.display()))?;
        }
        Ok(())
    }

    async fn apply(&self, configurations: &[&str]) -> Result<()> {
        let mut kubectl = super::kubectl(self.kubeconfig()).await?;
        kubectl.args(["apply", "--server-side"]);
        for configuration in configurations {
            kubectl.arg("-f").arg(self.layout.conf(configuration));
        }
        run_async(kubectl).await?;
        Ok(())
    }

    /// Starts a component of the control plane.
    async fn run(&self, component: &Component) -> Result<()> {
        self.run_on(self.layout.first(), component).await
    }

    async fn run_on(&self, node: &node::Node, component: &Component) -> Result<()> {
        self.guard.start_process(&node.name, component.name, &component.argv, &component.log).await
    }

    async fn alive(&self, node: &node::Node, component: &Component) -> Result<()> {
        let name = component.name;
        ensure!(self.guard.runs(&node.name, name).await?, "{name} has ended: {}", end_of(&component.log));
        Ok(())
    }

    /// The ends of all logs, for a person who wants to know why.
    pub fn logs(&self) -> String {
        let entries = std::fs::read_dir(self.layout.data.join("log")).into_iter().flatten().flatten();
        let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.sort();
        let ends = logs.iter().map(|path| format!("--- {}\n{}", name(path), end_of(path)));
        ends.collect::<Vec<_>>().join("\n")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// Writes a kubeconfig for another user, with the rights that RBAC gives to the name and the groups, and returns its path.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let file: String = user.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let path = self.layout.data.join(format!("user-{file}.kubeconfig"));
        self.pki.kubeconfig(&path, &format!("https://{}", self.api_server), user, groups)?;
        Ok(path)
    }

    /// Where the API server listens for this machine.
    pub fn api_server(&self) -> SocketAddr {
        self.api_server
    }

    /// The address of the first node, as everybody inside sees it.
    pub fn node_ip(&self) -> IpAddr {
        self.layout.first().address
    }

    /// How long the start took, without what was fetched or built before.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// The guard and pid 1 of each node, as this machine counts them.
    pub fn pids(&self) -> (u32, Vec<u32>) {
        self.guard.pids()
    }

    /// The data directory, with a log for each component in `log/`.
    pub fn data(&self) -> &Path {
        &self.layout.data
    }

    /// Runs a command inside the namespaces of the first node, in `/`, with the machine's own programs, and returns what it printed.
    pub async fn exec_inside(&self, argv: &[&str]) -> Result<String> {
        self.exec_on(&self.layout.first().name, argv).await
    }

    /// The same on a node by its name.
    pub async fn exec_on(&self, node: &str, argv: &[&str]) -> Result<String> {
        let [program, arguments @ ..] = argv else { bail!("a command has a program") };
        let mut command = self.guard.command(node, program)?;
        command.args(arguments);
        run_async(command).await
    }

    /// Loads an image archive into containerd of every node.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        self.load(&[archive.to_owned()]).await
    }

    /// Opens a port on 127.0.0.1 that leads to `namespace/service:port`, `traefik`, `traefik-https`, or an address and port inside.
    pub async fn forward(&self, target: &str) -> Result<SocketAddr> {
        let address = match (target, super::service(target)) {
            ("traefik", _) => format!("{}:{}", self.node_ip(), TRAEFIK.0),
            ("traefik-https", _) => format!("{}:{}", self.node_ip(), TRAEFIK.1),
            (_, Some(((namespace, name), port))) => {
                let services: Api<Service> = Api::namespaced(client(self.kubeconfig()).await?, namespace);
                let ip = services.get(name).await?.spec.and_then(|spec| spec.cluster_ip).filter(|ip| ip != "None");
                format!("{}:{port}", ip.with_context(|| format!("{target} has no cluster address"))?)
            }
            (address, None) => address.to_owned(),
        };
        self.guard.forward(&self.layout.first().name, &address).await
    }

    /// Opens a port on 127.0.0.1 that leads to a port of this pod from the pod's own node, for which no policy holds.
    pub(super) async fn forward_to_pod(&self, pod: &Pod, port: u16) -> Result<SocketAddr> {
        let named = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let node = self.layout.nodes.iter().find(|node| Some(node.name.as_str()) == named);
        let node = node.with_context(|| format!("the pod is on no node of this cluster, but on {named:?}"))?;
        let address =
            pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("the pod has no address")?;
        self.guard.forward(&node.name, &format!("{address}:{port}")).await
    }

    /// Where the API server writes what was asked of it, for whoever follows that. Needs [`Options::audit`].
    pub fn audit_log(&self) -> PathBuf {
        self.layout.audit()
    }

    /// Where the node keeps which addresses it has given to pods: a file for each, and the last one.
    pub fn pod_addresses(&self) -> PathBuf {
        self.layout.first().folder().join("cni/ipam/pods")
    }

    /// What was asked of the API server so far.
    pub fn audit(&self) -> Result<Vec<AuditEvent>> {
        ensure!(self.audit, "this cluster was started without Options::audit");
        audit::read(&self.layout.audit())
    }

    /// Signals a component of the first node by its name, such as `kube-apiserver`.
    pub async fn signal(&self, component: &str, signal: Signal) -> Result<()> {
        self.guard.signal(&self.layout.first().name, component, signal).await
    }

    /// Starts the API server again after [`Local::signal`] ended it, and waits until it is ready.
    pub async fn restart_api_server(&self) -> Result<()> {
        self.run(&self.layout.api_server(self.audit)).await?;
        self.api_server_ready().await
    }

    /// Ends everything inside and waits until nothing is left, and what is global is as it was.
    pub async fn stop(self) -> Result<()> {
        let guard = Arc::clone(&self.guard);
        tokio::task::spawn_blocking(move || guard.stop()).await?
    }
}

/// A name that no other cluster of this machine has. It is short, because paths of Unix sockets are.
fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn name(data: &Path) -> String {
    data.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn end_of(log: &Path) -> String {
    tail(&std::fs::read_to_string(log).unwrap_or_default(), 12)
}
