//! The McpServers that scenarios apply, beside the examples.

use mooring_contract::port;
use mooring_tests::parts::servers;
use serde_json::{Value, json};

use crate::room::Room;

/// The key that every one of them declares.
pub(crate) const KEY: &str = "first";

/// A server with one declared tool that asks its own front door for its health: it needs nothing else.
pub(crate) fn tools(room: &Room, name: &str) -> Value {
    let url = format!("http://127.0.0.1:{}/health", port::PUBLIC);
    let tool = json!({"name": "health", "http": {"url": url}});
    json!({"tools": [tool], "hosts": [room.host(name)], "ingress": {}, "auth": {"keys": [{"name": KEY}]}})
}

/// A server in an image: node, with whatever program.
pub(crate) fn node(room: &Room, name: &str, command: &[&str], arguments: &[&str]) -> Value {
    let http = json!({"image": room.image(servers::EVERYTHING), "command": command, "args": arguments, "port": 8000});
    json!({"http": http, "hosts": [room.host(name)], "ingress": {}, "auth": {"keys": [{"name": KEY}]}})
}

/// server-everything, which keeps its sessions in its memory, in so many pods. It does not heed SIGTERM, so a pod stays for
/// all of its grace period.
pub(crate) fn everything(room: &Room, name: &str, replicas: u8) -> Value {
    json!({
        "http": {"image": room.image(servers::EVERYTHING), "args": ["streamableHttp"], "port": 3001},
        "replicas": replicas,
        "hosts": [room.host(name)],
        "ingress": {},
        "auth": {"keys": [{"name": KEY}]},
        "limits": {"callTimeout": "20s"},
        "sessions": {"drain": "1m"},
    })
}

/// The FastMCP server, which keeps its sessions in its memory, too, and heeds SIGTERM.
pub(crate) fn fastmcp(room: &Room, name: &str, replicas: u8) -> Value {
    let http = json!({"image": room.image(servers::FASTMCP), "port": 8000});
    let keys = json!({"keys": [{"name": KEY}]});
    json!({"http": http, "replicas": replicas, "hosts": [room.host(name)], "ingress": {}, "auth": keys})
}

/// The server that records what reaches it, its program in a ConfigMap that must be applied, too.
pub(crate) fn recorder(room: &Room, name: &str, text: &str) -> Value {
    let mut spec = node(room, name, &["/usr/bin/node"], &["/program/recorder.mjs", text]);
    spec["http"]["volumeMounts"] = json!([{"name": "program", "mountPath": "/program", "readOnly": true}]);
    spec["pod"] = json!({"volumes": [{"name": "program", "configMap": {"name": "recorder"}}]});
    spec
}

/// The ConfigMap of [`recorder`].
pub(crate) fn recorder_program() -> Value {
    let program = include_str!("../../servers/recorder.mjs");
    let data = json!({"recorder.mjs": program});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "recorder"}, "data": data})
}

/// A pod that does nothing, from which other programs ask: node is in it.
pub(crate) fn bystander(room: &Room, name: &str) -> Value {
    let command =
        json!(["/usr/bin/node", "-e", "process.on('SIGTERM', () => process.exit(0)); setInterval(() => {}, 1e6)"]);
    let security = json!({
        "runAsUser": 65532, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    });
    let container = json!({"name": "node", "image": room.image(servers::EVERYTHING), "command": command, "securityContext": security});
    let spec = json!({"automountServiceAccountToken": false, "containers": [container]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}
