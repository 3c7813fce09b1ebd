//! The watches: they bring what happens in the cluster into the [`World`] and tell who is concerned. They read and
//! never write, and know nothing of what follows.
//!
//! A watch asks for less than the 240 s after which load balancers cut idle connections, so a connection that died
//! silently is noticed in good time. An object that does not parse stops nothing else.

pub mod view;

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use mooring_plan::names;
use mooring_plan::observed::{InactiveAutoscaler, IngressClass, Reference};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::key::{ChildKey, Kind, ServerKey};
use crate::random;
use crate::world::{Child, DeploymentDetail, Wake, World, server_of};
use view::{
    AutoscalerView, DeploymentView, IngressClassView, IngressView, Meta, MetaView, PodView, ReadServer, ServerView,
};

/// How long one watch request lasts.
const WATCH_SECONDS: u32 = 180;
/// How many objects one answer of a list holds. A page is in memory as text and as objects at the same time.
const PAGE: u32 = 100;
/// Longest wait after an error.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

/// Where wakes go.
pub type Waker = Arc<dyn Fn(Vec<Wake>) + Send + Sync>;

/// Which namespaces are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of them.
    Cluster,
    /// These.
    Namespaces(Vec<String>),
}

/// Starts the watches, and tells when the first lists are complete.
pub struct Watches {
    /// Client.
    pub client: Client,
    /// Which namespaces.
    pub scope: Scope,
    /// Where what is seen goes.
    pub world: Arc<World>,
    /// Where wakes go.
    pub waker: Waker,
    /// Tasks run here.
    pub tasks: TaskTracker,
    /// Stops the watches.
    pub stop: CancellationToken,
}

impl Watches {
    /// Starts every watch and waits until each has shown a complete list. Servers come first, so that what they refer to
    /// is known when the lists of Secrets and others pass by; then Secrets, which every server has, so that its other
    /// children share with them. Returns early when stopped.
    pub async fn start(&self) {
        synced(self.follow::<ServerView>(None)).await;
        // Secrets, ConfigMaps and ServiceAccounts are children and references alike. What is neither is passed over.
        synced(self.follow::<MetaView<Secret>>(None)).await;
        let ours = names::selector_of_all();
        let mut first_lists = self.follow::<DeploymentView>(Some(&ours));
        first_lists.extend(self.follow::<PodView>(Some(&ours)));
        first_lists.extend(self.follow::<AutoscalerView>(Some(&ours)));
        first_lists.extend(self.follow::<IngressView>(Some(&ours)));
        first_lists.extend(self.follow::<MetaView<Service>>(Some(&ours)));
        first_lists.extend(self.follow::<MetaView<NetworkPolicy>>(Some(&ours)));
        first_lists.extend(self.follow::<MetaView<PodDisruptionBudget>>(Some(&ours)));
        first_lists.extend(self.follow::<MetaView<ConfigMap>>(None));
        first_lists.extend(self.follow::<MetaView<ServiceAccount>>(None));
        first_lists.extend(self.follow::<MetaView<PersistentVolumeClaim>>(None));
        first_lists.push(self.spawn::<IngressClassView>(Api::all(self.client.clone()), None, None));
        synced(first_lists).await;
    }

    fn follow<K>(&self, labels: Option<&str>) -> Vec<watch::Receiver<bool>>
    where
        K: Followed + Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        match &self.scope {
            Scope::Cluster => vec![self.spawn::<K>(Api::all(self.client.clone()), labels, None)],
            Scope::Namespaces(namespaces) => namespaces
                .iter()
                .map(|name| self.spawn::<K>(Api::namespaced(self.client.clone(), name), labels, Some(name.clone())))
                .collect(),
        }
    }

    fn spawn<K: Followed>(
        &self,
        api: Api<K>,
        labels: Option<&str>,
        namespace: Option<String>,
    ) -> watch::Receiver<bool> {
        let (done, synced) = watch::channel(false);
        let config = watcher::Config { label_selector: labels.map(str::to_owned), ..watcher::Config::default() };
        let events = watcher::watcher(api, config.timeout(WATCH_SECONDS).page_size(PAGE));
        let run = follow::<K>(events.boxed(), namespace, Arc::clone(&self.world), Arc::clone(&self.waker), done);
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(run).await });
        synced
    }
}

async fn synced(first_lists: Vec<watch::Receiver<bool>>) {
    for mut list in first_lists {
        let _ = list.wait_for(|done| *done).await; // an error means that the watch was stopped
    }
}

/// Brings one stream of events into the world.
async fn follow<K: Followed>(
    mut events: futures::stream::BoxStream<'static, Result<Event<K>, watcher::Error>>,
    namespace: Option<String>,
    world: Arc<World>,
    waker: Waker,
    done: watch::Sender<bool>,
) {
    let kind = K::kind(&());
    let mut seen = HashSet::new();
    let mut failures = 0_u32;
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                failures = failures.saturating_add(1);
                if failures == 1 || failures.is_multiple_of(30) {
                    tracing::warn!(%kind, namespace, %error, failures, "the watch failed; it is tried again");
                }
                if K::OPTIONAL && is_refused(&error) {
                    done.send_replace(true);
                }
                tokio::time::sleep(pause(failures, random::fraction())).await;
                continue;
            }
        };
        failures = 0;
        let concerned = match event {
            Event::Init => {
                seen.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let meta = object.meta();
                let name = meta.name.clone().unwrap_or_default();
                if object.is_of_interest(&world) {
                    seen.insert((meta.namespace.clone().unwrap_or_default(), name));
                }
                object.put(&world)
            }
            Event::InitDone => {
                let gone = K::retain(&world, namespace.as_deref(), &std::mem::take(&mut seen));
                done.send_replace(true);
                gone
            }
            Event::Apply(object) => object.put(&world),
            Event::Delete(object) => object.remove(&world),
        };
        if !concerned.is_empty() {
            waker(concerned);
        }
    }
}

/// Whether the API server does not have the kind, or does not let us read it.
fn is_refused(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.is_forbidden() || status.is_not_found())
}

fn pause(failures: u32, jitter: f64) -> Duration {
    crate::backoff::delay(failures, jitter, None).min(LONGEST_PAUSE)
}

/// A kind that is watched: how it enters the world and leaves it.
trait Followed: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    /// Whether the operator can do without: a cluster may lack the kind, or a role the right.
    const OPTIONAL: bool = false;

    /// Whether the object is kept. What is not need not be remembered while a list passes by.
    fn is_of_interest(&self, _world: &World) -> bool {
        true
    }
    /// It is there, as shown.
    fn put(self, world: &World) -> Vec<Wake>;
    /// It is gone.
    fn remove(self, world: &World) -> Vec<Wake>;
    /// A complete list was seen, in one namespace or in all.
    fn retain(world: &World, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake>;
}

fn child_key(kind: Kind, meta: &Meta) -> ChildKey {
    ChildKey { kind, namespace: meta.namespace.clone(), name: meta.name.clone() }
}

impl Followed for ServerView {
    fn put(self, world: &World) -> Vec<Wake> {
        let read = ReadServer::from(self);
        world.put_server(&key_of(&read.server), read)
    }

    fn remove(self, world: &World) -> Vec<Wake> {
        world.remove_server(&key_of(&ReadServer::from(self).server))
    }

    fn retain(world: &World, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        let in_scope = |key: &ServerKey| namespace.is_none_or(|namespace| namespace == key.namespace);
        let is_gone = |key: &ServerKey| in_scope(key) && !seen.contains(&(key.namespace.clone(), key.name.clone()));
        world.servers().into_iter().filter(is_gone).flat_map(|key| world.remove_server(&key)).collect()
    }
}

fn key_of(server: &mooring_api::McpServer) -> ServerKey {
    let meta = &server.metadata;
    ServerKey::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

impl Followed for DeploymentView {
    fn put(mut self, world: &World) -> Vec<Wake> {
        let meta = self.take_meta();
        let key = child_key(Kind::Deployment, &meta);
        world.put_child(key, Child { meta, deployment: Some(Box::new(DeploymentDetail::of(self))), ..Child::default() })
    }

    fn remove(mut self, world: &World) -> Vec<Wake> {
        let meta = self.take_meta();
        world.remove_child(&child_key(Kind::Deployment, &meta), Some(&meta.uid))
    }

    fn retain(world: &World, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        world.retain_children(Kind::Deployment, namespace, seen)
    }
}

impl Followed for PodView {
    fn put(mut self, world: &World) -> Vec<Wake> {
        let meta = self.take_meta();
        world.put_pod(meta, self)
    }

    fn remove(mut self, world: &World) -> Vec<Wake> {
        world.remove_pod(&self.take_meta())
    }

    fn retain(world: &World, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        world.retain_pods(namespace, seen)
    }
}

impl Followed for AutoscalerView {
    const OPTIONAL: bool = true;

    fn put(mut self, world: &World) -> Vec<Wake> {
        let meta = self.take_meta();
        let conditions = self.status.conditions.unwrap_or_default();
        let inactive_autoscaler = InactiveAutoscaler::from_conditions(&conditions).map(Box::new);
        let key = child_key(Kind::HorizontalPodAutoscaler, &meta);
        world.put_child(key, Child { meta, inactive_autoscaler, ..Child::default() })
    }

    fn remove(mut self, world: &World) -> Vec<Wake> {
        let meta = self.take_meta();
        world.remove_child(&child_key(Kind::HorizontalPodAutoscaler, &meta), Some(&meta.uid))
    }

    fn retain(world: &World, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        world.retain_children(Kind::HorizontalPodAutoscaler, namespace, seen)
    }
}

impl Followed for IngressView {
    const OPTIONAL: bool = true;

    fn put(mut self, world: &World) -> Vec<Wake> {
        let meta = self.take_meta();
        let reported = self.status.load_balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
        let addresses = reported.into_iter().filter_map(|point| point.ip.or(point.hostname)).collect();
        world.put_child(child_key(Kind::Ingress, &meta), Child { meta, addresses, ..Child::default() })
    }

    fn remove(mut self, world: &World) -> Vec<Wake> {
        let meta = self.take_meta();
        world.remove_child(&child_key(Kind::Ingress, &meta), Some(&meta.uid))
    }

    fn retain(world: &World, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        world.retain_children(Kind::Ingress, namespace, seen)
    }
}

impl Followed for IngressClassView {
    const OPTIONAL: bool = true;

    fn put(mut self, world: &World) -> Vec<Wake> {
        let meta = self.take_meta();
        let default = meta.annotations.get(DEFAULT_CLASS).is_some_and(|value| value == "true");
        let controller = self.spec.controller.unwrap_or_default();
        world.put_ingress_class(&meta.name, Some(IngressClass { controller, default }))
    }

    fn remove(mut self, world: &World) -> Vec<Wake> {
        world.put_ingress_class(&self.take_meta().name, None)
    }

    fn retain(world: &World, _: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        world.retain_ingress_classes(seen)
    }
}

/// A kind of which only metadata is read: as a child, as something that specs refer to, or as both.
trait Plain: Resource<DynamicType = ()> + 'static {
    const CHILD: Option<Kind>;
    const OPTIONAL: bool = false;

    fn reference(_name: &str) -> Option<Reference> {
        None
    }
    fn referred(_reference: &Reference) -> Option<&str> {
        None
    }
}

impl Plain for Service {
    const CHILD: Option<Kind> = Some(Kind::Service);
}

impl Plain for NetworkPolicy {
    const CHILD: Option<Kind> = Some(Kind::NetworkPolicy);
    const OPTIONAL: bool = true;
}

impl Plain for PodDisruptionBudget {
    const CHILD: Option<Kind> = Some(Kind::PodDisruptionBudget);
    const OPTIONAL: bool = true;
}

macro_rules! referred {
    ($($kind:ident, $child:expr;)+) => {$(
        impl Plain for $kind {
            const CHILD: Option<Kind> = $child;

            fn reference(name: &str) -> Option<Reference> {
                Some(Reference::$kind(name.to_owned()))
            }

            fn referred(reference: &Reference) -> Option<&str> {
                match reference {
                    Reference::$kind(name) => Some(name),
                    _ => None,
                }
            }
        }
    )+};
}
referred! {
    Secret, Some(Kind::Secret);
    ConfigMap, Some(Kind::ConfigMap);
    ServiceAccount, Some(Kind::ServiceAccount);
    PersistentVolumeClaim, None;
}

impl<K: Plain> Followed for MetaView<K> {
    const OPTIONAL: bool = K::OPTIONAL;

    fn is_of_interest(&self, world: &World) -> bool {
        let meta = self.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        meta.labels.as_ref().is_some_and(|labels| labels.contains_key("app.kubernetes.io/managed-by"))
            || K::reference(name)
                .is_some_and(|reference| world.is_tracked(meta.namespace.as_deref().unwrap_or_default(), &reference))
    }

    fn put(self, world: &World) -> Vec<Wake> {
        let meta = self.into_meta();
        let mut wakes = Vec::new();
        if let Some(reference) = K::reference(&meta.name) {
            wakes.extend(world.put_reference(&meta.namespace, reference, Some(&meta.resource_version)));
        }
        if let Some(kind) = K::CHILD {
            let key = child_key(kind, &meta);
            // Somebody may have taken our label away: then it is a child no more, until it is applied again.
            wakes.extend(match server_of(&meta) {
                Some(_) => world.put_child(key, Child { meta, ..Child::default() }),
                None => world.remove_child(&key, None),
            });
        }
        wakes
    }

    fn remove(self, world: &World) -> Vec<Wake> {
        let meta = self.into_meta();
        let mut wakes = Vec::new();
        if let Some(reference) = K::reference(&meta.name) {
            wakes.extend(world.put_reference(&meta.namespace, reference, None));
        }
        if let Some(kind) = K::CHILD {
            wakes.extend(world.remove_child(&child_key(kind, &meta), Some(&meta.uid)));
        }
        wakes
    }

    fn retain(world: &World, namespace: Option<&str>, seen: &HashSet<(String, String)>) -> Vec<Wake> {
        let mut wakes = world.retain_references(K::referred, namespace, seen);
        if let Some(kind) = K::CHILD {
            wakes.extend(world.retain_children(kind, namespace, seen));
        }
        wakes
    }
}
