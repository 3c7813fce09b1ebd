//! Why a pod does not come up, in words, from the states of its init and main containers. A reason holds while the
//! kubelet goes round its loop (pulling and waiting, running and ending), so that the status does not go round with it.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodCondition};
use mooring_api::Reason;

use crate::names::{FRONT_DOOR, SERVER};
use crate::observed::ObservedPod;
use crate::text::{cut, one_line, tail};

/// Longest words of others.
const DETAIL_BYTES: usize = 400;

/// What keeps a pod from serving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// An older message that begins so still tells the truth.
    pub(super) stem: Option<String>,
}

/// Whether a pod takes calls.
pub(crate) fn is_ready(pod: &ObservedPod) -> bool {
    !pod.terminating && ready_condition(pod).is_some()
}

/// Since when a pod has been ready, if it is.
pub(crate) fn ready_since(pod: &ObservedPod) -> Option<Timestamp> {
    Some(ready_condition(pod)?.last_transition_time.as_ref()?.0)
}

fn ready_condition(pod: &ObservedPod) -> Option<&PodCondition> {
    let mut conditions = pod.status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The newest first, because it is of the newest template.
pub(super) fn newest_first<'a>(pods: impl Iterator<Item = &'a ObservedPod>) -> Vec<&'a ObservedPod> {
    let mut pods: Vec<_> = pods.filter(|pod| !pod.terminating).collect();
    pods.sort_by_key(|pod| (Reverse(pod.created), pod.uid.clone()));
    pods
}

/// The failure of the newest pod that has one.
pub(super) fn failure<'a>(pods: impl Iterator<Item = &'a ObservedPod>) -> Option<Failure> {
    newest_first(pods).into_iter().filter(|pod| !is_ready(pod)).find_map(of_pod)
}

fn of_pod(pod: &ObservedPod) -> Option<Failure> {
    let init = pod.status.init_container_statuses.iter().flatten();
    let main = pod.status.container_statuses.iter().flatten();
    unschedulable(pod).or_else(|| init.chain(main).find_map(of_container))
}

fn unschedulable(pod: &ObservedPod) -> Option<Failure> {
    let conditions = pod.status.conditions.as_deref().unwrap_or_default();
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    let refused = scheduled.status == "False" && scheduled.reason.as_deref() == Some("Unschedulable");
    let words = one_line(scheduled.message.as_deref().unwrap_or_default());
    let message = format!("no node takes a pod: {}", cut(&words, DETAIL_BYTES).trim_end_matches('.'));
    refused.then_some(Failure { reason: Reason::Unschedulable, message, stem: None })
}

fn of_container(status: &ContainerStatus) -> Option<Failure> {
    let state = status.state.as_ref();
    let ended = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        let message = waiting.message.as_deref().unwrap_or_default();
        match waiting.reason.as_deref().unwrap_or_default() {
            "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "ImageInspectError"
            | "SignatureValidationFailed" => return Some(image(status, message)),
            "CreateContainerConfigError" => {
                return Some(told(status, Reason::CreateContainerConfigError, "cannot be made", message));
            }
            "CreateContainerError" | "RunContainerError" if ended.is_none() => {
                return Some(told(status, Reason::ContainerCannotRun, "cannot be started", message));
            }
            _ => {}
        }
    }
    let terminated = state.and_then(|state| state.terminated.as_ref()).or(ended)?;
    Some(of_end(status, terminated))
}

/// The kubelet goes from `ErrImagePull` to `ImagePullBackOff` and back, and wraps the same words differently.
fn image(status: &ContainerStatus, message: &str) -> Failure {
    let stem = format!("image {} of container {} cannot be pulled", status.image, status.name);
    let cause = message.rsplit_once("ErrImagePull: ").map_or(message, |(_, cause)| cause);
    let detail = if cause.starts_with("Back-off pulling") { String::new() } else { one_line(cause) };
    let reason = Reason::ImagePullBackOff;
    match cut(&detail, DETAIL_BYTES) {
        "" => Failure { reason, message: stem.clone(), stem: Some(stem) },
        detail => Failure { reason, message: format!("{stem}: {detail}"), stem: None },
    }
}

fn told(status: &ContainerStatus, reason: Reason, what: &str, message: &str) -> Failure {
    let stem = format!("container {} {what}", status.name);
    let detail = one_line(message);
    let message = match cut(&detail, DETAIL_BYTES) {
        "" => stem,
        detail => format!("{stem}: {detail}"),
    };
    Failure { reason, message, stem: None }
}

/// A container that should run for ever has ended. Its last words differ from time to time; those of the first stay.
fn of_end(status: &ContainerStatus, end: &ContainerStateTerminated) -> Failure {
    let words = end.message.as_deref().unwrap_or_default();
    match end.reason.as_deref().unwrap_or_default() {
        "StartError" | "ContainerCannotRun" => {
            return told(status, Reason::ContainerCannotRun, "cannot be started", words);
        }
        "OOMKilled" => {
            let field = match status.name.as_str() {
                FRONT_DOOR => "frontDoor.resources.limits.memory",
                SERVER => "http.resources.limits.memory",
                _ => "its memory limit",
            };
            let message = format!(
                "container {} was killed, because it used more memory than its limit: raise {field}",
                status.name
            );
            return Failure { reason: Reason::CrashLoopBackOff, message, stem: None };
        }
        _ => {}
    }
    let stem = format!("container {} ends again and again, with exit code {}", status.name, end.exit_code);
    let detail = one_line(words);
    let message = match tail(&detail, DETAIL_BYTES).trim() {
        "" => stem.clone(),
        detail => format!("{stem}: {detail}"),
    };
    Failure { reason: Reason::CrashLoopBackOff, message, stem: Some(stem) }
}
