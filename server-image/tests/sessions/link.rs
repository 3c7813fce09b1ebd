//! The way to a pod, which may be slow or cut. It knows bytes alone, and keeps those that went towards the pod.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

use super::common::now;

/// What the system keeps of a connection beside what is on the way.
const BUFFER: u32 = 4 * 1024;
/// Pieces on the way, each of which is not larger than so many bytes.
const PIECES: usize = 16;
const PIECE: usize = 1024;

/// How bytes pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pass {
    /// At once.
    Freely,
    /// Each after a delay, and so many in a second.
    Slowly(Duration, u32),
    /// So many in each direction of a connection; then none, and nobody is told.
    First(usize),
}

/// A relay that listens at one address and leads to another, until it is dropped.
pub struct Link {
    pass: watch::Sender<Pass>,
    heard: Heard,
    runtime: Option<tokio::runtime::Runtime>,
}

type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// No more bytes pass on any connection.
pub const CUT: Pass = Pass::First(0);

impl Link {
    pub fn between(here: SocketAddr, there: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (pass, heard) = (watch::Sender::new(Pass::Freely), Heard::default());
        let listener = {
            let _in = runtime.enter();
            let socket = socket();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(here).unwrap();
            socket.listen(64).unwrap()
        };
        runtime.spawn(relay(listener, there, pass.clone(), Arc::clone(&heard)));
        Self { pass, heard, runtime: Some(runtime) }
    }

    pub fn set(&self, pass: Pass) {
        self.pass.send_replace(pass);
    }

    /// What went towards the pod, on each connection.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }
}

fn socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(BUFFER).unwrap();
    socket.set_send_buffer_size(BUFFER).unwrap();
    socket
}

async fn relay(listener: TcpListener, there: SocketAddr, pass: watch::Sender<Pass>, heard: Heard) {
    let connections = TaskTracker::new();
    while let Ok((caller, _)) = listener.accept().await {
        let Ok(pod) = socket().connect(there).await else { continue };
        let number = {
            let mut heard = heard.lock().unwrap();
            heard.push(Vec::new());
            heard.len() - 1
        };
        let ((from_caller, to_caller), (from_pod, to_pod)) = (caller.into_split(), pod.into_split());
        let heard = Arc::clone(&heard);
        let keep = move |bytes: &[u8]| heard.lock().unwrap()[number].extend_from_slice(bytes);
        connections.spawn(direction(from_caller, to_pod, pass.subscribe(), keep));
        connections.spawn(direction(from_pod, to_caller, pass.subscribe(), |_: &[u8]| {}));
    }
}

/// Brings bytes from one end to the other, as is allowed.
async fn direction(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut pass: watch::Receiver<Pass>,
    seen: impl Fn(&[u8]) + Send + 'static,
) {
    let (sender, mut way) = mpsc::channel(PIECES);
    let reads = async move {
        let mut piece = [0; PIECE];
        while let Ok(read @ 1..) = from.read(&mut piece).await {
            if sender.send((now(), piece[..read].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let writes = async move {
        let mut passed = 0;
        while let Some((sent, mut piece)) = way.recv().await {
            while !piece.is_empty() {
                let how = *pass.borrow_and_update();
                let now = match how {
                    Pass::Freely => piece.len(),
                    Pass::Slowly(delay, rate) => {
                        tokio::time::sleep(delay.saturating_sub(sent.elapsed())).await;
                        tokio::time::sleep(Duration::from_secs(1) * u32::try_from(piece.len()).unwrap() / rate).await;
                        piece.len()
                    }
                    Pass::First(most) => piece.len().min(most.saturating_sub(passed)),
                };
                if now == 0 {
                    let _ = pass.changed().await;
                    continue;
                }
                let rest = piece.split_off(now);
                seen(&piece);
                if to.write_all(&piece).await.is_err() {
                    return;
                }
                passed += now;
                piece = rest;
            }
        }
    };
    tokio::join!(reads, writes);
}
