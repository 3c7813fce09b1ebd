//! The Service: one port, no affinity. The management port is not on it; whoever scrapes reaches the pods.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use mooring_api::McpServer;

use super::front_door::PUBLIC_PORT;
use crate::names;

/// Name of the Service's port.
pub(super) const PORT_NAME: &str = "http";

/// The Service.
pub(crate) fn service(server: &McpServer) -> Service {
    let port = ServicePort {
        name: Some(PORT_NAME.to_owned()),
        port: 80,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(PUBLIC_PORT.to_owned())),
        ..ServicePort::default()
    };
    let spec = ServiceSpec {
        ports: Some(vec![port]),
        selector: Some(names::selector_labels(&server.name_any())),
        session_affinity: Some("None".to_owned()),
        type_: Some("ClusterIP".to_owned()),
        ..ServiceSpec::default()
    };
    Service { metadata: names::metadata(server, server.name_any()), spec: Some(spec), ..Service::default() }
}
