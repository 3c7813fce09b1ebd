//! What the watches read of each object: metadata without managedFields, and the few fields that a decision depends on.
//! Whatever else an object holds is skipped while its bytes are read and never kept.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::api::networking::v1::{Ingress, IngressClass, IngressClassSpec, IngressStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use mooring_api::{McpServer, McpServerSpec, McpServerStatus};
use serde::{Deserialize, Deserializer};

/// What `kubectl apply` leaves behind; as large as the object itself, and of no use here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Metadata of an object, as far as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// `metadata.namespace`; empty for cluster-wide kinds.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `metadata.labels`; the children of a server share them.
    pub labels: Arc<BTreeMap<String, String>>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// The owner that controls it; the children of a server share it.
    pub controller: Option<Arc<Controller>>,
}

/// The owner that controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// `kind`.
    pub kind: String,
    /// `name`.
    pub name: String,
    /// `uid`.
    pub uid: String,
}

impl From<ObjectMeta> for Meta {
    fn from(meta: ObjectMeta) -> Self {
        let controller =
            meta.owner_references.unwrap_or_default().into_iter().find(|owner| owner.controller == Some(true));
        Self {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            resource_version: meta.resource_version.unwrap_or_default(),
            generation: meta.generation,
            labels: Arc::new(meta.labels.unwrap_or_default()),
            annotations: meta.annotations.unwrap_or_default(),
            created: meta.creation_timestamp.map(|Time(time)| time),
            deleting: meta.deletion_timestamp.is_some(),
            controller: controller
                .map(|OwnerReference { kind, name, uid, .. }| Arc::new(Controller { kind, name, uid })),
        }
    }
}

impl Meta {
    /// Shares what is equal with `other`, so that it is kept once.
    pub fn share_with(&mut self, other: &Self) {
        if self.labels == other.labels {
            self.labels = Arc::clone(&other.labels);
        }
        if self.controller == other.controller {
            self.controller.clone_from(&other.controller);
        }
    }
}

/// Reads metadata without managedFields, which are the larger part of it.
fn lean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Lean {
        namespace: Option<String>,
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let mut lean = Lean::deserialize(deserializer)?;
    if let Some(annotations) = &mut lean.annotations {
        annotations.remove(LAST_APPLIED);
    }
    Ok(ObjectMeta {
        namespace: lean.namespace,
        name: lean.name,
        uid: lean.uid,
        resource_version: lean.resource_version,
        generation: lean.generation,
        labels: lean.labels,
        annotations: lean.annotations,
        creation_timestamp: lean.creation_timestamp,
        deletion_timestamp: lean.deletion_timestamp,
        owner_references: lean.owner_references,
        ..ObjectMeta::default()
    })
}

/// Makes a view a [`Resource`] of the kind that it shows, so that kube's watcher can follow it.
macro_rules! resource {
    ([$($generic:ident)?] $view:ty as $kind:ty, metadata only: $metadata_only:literal) => {
        impl<$($generic: Resource<DynamicType = ()>)?> Resource for $view {
            type DynamicType = ();
            type Scope = <$kind as Resource>::Scope;

            fn metadata_api() -> bool {
                $metadata_only
            }
            fn kind((): &()) -> Cow<'_, str> {
                <$kind as Resource>::kind(&())
            }
            fn group((): &()) -> Cow<'_, str> {
                <$kind as Resource>::group(&())
            }
            fn version((): &()) -> Cow<'_, str> {
                <$kind as Resource>::version(&())
            }
            fn plural((): &()) -> Cow<'_, str> {
                <$kind as Resource>::plural(&())
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// Any object by its metadata alone: the API server is asked for no more than that.
#[derive(Deserialize)]
#[serde(bound = "")]
pub struct MetaView<K> {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for MetaView<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), kind: PhantomData }
    }
}

impl<K> std::fmt::Debug for MetaView<K> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.metadata.fmt(formatter)
    }
}

impl<K> MetaView<K> {
    /// Its metadata.
    pub fn into_meta(self) -> Meta {
        self.metadata.into()
    }
}

/// An McpServer whose spec may not parse.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerView {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: serde_json::Value,
    #[serde(default)]
    status: serde_json::Value,
}

/// An McpServer as it is stored, and why it cannot be read, when it cannot: its spec is then empty.
#[derive(Clone, Debug)]
pub struct ReadServer {
    /// The server.
    pub server: McpServer,
    /// Why its spec does not parse.
    pub unreadable: Option<String>,
    /// Whether its status is the one that we wrote last; it is then not kept a second time here.
    pub status_is_ours: bool,
}

impl From<ServerView> for ReadServer {
    fn from(view: ServerView) -> Self {
        let (spec, unreadable) = match serde_json::from_value::<McpServerSpec>(view.spec) {
            Ok(spec) => (spec, None),
            Err(error) => (McpServerSpec::default(), Some(error.to_string())),
        };
        // A status that does not parse is not ours any more: it is written anew.
        let status = serde_json::from_value::<Option<McpServerStatus>>(view.status).unwrap_or_default();
        Self { server: McpServer { metadata: view.metadata, spec, status }, unreadable, status_is_ours: false }
    }
}

/// A Deployment: its front-door image, replicas and status.
#[derive(Clone, Debug, Deserialize)]
pub struct DeploymentView {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: DeploymentSpecView,
    /// `status`.
    #[serde(default)]
    pub status: DeploymentStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DeploymentSpecView {
    replicas: Option<i32>,
    template: TemplateView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateView {
    spec: PodSpecView,
}

/// A pod's containers by name and image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecView {
    containers: Vec<ContainerView>,
    init_containers: Vec<ContainerView>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct ContainerView {
    name: String,
    image: Option<String>,
}

impl From<&PodSpecView> for PodSpec {
    fn from(view: &PodSpecView) -> Self {
        let containers = |views: &[ContainerView]| {
            let container = |view: &ContainerView| Container {
                name: view.name.clone(),
                image: view.image.clone(),
                ..Container::default()
            };
            views.iter().map(container).collect::<Vec<_>>()
        };
        let init_containers = Some(containers(&view.init_containers)).filter(|list| !list.is_empty());
        Self { containers: containers(&view.containers), init_containers, ..Self::default() }
    }
}

impl DeploymentView {
    /// `spec.replicas`.
    pub fn replicas(&self) -> Option<i32> {
        self.spec.replicas
    }

    /// Image of the container `name`.
    pub fn image(&self, name: &str) -> Option<&str> {
        let container = self.spec.template.spec.containers.iter().find(|container| container.name == name);
        container.and_then(|container| container.image.as_deref())
    }
}

/// A pod: its containers and its status.
#[derive(Clone, Debug, Deserialize)]
pub struct PodView {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    /// `spec`, by container names and images.
    #[serde(default)]
    pub spec: PodSpecView,
    /// `status`.
    #[serde(default)]
    pub status: PodStatus,
}

/// A HorizontalPodAutoscaler: its status.
#[derive(Clone, Debug, Deserialize)]
pub struct AutoscalerView {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    /// `status`.
    #[serde(default)]
    pub status: HorizontalPodAutoscalerStatus,
}

/// An Ingress: its status.
#[derive(Clone, Debug, Deserialize)]
pub struct IngressView {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    /// `status`.
    #[serde(default)]
    pub status: IngressStatus,
}

/// An IngressClass: its controller.
#[derive(Clone, Debug, Deserialize)]
pub struct IngressClassView {
    #[serde(deserialize_with = "lean")]
    metadata: ObjectMeta,
    /// `spec`.
    #[serde(default)]
    pub spec: IngressClassSpec,
}

resource!([K] MetaView<K> as K, metadata only: true);
resource!([] ServerView as McpServer, metadata only: false);
resource!([] DeploymentView as Deployment, metadata only: false);
resource!([] PodView as Pod, metadata only: false);
resource!([] AutoscalerView as HorizontalPodAutoscaler, metadata only: false);
resource!([] IngressView as Ingress, metadata only: false);
resource!([] IngressClassView as IngressClass, metadata only: false);

macro_rules! takes_meta {
    ($($view:ty),+) => {$(
        impl $view {
            /// Its metadata, taken out.
            pub fn take_meta(&mut self) -> Meta {
                std::mem::take(&mut self.metadata).into()
            }
        }
    )+};
}
takes_meta!(DeploymentView, PodView, AutoscalerView, IngressView, IngressClassView);

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;

    use super::*;

    #[test]
    fn managed_fields_and_content_are_not_kept() {
        let view: MetaView<Secret> = serde_json::from_value(json!({
            "metadata": {
                "name": "weather.keys", "namespace": "demo", "uid": "u", "resourceVersion": "7",
                "annotations": {LAST_APPLIED: "{}", "a": "b"},
                "managedFields": [{"manager": "x", "fieldsV1": {"f:data": {}}}],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1"},
                    {"apiVersion": "mooring.dev/v1alpha1", "kind": "McpServer", "name": "weather", "uid": "2", "controller": true},
                ],
            },
            "data": {"k": "c2VjcmV0"},
        }))
        .unwrap();
        assert_eq!(view.metadata.managed_fields, None);
        let meta = view.into_meta();
        assert_eq!(meta.annotations, BTreeMap::from([("a".into(), "b".into())]));
        assert_eq!(meta.controller.map(|controller| controller.uid.clone()), Some("2".into()));
    }

    #[test]
    fn a_server_that_does_not_parse_still_has_a_name_and_says_why() {
        let read = |spec: serde_json::Value| {
            let view: ServerView =
                serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec}))
                    .expect("a view takes any spec");
            ReadServer::from(view)
        };
        let bad = read(json!({"replicas": "three"}));
        assert_eq!(bad.server.metadata.name.as_deref(), Some("a"));
        assert!(bad.unreadable.unwrap().contains("three"));
        assert_eq!(read(json!({"replicas": 3})).unreadable, None);
        assert!(read(serde_json::Value::Null).unreadable.is_some());
    }
}
