//! The user's container: unchanged but for what *restricted* demands and a writable HOME, as a native sidecar, which the
//! kubelet stops only after the front door has ended.

use k8s_openapi::api::core::v1::{Container, EnvVar, SecurityContext, VolumeMount};
use mooring_api::spec::HttpSource;
use mooring_contract::mount;

use super::NonEmpty as _;
use super::front_door::{requirements, restricted};
use crate::names;

/// The volume of the home directory.
pub(super) const HOME_VOLUME: &str = "mooring-home";
const HOME: &str = "HOME";

/// Whether Mooring gives the container a home directory.
pub(super) fn has_home(http: &HttpSource) -> bool {
    http.env.iter().all(|variable| variable.name != HOME)
}

/// The container.
pub(super) fn sidecar(http: &HttpSource) -> Container {
    // The order of variables is the user's: one may refer to those before it.
    let mut env = http.env.clone();
    let mut mounts = http.volume_mounts.clone();
    mounts.sort_by(|a, b| a.mount_path.cmp(&b.mount_path));
    if has_home(http) {
        env.insert(0, EnvVar { name: HOME.to_owned(), value: Some(mount::HOME.to_owned()), value_from: None });
        mounts.push(VolumeMount {
            name: HOME_VOLUME.to_owned(),
            mount_path: mount::HOME.to_owned(),
            ..VolumeMount::default()
        });
    }
    Container {
        name: names::SERVER.to_owned(),
        image: Some(http.image.clone()),
        image_pull_policy: http.image_pull_policy.map(|policy| policy.as_str().to_owned()),
        command: http.command.clone().non_empty(),
        args: http.args.clone().non_empty(),
        env: env.non_empty(),
        env_from: http.env_from.clone().non_empty(),
        resources: http.resources.as_ref().and_then(requirements),
        restart_policy: Some("Always".to_owned()),
        security_context: Some(security_context(http)),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: mounts.non_empty(),
        ..Container::default()
    }
}

/// What the spec says, completed with what *restricted* demands.
fn security_context(http: &HttpSource) -> SecurityContext {
    let demanded = restricted();
    let mut context = http.security_context.clone().unwrap_or_default();
    context.allow_privilege_escalation = demanded.allow_privilege_escalation;
    context.capabilities.get_or_insert_default().drop =
        demanded.capabilities.and_then(|capabilities| capabilities.drop);
    context
}
