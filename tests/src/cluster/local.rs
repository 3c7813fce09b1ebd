//! Brings up a cluster of the harness's own: lays the data directory, starts the components in order, waits until each part serves.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Service, ServiceAccount};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;

use super::audit::{self, AuditEvent};
use super::components::{API_SERVER, Component, Layout, NODE, NODE_IP, SERVICE_IP, TRAEFIK};
use super::guard::{Guard, Setup, Signal};
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
        let layout = Layout { data };
        let pki = Pki::create(&layout.pki(), NODE, ip(NODE_IP), ip(SERVICE_IP))?;
        layout.write_configuration(&cgroup, &pki)?;
        let guard = Guard::start(&Setup {
            binary: &parts.binary,
            data: &layout.data,
            state: &run,
            node: NODE,
            address: NODE_IP,
            cgroup: &cgroup,
            keep: options.keep,
        })?;
        let guard = Arc::new(guard);
        let api_server = guard.forward(API_SERVER).await?;
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
        self.run(&self.layout.containerd()).await?;
        let (served, loaded) = tokio::join!(self.control_plane(options.metrics), self.load(&parts.images));
        served.and(loaded)?;
        let (up, loaded) = tokio::join!(self.node(options, parts), self.load(&options.images));
        up.and(loaded)
    }

    async fn node(&self, options: &Options, parts: &Parts) -> Result<()> {
        self.run(&self.layout.scheduler()).await?;
        self.run(&self.layout.proxy()).await?;
        self.run(&self.layout.kubelet()).await?;
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
        let client = client(self.kubeconfig()).await?;
        let nodes: Api<Node> = Api::all(client.clone());
        until("the node to be Ready", PATIENCE, || async {
            let conditions = nodes.get(NODE).await?.status.and_then(|status| status.conditions).unwrap_or_default();
            let ready = conditions.iter().find(|c| c.type_ == "Ready").context("no condition yet")?;
            ensure!(ready.status == "True", "{}", ready.message.as_deref().unwrap_or("no reason given"));
            Ok(())
        })
        .await?;
        if let Some(kube_router) = &parts.kube_router {
            // It gives up where its node is not there yet.
            self.run(&self.layout.network_policy(kube_router)).await?;
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
        if options.metrics {
            // A group that nobody serves yet is an error for who asks what there is, and no namespace goes meanwhile.
            let services: Api<APIService> = Api::all(client);
            until("the metrics API to be served", PATIENCE, || async {
                self.alive("metrics-server").await?;
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
            self.alive("kube-apiserver").await?;
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

    async fn load(&self, images: &[PathBuf]) -> Result<()> {
        until("containerd", PATIENCE, || async {
            self.alive("containerd").await?;
            let mut version = self.command("ctr");
            version.arg("version");
            run_async(version).await
        })
        .await?;
        for image in images {
            self.import_image(image).await?;
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

    async fn run(&self, component: &Component) -> Result<()> {
        self.guard.start_process(component.name, &component.argv, &self.layout.log(component.name)).await
    }

    async fn alive(&self, name: &str) -> Result<()> {
        ensure!(self.guard.runs(name).await?, "{name} has ended: {}", self.log_tail(name));
        Ok(())
    }

    fn log_tail(&self, name: &str) -> String {
        tail(&std::fs::read_to_string(self.layout.log(name)).unwrap_or_default(), 12)
    }

    /// The ends of all logs, for a person who wants to know why.
    pub fn logs(&self) -> String {
        let entries = std::fs::read_dir(self.layout.data.join("log")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        let logs = names.iter().filter_map(|name| name.strip_suffix(".log"));
        logs.map(|name| format!("--- {name}\n{}", self.log_tail(name))).collect::<Vec<_>>().join("\n")
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

    /// The address of the node inside.
    pub fn node_ip(&self) -> IpAddr {
        ip(NODE_IP)
    }

    /// How long the start took, without what was fetched or built before.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// The guard and pid 1, as this machine counts them.
    pub fn pids(&self) -> (u32, u32) {
        self.guard.pids()
    }

    /// The data directory, with a log for each component in `log/`.
    pub fn data(&self) -> &Path {
        &self.layout.data
    }

    /// A command that will run inside the namespaces of the cluster, in `/`, with the machine's own programs.
    pub fn command(&self, program: &str) -> tokio::process::Command {
        self.guard.command(program)
    }

    /// Runs a command inside the namespaces of the cluster and returns what it printed.
    pub async fn exec_inside(&self, argv: &[&str]) -> Result<String> {
        let [program, arguments @ ..] = argv else { bail!("a command has a program") };
        let mut command = self.command(program);
        command.args(arguments);
        run_async(command).await
    }

    /// Loads an image archive into containerd.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        let mut import = self.command("ctr");
        import.args(["-n", "k8s.io", "images", "import"]).arg(std::fs::canonicalize(archive)?);
        run_async(import).await.with_context(|| format!("cannot load {}", archive.display()))?;
        Ok(())
    }

    /// Opens a port on 127.0.0.1 that leads to `namespace/service:port`, `traefik`, `traefik-https`, or an address and port inside.
    pub async fn forward(&self, target: &str) -> Result<SocketAddr> {
        let address = match (target, super::service(target)) {
            ("traefik", _) => TRAEFIK.0.to_owned(),
            ("traefik-https", _) => TRAEFIK.1.to_owned(),
            (_, Some(((namespace, name), port))) => {
                let services: Api<Service> = Api::namespaced(client(self.kubeconfig()).await?, namespace);
                let ip = services.get(name).await?.spec.and_then(|spec| spec.cluster_ip).filter(|ip| ip != "None");
                format!("{}:{port}", ip.with_context(|| format!("{target} has no cluster address"))?)
            }
            (address, None) => address.to_owned(),
        };
        self.guard.forward(&address).await
    }

    /// Where the API server writes what was asked of it, for whoever follows that. Needs [`Options::audit`].
    pub fn audit_log(&self) -> PathBuf {
        self.layout.audit()
    }

    /// What was asked of the API server so far.
    pub fn audit(&self) -> Result<Vec<AuditEvent>> {
        ensure!(self.audit, "this cluster was started without Options::audit");
        audit::read(&self.layout.audit())
    }

    /// Signals a component by its name, such as `kube-apiserver`.
    pub async fn signal(&self, component: &str, signal: Signal) -> Result<()> {
        self.guard.signal(component, signal).await
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

impl Layout {
    /// Writes every configuration file with this cluster's own paths.
    fn write_configuration(&self, cgroup: &str, pki: &Pki) -> Result<()> {
        let files = [
            ("cni/10-pods.conflist", include_str!("../../cluster/conf/bridge.conflist")),
            ("Corefile", include_str!("../../cluster/conf/Corefile")),
            ("audit.yaml", include_str!("../../cluster/conf/audit.yaml")),
            ("containerd.toml", include_str!("../../cluster/conf/containerd.toml")),
            ("dns.yaml", include_str!("../../cluster/conf/dns.yaml")),
            ("kubelet.yaml", include_str!("../../cluster/conf/kubelet.yaml")),
            ("metrics.yaml", include_str!("../../cluster/conf/metrics.yaml")),
            ("proxy.yaml", include_str!("../../cluster/conf/proxy.yaml")),
            ("resolv.conf", "nameserver 10.96.0.10\n"),
            ("traefik.yaml", include_str!("../../cluster/conf/traefik.yaml")),
        ];
        let conf = self.data.join("conf");
        std::fs::create_dir_all(conf.join("cni")).with_context(|| format!("cannot make {}", conf.display()))?;
        for (name, template) in files {
            let text = template
                .replace("@DATA@", &self.data.to_string_lossy())
                .replace("@NODE@", NODE)
                .replace("@CGROUP@", cgroup)
                .replace("@CA@", &pki.bundle())
                .replace("@PAUSE@", parts::PAUSE)
                .replace("@TRAEFIK@", parts::TRAEFIK);
            std::fs::write(conf.join(name), text)?;
        }
        Ok(())
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

fn ip(text: &str) -> IpAddr {
    text.parse().expect("a constant address")
}
