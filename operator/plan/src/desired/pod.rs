//! The pod: what both containers share. It passes the *restricted* Pod Security profile and mounts no API token.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    EmptyDirVolumeSource, LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec, SeccompProfile,
    TopologySpreadConstraint, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt as _;
use mooring_api::McpServer;
use mooring_api::spec;
use mooring_contract::config::{Limits, SessionMode};

use super::{NonEmpty as _, backend, config_map, front_door};
use crate::names;
use crate::settings::Settings;

/// User and group of the containers, where the cluster does not assign them and the spec does not name them.
const USER: i64 = 65532;
/// How long the front door serves everything after it was told to stop, because ingresses lag.
const LAME_DUCK: Duration = Duration::from_secs(10);
/// What is left for closing after the last call may have ended.
const MARGIN: Duration = Duration::from_secs(5);

/// The pod template: bytes that are ours, the same for the same spec, or a restart of the operator would restart pods.
pub(super) fn template(server: &McpServer, front_door_image: &str, settings: &Settings) -> PodTemplateSpec {
    let name = server.name_any();
    let pod = server.spec.pod.clone().unwrap_or_default();
    let mut labels = pod.labels.clone();
    labels.extend(names::labels(&name));
    let mut annotations = BTreeMap::new();
    if server.spec.http.is_some() {
        annotations.insert("kubectl.kubernetes.io/default-container".to_owned(), names::SERVER.to_owned());
    }
    annotations.extend(pod.annotations.clone());
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: annotations.non_empty(),
            ..ObjectMeta::default()
        }),
        spec: Some(pod_spec(server, pod, front_door_image, settings)),
    }
}

fn pod_spec(server: &McpServer, pod: spec::Pod, front_door_image: &str, settings: &Settings) -> PodSpec {
    let name = server.name_any();
    PodSpec {
        affinity: pod.affinity.clone(),
        automount_service_account_token: Some(false),
        containers: vec![front_door::container(server, front_door_image, settings)],
        enable_service_links: Some(false),
        image_pull_secrets: pull_secrets(&pod, settings).non_empty(),
        init_containers: server.spec.http.as_ref().map(|http| vec![backend::sidecar(http)]),
        node_selector: pod.node_selector.clone().non_empty(),
        priority_class_name: pod.priority_class_name.clone(),
        security_context: Some(security_context(&pod, settings)),
        service_account_name: Some(pod.service_account_name.clone().unwrap_or_else(|| name.clone())),
        termination_grace_period_seconds: Some(grace_period(server)),
        tolerations: pod.tolerations.clone().non_empty(),
        topology_spread_constraints: pod
            .topology_spread
            .iter()
            .map(|constraint| counting_own_pods(constraint, &name))
            .collect::<Vec<_>>()
            .non_empty(),
        volumes: Some(volumes(server, pod)),
        ..PodSpec::default()
    }
}

fn pull_secrets(pod: &spec::Pod, settings: &Settings) -> Vec<LocalObjectReference> {
    let of_spec = pod.image_pull_secrets.iter().map(|secret| &secret.name);
    let names: BTreeSet<_> = of_spec.chain(&settings.front_door_pull_secrets).collect();
    names.into_iter().map(|name| LocalObjectReference { name: name.clone() }).collect()
}

/// What the spec says, completed with what *restricted* demands, and with a user that images made for root run under.
fn security_context(pod: &spec::Pod, settings: &Settings) -> PodSecurityContext {
    let mut context = pod.security_context.clone().unwrap_or_default();
    context.run_as_non_root = Some(true);
    context.seccomp_profile.get_or_insert_with(runtime_default);
    if !settings.cluster_assigns_users {
        context.run_as_user.get_or_insert(USER);
        context.run_as_group.get_or_insert(USER);
        context.fs_group.get_or_insert(USER);
        context.fs_group_change_policy.get_or_insert_with(|| "OnRootMismatch".to_owned());
    }
    context
}

fn runtime_default() -> SeccompProfile {
    SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }
}

/// Sessions live on for `sessions.drain`, and a call that is running then may go on to its `callTimeout`. A front door
/// that has neither leaves as soon as it has been a lame duck.
fn grace_period(server: &McpServer) -> i64 {
    let call_timeout = server.spec.limits.as_ref().and_then(|limits| limits.call_timeout).map(Duration::from);
    let call_timeout = call_timeout.unwrap_or(Duration::from_millis(Limits::CALL_TIMEOUT_MS));
    let sessions = config_map::sessions(server);
    let drain = match sessions.mode {
        SessionMode::Sticky => Duration::from_millis(sessions.drain_ms),
        SessionMode::Stateless => Duration::ZERO,
    };
    let total = LAME_DUCK + drain + call_timeout + MARGIN;
    i64::try_from(total.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

fn counting_own_pods(constraint: &TopologySpreadConstraint, server: &str) -> TopologySpreadConstraint {
    let mut constraint = constraint.clone();
    constraint.label_selector.get_or_insert_with(|| LabelSelector {
        match_labels: Some(names::selector_labels(server)),
        ..LabelSelector::default()
    });
    constraint
}

/// Mooring's volumes, then the user's, each sorted, because the order in which a spec lists them means nothing.
fn volumes(server: &McpServer, pod: spec::Pod) -> Vec<Volume> {
    let mut volumes = front_door::volumes(server);
    if server.spec.http.as_ref().is_some_and(backend::has_home) {
        volumes.push(Volume {
            name: backend::HOME_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        });
    }
    let mut own: Vec<_> = pod.volumes.into_iter().map(volume).collect();
    own.sort_by(|a, b| a.name.cmp(&b.name));
    volumes.extend(own);
    volumes
}

fn volume(volume: spec::Volume) -> Volume {
    let spec::Volume {
        name,
        config_map,
        csi,
        downward_api,
        empty_dir,
        ephemeral,
        persistent_volume_claim,
        projected,
        secret,
    } = volume;
    Volume {
        name,
        config_map,
        csi,
        downward_api,
        empty_dir,
        ephemeral,
        persistent_volume_claim,
        projected,
        secret,
        ..Volume::default()
    }
}
