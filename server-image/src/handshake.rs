//! The front door's own handshake with its backend: the proof that an MCP server stands there, what it is called and how
//! many tools it has. Repeated until it succeeds; then the backend's port is looked at, and when it is gone, all begins
//! anew.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::door::{Answered, Door};
use crate::loopback::LOOPBACK;
use crate::relay::Relay;
use crate::rules::{Backend, Rules};

mod conversation;

use conversation::Heard;

/// First pause between two tries; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest pause while nothing listens: looking costs little, and a server that came up is wanted at once.
const AWAY_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause while something answers wrongly.
const WRONG_PAUSE: Duration = Duration::from_secs(5);
/// How often the port is looked at while all is well.
const LOOK: Duration = Duration::from_secs(2);
/// Longest wait for a connection on loopback.
const CONNECT: Duration = Duration::from_secs(1);

/// Keeps [`Door::answered`] true, forever.
pub async fn keep(door: Arc<Door>) {
    let mut changes = door.changes();
    loop {
        changes.borrow_and_update();
        let Some(rules) = door.rules() else {
            if changes.changed().await.is_err() {
                return;
            }
            continue;
        };
        match &rules.backend {
            Backend::Tools(tools) => {
                let handshake = Some(tools.handshake());
                door.set_answered(Answered { reachable: true, handshake, only: None, error: None });
                if changes.changed().await.is_err() {
                    return;
                }
            }
            Backend::Http(relay) => until_replaced(&door, &rules, &mut changes, accompany(&door, relay, false)).await,
            Backend::Sse(relay) => until_replaced(&door, &rules, &mut changes, accompany(&door, relay, true)).await,
        }
    }
}

/// Does the work as long as the rules lead to the same server.
async fn until_replaced(
    door: &Door,
    rules: &Rules,
    changes: &mut watch::Receiver<u64>,
    work: impl Future<Output = ()>,
) {
    let replaced = async {
        while changes.changed().await.is_ok() {
            if door.rules().is_none_or(|newer| !same_target(rules, &newer)) {
                break;
            }
        }
    };
    tokio::select! {
        () = replaced => {}
        () = work => {}
    }
}

fn same_target(rules: &Rules, newer: &Rules) -> bool {
    match (rules.backend.relay(), newer.backend.relay()) {
        (Some((old, was_older)), Some((new, is_older))) => old.target() == new.target() && was_older == is_older,
        _ => false,
    }
}

/// Shakes hands until it succeeds, then returns when the backend is gone.
async fn accompany(door: &Door, relay: &Relay, older: bool) {
    let mut pause = PAUSE;
    loop {
        let listens = is_listening(relay.port).await;
        let result = match (listens, older) {
            (false, _) => Err(format!("nothing listens on port {}", relay.port)),
            (true, false) => conversation::handshake(relay).await,
            (true, true) => conversation::older_handshake(relay).await,
        };
        match result {
            Ok(Heard { handshake, only }) => {
                tracing::info!(
                    name = handshake.name,
                    version = handshake.version,
                    protocol_versions = handshake.protocol_versions.join(" "),
                    tools = handshake.tool_count,
                    "the MCP server answered the handshake"
                );
                door.set_answered(Answered { reachable: true, handshake: Some(handshake), only, error: None });
                break;
            }
            Err(error) => {
                let before = door.answered();
                if before.error.as_ref() != Some(&error) {
                    tracing::info!(error, "no handshake with the MCP server yet");
                }
                let handshake = before.handshake.clone();
                door.set_answered(Answered { reachable: false, handshake, only: None, error: Some(error) });
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(if listens { WRONG_PAUSE } else { AWAY_PAUSE });
            }
        }
    }
    while is_listening(relay.port).await {
        tokio::time::sleep(LOOK).await;
    }
    tracing::warn!(port = relay.port, "the MCP server is gone");
    let handshake = door.answered().handshake.clone();
    let error = Some(format!("nothing listens on port {} any more", relay.port));
    door.set_answered(Answered { reachable: false, handshake, only: None, error });
}

async fn is_listening(port: u16) -> bool {
    for address in LOOPBACK {
        let connect = TcpStream::connect(SocketAddr::new(address, port));
        if matches!(tokio::time::timeout(CONNECT, connect).await, Ok(Ok(_))) {
            return true;
        }
    }
    false
}
