//! The Deployment: its rollout, its selector, and which front-door image it has.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use mooring_api::McpServer;
use mooring_api::spec::RolloutStrategy;

use super::pod;
use super::tidy::tidied;
use crate::names::{self, ANNOTATION_GENERATION};
use crate::observed::Observed;
use crate::settings::Settings;

/// The Deployment.
pub(crate) fn deployment(server: &McpServer, observed: &Observed, settings: &Settings) -> Deployment {
    let name = server.name_any();
    let spec = DeploymentSpec {
        replicas: server.spec.replicas,
        selector: LabelSelector { match_labels: Some(names::selector_labels(&name)), ..LabelSelector::default() },
        strategy: Some(strategy(server)),
        template: pod::template(server, front_door_image(server, observed, settings), settings),
        ..DeploymentSpec::default()
    };
    let mut metadata = names::metadata(server, name);
    let generation = server.metadata.generation.unwrap_or_default().to_string();
    metadata.annotations = Some(BTreeMap::from([(ANNOTATION_GENERATION.to_owned(), generation)]));
    tidied(Deployment { metadata, spec: Some(spec), ..Deployment::default() })
}

/// No pod stops before a newer one is ready, where they may exist side by side.
fn strategy(server: &McpServer) -> DeploymentStrategy {
    let rollout = server.spec.rollout.clone().unwrap_or_default();
    match rollout.strategy() {
        RolloutStrategy::RollingUpdate => DeploymentStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(RollingUpdateDeployment {
                max_surge: Some(IntOrString::Int(rollout.max_surge())),
                max_unavailable: Some(IntOrString::Int(0)),
            }),
        },
        RolloutStrategy::Recreate => {
            DeploymentStrategy { type_: Some("Recreate".to_owned()), ..DeploymentStrategy::default() }
        }
    }
}

/// A Deployment keeps the image that it has until the spec changes or it is its turn to move, so that an upgrade of the
/// operator restarts nothing by itself.
pub(super) fn front_door_image<'a>(server: &McpServer, observed: &'a Observed, settings: &'a Settings) -> &'a str {
    let kept = observed.deployment.as_ref().filter(|deployment| {
        let applied = deployment.applied_generation;
        !observed.upgrade_turn && (applied.is_none() || applied == server.metadata.generation)
    });
    kept.and_then(|deployment| deployment.front_door_image.as_deref()).unwrap_or(&settings.front_door_image)
}
