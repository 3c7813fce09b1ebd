//! What each test stands on: one control plane for the whole suite, and for each test a namespace, an account with the rights of the chart, and a
//! proxy through which its operator asks.

mod setup;
mod specs;
mod stored;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use mooring_tests::Cluster;
use mooring_tests::cluster::AuditEvent;
use mooring_tests::fault_proxy::FaultProxy;
use mooring_tests::operator_process::OperatorProcess;
use mooring_tests::wait::until;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use setup::{cluster, control_plane, install_class, install_crd, left_out};
use setup::{grant, make_namespace};
pub(crate) use specs::{full, full_children, patched, scaled, scaled_children};
use stored::{CHILD_KINDS, stored};
pub(crate) use stored::{Children, condition, entries, entry, text};

/// How long something may take that takes well below a second on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// How long the operator must have asked nothing to count as done.
const QUIET: Duration = Duration::from_millis(600);
/// The name of the chart's release, and so of its account.
const ACCOUNT: &str = "mooring";
/// The front door's image, as long as a test does not say otherwise.
pub(crate) const FRONT_DOOR: &str = "localhost/mooring-server:dev";

/// One test's part of a cluster.
pub(crate) struct World<'a> {
    pub(crate) cluster: &'a Cluster,
    /// With the administrator's rights.
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// Between the operator and the API server.
    pub(crate) proxy: FaultProxy,
    token: String,
    folder: TempDir,
}

impl World<'static> {
    /// A namespace of this name in the shared control plane, served by an operator of its own.
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        World::within(cluster().await?, namespace, Scope::Namespaced).await
    }
}

/// What the operator serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Namespaced,
    Cluster,
}

impl<'a> World<'a> {
    pub(crate) async fn within(cluster: &'a Cluster, namespace: &str, scope: Scope) -> Result<Self> {
        let client = cluster.client().await?;
        make_namespace(cluster, namespace).await?;
        let folder = TempDir::new()?;
        grant(cluster, namespace, scope, folder.path()).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Vec::new(),
                expiration_seconds: Some(7200),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let token = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await?;
        let token = token.status.context("a token request has an answer")?.token;
        let proxy = FaultProxy::start(cluster.kubeconfig(), Some(&token)).await?;
        proxy.write_kubeconfig(&folder.path().join("proxy.kubeconfig"))?;
        Ok(Self { cluster, client, namespace: namespace.to_owned(), proxy, token, folder })
    }

    /// The user that the API server sees when the operator asks.
    pub(crate) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// Where the operators of this test write their log.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("operator.log")
    }

    /// Starts an operator and waits until it is ready.
    pub(crate) async fn operator(&self) -> Result<OperatorProcess> {
        self.operator_with(&[]).await
    }

    /// The same with further flags.
    pub(crate) async fn operator_with(&self, flags: &[&str]) -> Result<OperatorProcess> {
        let operator = self.start(flags)?;
        operator.ready().await?;
        Ok(operator)
    }

    /// Starts an operator for this namespace without waiting.
    pub(crate) fn start(&self, flags: &[&str]) -> Result<OperatorProcess> {
        let mut all = vec!["--namespaces", &self.namespace];
        all.extend(flags);
        let operator = self.start_bare(&self.folder.path().join("proxy.kubeconfig"), &all)?;
        self.proxy.victim(operator.killer());
        Ok(operator)
    }

    /// Starts an operator for all namespaces without waiting.
    pub(crate) fn start_cluster_wide(&self, flags: &[&str]) -> Result<OperatorProcess> {
        let operator = self.start_bare(&self.folder.path().join("proxy.kubeconfig"), flags)?;
        self.proxy.victim(operator.killer());
        Ok(operator)
    }

    /// Starts an operator with this kubeconfig. Flags that are not given have this suite's defaults.
    pub(crate) fn start_bare(&self, kubeconfig: &Path, flags: &[&str]) -> Result<OperatorProcess> {
        let mut all = vec!["--lease-namespace", &self.namespace, "--lease-name", ACCOUNT, "--log-format", "json"];
        let defaults =
            [("--front-door-image", FRONT_DOOR), ("--leader-elect", "false"), ("--log-level", "mooring=debug,info")];
        for (flag, default) in defaults {
            if !flags.contains(&flag) {
                all.extend([flag, default]);
            }
        }
        all.extend(flags);
        OperatorProcess::start(kubeconfig, &self.log(), all)
    }

    /// A second way to the API server with the same account, for a second operator.
    pub(crate) async fn second_proxy(&self) -> Result<(FaultProxy, PathBuf)> {
        let proxy = FaultProxy::start(self.cluster.kubeconfig(), Some(&self.token)).await?;
        let path = self.folder.path().join(format!("{}.kubeconfig", proxy.address().port()));
        proxy.write_kubeconfig(&path)?;
        Ok((proxy, path))
    }

    pub(crate) fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(crate) fn servers(&self) -> Api<DynamicObject> {
        self.api("mooring.dev", "v1alpha1", "McpServer")
    }

    /// The API of a child's kind.
    pub(crate) fn kind(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Deployment" | "ReplicaSet" => ("apps", "v1"),
            "Ingress" | "NetworkPolicy" => ("networking.k8s.io", "v1"),
            "PodDisruptionBudget" => ("policy", "v1"),
            "Lease" => ("coordination.k8s.io", "v1"),
            "HorizontalPodAutoscaler" => ("autoscaling", "v2"),
            _ => ("", "v1"),
        };
        self.api(group, version, kind)
    }

    /// Applies an McpServer as `kubectl apply --server-side` does: what is no longer said goes.
    pub(crate) async fn apply(&self, name: &str, spec: &Value) -> Result<DynamicObject> {
        let server = json!({"apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer", "metadata": {"name": name}, "spec": spec});
        let parameters = PatchParams::apply("user").force();
        Ok(self.servers().patch(name, &parameters, &Patch::Apply(server)).await?)
    }

    /// Applies any other object of this namespace.
    pub(crate) async fn put(&self, object: &Value) -> Result<DynamicObject> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let kind = text("/kind").context("a kind")?;
        let name = text("/metadata/name").context("a name")?;
        Ok(self.kind(&kind).patch(&name, &PatchParams::apply("other").force(), &Patch::Apply(object)).await?)
    }

    /// The McpServer as it is stored.
    pub(crate) async fn server(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.servers().get(name).await?)?)
    }

    /// Waits until the operator has seen the newest spec of each of these, said so, and has nothing left to do.
    pub(crate) async fn settled(&self, names: &[&str]) -> Result<()> {
        until("the operator to settle", SOON, || self.is_settled(names)).await
    }

    /// The same without waiting: an error says what is missing.
    pub(crate) async fn is_settled(&self, names: &[&str]) -> Result<()> {
        let servers = self.servers().list(&ListParams::default()).await?;
        for name in names {
            let server = servers.iter().find(|server| server.metadata.name.as_deref() == Some(name));
            let server = server.with_context(|| format!("there is no {name}"))?;
            let (seen, wanted) = (server.data.pointer("/status/observedGeneration"), server.metadata.generation);
            ensure!(
                seen.and_then(Value::as_i64) == wanted,
                "{name} is at generation {wanted:?}, its status at {seen:?}"
            );
        }
        let idle = self.proxy.idle();
        ensure!(idle >= QUIET, "the last request came {} ms ago", idle.as_millis());
        Ok(())
    }

    /// Waits until, besides, the controller manager has nothing left to do: every Deployment has its pods, and nothing moves.
    /// Returns the resourceVersions of these servers and of their children.
    pub(crate) async fn at_rest(&self, names: &[&str]) -> Result<BTreeMap<String, String>> {
        self.settled(names).await?;
        let last = Mutex::new((BTreeMap::new(), Instant::now()));
        until("nothing to move", SOON, || async {
            let versions = self.versions(names).await?;
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.0 != versions {
                *last = (versions, Instant::now());
            }
            ensure!(last.1.elapsed() >= QUIET, "something moved");
            ensure!(self.proxy.idle() >= QUIET, "the operator is at work");
            Ok(last.0.clone())
        })
        .await
    }

    async fn versions(&self, names: &[&str]) -> Result<BTreeMap<String, String>> {
        let mut versions = BTreeMap::new();
        for (name, children) in self.children_of(names).await? {
            if let Ok(deployment) = children.get(&format!("Deployment/{name}")) {
                let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64);
                let seen = number("/status/observedGeneration") == number("/metadata/generation");
                ensure!(seen, "the Deployment {name} waits for its controller");
                let wanted = number("/spec/replicas").unwrap_or(1).min(1);
                ensure!(number("/status/updatedReplicas").unwrap_or(0) >= wanted, "no pods of {name}");
            }
            versions.extend(children.versions());
        }
        // Where a kubelet runs, the status tells of its pods, again and again: nobody has their images.
        let pods_run = matches!(self.cluster, Cluster::External(_));
        for server in self.servers().list(&ListParams::default()).await? {
            let name = server.metadata.name.unwrap_or_default();
            if !pods_run && names.contains(&name.as_str()) {
                versions.insert(format!("McpServer/{name}"), server.metadata.resource_version.unwrap_or_default());
            }
        }
        Ok(versions)
    }

    /// Waits until a condition has this status, and a reason and message that contain these.
    pub(crate) async fn condition(
        &self,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
        words: &str,
    ) -> Result<()> {
        until(&format!("{name} to be {kind}={status} with {reason:?} and {words:?}"), SOON, || async {
            let server = self.server(name).await?;
            let found = condition(&server, kind);
            ensure!(
                text(&found, "status") == status
                    && text(&found, "reason").contains(reason)
                    && text(&found, "message").contains(words),
                "conditions are {:#}",
                server.pointer("/status/conditions").unwrap_or(&Value::Null)
            );
            Ok(())
        })
        .await
    }

    /// Every object that one server owns, as stored, by kind and name. What the cluster's own controllers make of these is left out.
    pub(crate) async fn children(&self, server: &str) -> Result<Children> {
        let mut children = self.children_of(&[server]).await?;
        children.remove(server).with_context(|| format!("there is no {server}"))
    }

    /// The same for many servers, with one look at each kind.
    pub(crate) async fn children_of(&self, servers: &[&str]) -> Result<BTreeMap<String, Children>> {
        let (mut names, mut children) = (BTreeMap::new(), BTreeMap::new());
        for server in self.servers().list(&ListParams::default()).await? {
            let name = server.metadata.name.unwrap_or_default();
            if servers.contains(&name.as_str()) {
                names.insert(server.metadata.uid.unwrap_or_default(), name.clone());
                children.insert(name, Children(BTreeMap::new()));
            }
        }
        for kind in CHILD_KINDS {
            for object in self.kind(kind).list(&ListParams::default()).await? {
                let mut owners = object.metadata.owner_references.iter().flatten();
                let owner = owners.find_map(|owner| names.get(&owner.uid));
                if let Some(of) = owner.and_then(|owner| children.get_mut(owner)) {
                    let name = object.metadata.name.clone().unwrap_or_default();
                    of.0.insert(format!("{kind}/{name}"), stored(kind, object)?);
                }
            }
        }
        Ok(children)
    }

    /// The names of all objects in the namespace, of every kind that can be listed, but Events.
    pub(crate) async fn everything(&self) -> Result<Vec<String>> {
        let listed = self.cluster.kubectl(["api-resources", "--namespaced", "--verbs=list", "-o", "name"]).await?;
        let kinds: Vec<&str> = listed.lines().filter(|kind| !kind.starts_with("events")).collect();
        let names = self.cluster.kubectl(["get", &kinds.join(","), "-n", &self.namespace, "-o", "name"]).await?;
        let mut names: Vec<String> = names.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Deletes an object and waits until it is gone.
    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        let api = if kind == "McpServer" { self.servers() } else { self.kind(kind) };
        let uid = api.get(name).await?.metadata.uid;
        api.delete(name, &DeleteParams::default()).await?;
        until(&format!("{kind} {name} to be deleted"), SOON, || async {
            let found = api.get_opt(name).await?;
            ensure!(found.is_none_or(|found| found.metadata.uid != uid), "it is there");
            Ok(())
        })
        .await
    }

    /// What the operator's account wrote, by the API server's own log; Leases and Events are told apart.
    pub(crate) fn audited_writes(&self) -> Result<Vec<AuditEvent>> {
        let user = self.user();
        let mut events = self.cluster.audit()?;
        events.retain(|event| {
            let free = ["leases", "events"].contains(&event.resource());
            event.user.username == user && event.is_write() && event.stage == "ResponseComplete" && !free
        });
        Ok(events)
    }

    /// What the API server refused the operator's account for want of a right.
    pub(crate) fn forbidden(&self) -> Result<Vec<String>> {
        if left_out("only whether a right was refused, which the API server's audit log tells")? {
            return Ok(Vec::new());
        }
        let user = self.user();
        let events =
            self.cluster.audit()?.into_iter().filter(|event| event.user.username == user && event.code() == 403);
        Ok(events.map(|event| format!("{} {}", event.verb, event.request_uri)).collect())
    }

    /// The Events about an object, as `reason: note`.
    pub(crate) async fn events(&self, name: &str) -> Result<Vec<String>> {
        let events = self.api("events.k8s.io", "v1", "Event").list(&ListParams::default()).await?;
        let mine = events
            .into_iter()
            .filter(|event| event.data.pointer("/regarding/name").and_then(Value::as_str) == Some(name));
        Ok(mine.map(|event| format!("{}: {}", text(&event.data, "reason"), text(&event.data, "note"))).collect())
    }
}
