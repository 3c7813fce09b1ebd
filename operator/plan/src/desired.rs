//! The children, one file for each kind. Each builder is a function of the spec, of what is observed and of the
//! settings, and gives the same bytes for the same meaning: maps are sorted, sets too, and nothing empty is sent.

mod autoscaler;
mod backend;
mod config_map;
mod deployment;
mod disruption_budget;
mod front_door;
mod ingress;
mod ingress_annotations;
mod keys;
mod network_policy;
mod pod;
mod service;
mod service_account;
mod tidy;

pub(crate) use autoscaler::autoscaler;
pub(crate) use config_map::{config_map, sessions, tool};
pub(crate) use deployment::deployment;
pub(crate) use disruption_budget::disruption_budget;
pub(crate) use ingress::{Exposure, exposure};
pub(crate) use keys::keys;
pub(crate) use network_policy::network_policy;
pub(crate) use service::service;
pub(crate) use service_account::service_account;

use std::collections::BTreeMap;

/// What is not sent when it is empty, because the API server would drop it, and the next apply would send it again.
trait NonEmpty: Sized {
    fn non_empty(self) -> Option<Self>;
}

impl<T> NonEmpty for Vec<T> {
    fn non_empty(self) -> Option<Self> {
        (!self.is_empty()).then_some(self)
    }
}

impl<K, V> NonEmpty for BTreeMap<K, V> {
    fn non_empty(self) -> Option<Self> {
        (!self.is_empty()).then_some(self)
    }
}
