//! Tests of the front door as a whole: the pipeline without sockets, and over loopback.

mod backend;
mod disconnects;
mod drain;
mod eras;
mod front;
mod guarded;
mod handshakes;
mod http_2;
pub mod kubelet;
mod limits;
mod managed;
mod older;
mod refusals;
mod relayed;
mod reloads;
mod secrets;
mod sessions;
mod smuggling;
mod times;
mod tooled;
mod wire;

/// Waits until `condition` holds; a test fails when it does not within some seconds.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("not within 10 s: {what}");
}
