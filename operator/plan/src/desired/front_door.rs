//! The front door's container: the pod's main container, so that it drains while its backend still lives.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EnvVar, EnvVarSource, HTTPGetAction,
    ObjectFieldSelector, Probe, ResourceRequirements, SecretKeySelector, SecretVolumeSource, SecurityContext, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use mooring_api::McpServer;
use mooring_api::spec::{self, HeaderSecret};
use mooring_contract::{mount, pod, port, revision};

use super::NonEmpty as _;
use crate::settings::Settings;
use crate::{names, references};

/// Name of the port that clients reach.
pub(super) const PUBLIC_PORT: &str = "public";
const MANAGEMENT_PORT: &str = "management";
/// Owner and group may read: the group is the pod's `fsGroup`.
const SECRET_MODE: i32 = 0o440;

/// How long a front door that answers no probe has to stop, in seconds. The pod's grace period, in which sessions live on,
/// would only keep one that hangs away from them.
const HUNG_GRACE: i64 = 5;

/// The container.
pub(super) fn container(server: &McpServer, image: &str, settings: &Settings) -> Container {
    Container {
        name: names::FRONT_DOOR.to_owned(),
        image: Some(image.to_owned()),
        image_pull_policy: settings.front_door_pull_policy.clone(),
        args: Some(vec!["serve".to_owned(), "--kubernetes".to_owned()]),
        env: Some(header_variables(server).into_iter().chain(pod_variables()).collect()),
        ports: Some(vec![
            container_port(PUBLIC_PORT, port::PUBLIC),
            container_port(port::PEER_NAME, port::PEER),
            container_port(MANAGEMENT_PORT, port::MANAGEMENT),
        ]),
        resources: Some(resources(server)),
        // Readiness is asked only after the startup probe, and then at once: a pod takes calls within a second of its
        // backend's first answer. A backend that never answers keeps the pod out of the Service, and is not restarted.
        // Traefik sends requests to a pod that stops until this probe has failed, and the front door serves for ten seconds
        // more: so it is asked often, and what it says counts soon. One that is only slow has time.
        startup_probe: Some(Probe {
            period_seconds: Some(1),
            failure_threshold: Some(86_400),
            ..probe("/health/ready")
        }),
        readiness_probe: Some(Probe {
            period_seconds: Some(2),
            timeout_seconds: Some(5),
            failure_threshold: Some(2),
            ..probe("/health/ready")
        }),
        liveness_probe: Some(Probe {
            initial_delay_seconds: Some(5),
            period_seconds: Some(10),
            timeout_seconds: Some(5),
            termination_grace_period_seconds: Some(HUNG_GRACE),
            ..probe("/health")
        }),
        security_context: Some(SecurityContext { read_only_root_filesystem: Some(true), ..restricted() }),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts(server).iter().map(Mount::mount).collect()),
        ..Container::default()
    }
}

/// What *restricted* demands of every container.
pub(super) fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    }
}

/// The front door's volumes.
pub(super) fn volumes(server: &McpServer) -> Vec<Volume> {
    mounts(server).iter().map(Mount::volume).collect()
}

/// CPU and memory as the API has them.
pub(super) fn requirements(resources: &spec::ResourceRequirements) -> Option<ResourceRequirements> {
    let quantities = |map: &BTreeMap<String, mooring_api::Quantity>| {
        map.iter().map(|(name, quantity)| (name.clone(), quantity.into())).collect::<BTreeMap<_, _>>().non_empty()
    };
    let (limits, requests) = (quantities(&resources.limits), quantities(&resources.requests));
    (limits.is_some() || requests.is_some()).then(|| ResourceRequirements {
        limits,
        requests,
        ..ResourceRequirements::default()
    })
}

/// Defaults are set, because a namespace with a quota refuses pods without them.
fn resources(server: &McpServer) -> ResourceRequirements {
    let written = server.spec.front_door.as_ref().and_then(|front_door| front_door.resources.as_ref());
    let quantities = |cpu: &str, memory: &str| {
        let pairs = [("cpu", cpu), ("memory", memory)];
        Some(pairs.into_iter().map(|(name, value)| (name.to_owned(), Quantity(value.to_owned()))).collect())
    };
    written.and_then(requirements).unwrap_or_else(|| ResourceRequirements {
        requests: quantities("10m", "32Mi"),
        limits: quantities("1", "256Mi"),
        ..ResourceRequirements::default()
    })
}

fn container_port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(number),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn probe(path: &str) -> Probe {
    let get = HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::String(MANAGEMENT_PORT.to_owned()),
        ..HTTPGetAction::default()
    };
    Probe { http_get: Some(get), ..Probe::default() }
}

/// The environment variable that holds a tool header's value. Its name follows from the Secret's, not from its place
/// among others: during a rollout old pods read the new config, and must not find another value under a name.
pub(super) fn header_variable(secret: &HeaderSecret) -> String {
    let digest = revision::revision([(secret.name.as_str(), secret.key.as_bytes())]);
    format!("MOORING_HEADER_{}", digest.to_uppercase())
}

fn header_variables(server: &McpServer) -> Vec<EnvVar> {
    let headers = server.spec.tools.iter().flatten().flat_map(|tool| &tool.request_in_pods().headers);
    let secrets: BTreeMap<_, _> = headers
        .filter_map(|header| header.secret.as_ref())
        .map(|secret| ((&secret.name, &secret.key), secret))
        .collect();
    let variable = |((name, key), secret): ((&String, &String), &HeaderSecret)| EnvVar {
        name: header_variable(secret),
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector { name: name.clone(), key: key.clone(), optional: None }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    secrets.into_iter().map(variable).collect()
}

/// What the front door seals into the sessions that it begins.
fn pod_variables() -> [EnvVar; 2] {
    [(pod::UID_VARIABLE, "metadata.uid"), (pod::IP_VARIABLE, "status.podIP")].map(|(name, path)| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: path.to_owned(), api_version: None }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    })
}

/// One of the front door's mounts: a directory that the kubelet refreshes.
struct Mount {
    volume: String,
    path: String,
    source: Source,
}

enum Source {
    ConfigMap(String),
    Secret(String),
}

impl Mount {
    fn mount(&self) -> VolumeMount {
        VolumeMount {
            name: self.volume.clone(),
            mount_path: self.path.clone(),
            read_only: Some(true),
            ..VolumeMount::default()
        }
    }

    /// Secrets are optional, so that deleting one empties the directory instead of keeping the pod from starting.
    fn volume(&self) -> Volume {
        let name = self.volume.clone();
        match &self.source {
            Source::ConfigMap(config_map) => Volume {
                name,
                config_map: Some(ConfigMapVolumeSource {
                    name: config_map.clone(),
                    ..ConfigMapVolumeSource::default()
                }),
                ..Volume::default()
            },
            Source::Secret(secret) => Volume {
                name,
                secret: Some(SecretVolumeSource {
                    default_mode: Some(SECRET_MODE),
                    optional: Some(true),
                    secret_name: Some(secret.clone()),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            },
        }
    }
}

fn mounts(server: &McpServer) -> Vec<Mount> {
    let name = server.name_any();
    let mount = |volume: &str, path: &str, source| Mount {
        volume: format!("{}{volume}", mount::VOLUME_PREFIX),
        path: path.to_owned(),
        source,
    };
    let mut mounts = vec![
        mount("config", mount::CONFIG_DIR, Source::ConfigMap(names::config(&name))),
        mount("keys", mount::KEYS_DIR, Source::Secret(names::keys(&name))),
        mount("session", mount::SESSION_DIR, Source::Secret(names::session(&name))),
    ];
    for secret in references::key_secrets(server) {
        // A Secret's name may be longer than a volume's, so the volume is named by a digest.
        let volume = format!("key-secret-{}", revision::revision([(secret.as_str(), &[][..])]));
        mounts.push(mount(&volume, &format!("{}/{secret}", mount::KEY_SECRETS_DIR), Source::Secret(secret)));
    }
    mounts
}
