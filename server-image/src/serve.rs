//! `mooring-server serve`: binds the sockets, starts the tasks, and ends them in order. `stdio` has the way without sockets.
//!
//! On a stop signal it is not ready at once, but serves on for a while, because ingresses learn late; then it begins no
//! session any more, and its sessions live on for a while, reached through other pods; then it accepts nothing new, ends
//! streams without end, and leaves when the running calls are done.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use mooring_contract::port;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::accept::{self, Rim};
use crate::body::{Body, BodyError};
use crate::cli::{Serve, Transport};
use crate::door::{Door, Phase};
use crate::handshake;
use crate::management;
use crate::metrics::Listener;
use crate::pipeline::{self, Arrival};
use crate::refusal::{Refusal, Waiting};
use crate::reload::Reloader;
use crate::route;
use crate::session::pod::Uid;
use crate::wire::limits::WireLimits;
use crate::{session, sources, stdio};

/// Serves until a stop signal or, over stdio, the end of input.
pub async fn run(arguments: Serve) -> anyhow::Result<()> {
    let mut stop = Stop::new()?;
    let (door, pod) = (Door::new(random()?), arguments.pod());
    let door = Arc::new(match &pod {
        Some((pod, addresses)) => door.in_pod(*pod, addresses.first().map_or(port::PEER, SocketAddr::port)),
        None => door,
    });
    let mut reloader = Reloader::new(Arc::clone(&door), arguments.sources(), arguments.surroundings(), environment);
    if arguments.transport() == Transport::Stdio {
        reloader.try_reload()?;
        return stdio::run(&door, reloader, &arguments, &mut stop).await;
    }
    if arguments.config.is_some() {
        if let Some(keys) = &arguments.keys {
            anyhow::ensure!(keys.exists(), "--keys {}: there is no such file or directory", keys.display());
        }
        reloader.try_reload()?;
        reachable(&door)?;
    } else {
        // A pod is started before its files may be there, and waits for them.
        reloader.reload();
    }
    let public = bind(&arguments.public()).await?;
    let management = match arguments.management() {
        Some(addresses) => Some(bind(&addresses).await?),
        None => None,
    };
    let peers = match pod {
        Some((pod, addresses)) => Some((pod.uid, bind(&addresses).await?)),
        None => None,
    };
    let told = management.as_ref().map(TcpListener::local_addr).transpose()?.map(|address| address.to_string());
    tracing::info!(public = %public.local_addr()?, management = told, "listening");
    let listeners = Listeners { public, management, peers };
    serve_http(&door, reloader, listeners, &arguments, &mut stop).await
}

/// A person who starts a server that nobody can call is told at once.
fn reachable(door: &Door) -> anyhow::Result<()> {
    let anonymous = door.rules().is_some_and(|rules| rules.anonymous);
    anyhow::ensure!(
        anonymous || door.keys().len() > 0,
        "nobody could call this server: it has no keys. Put a random text of at least 32 characters (a UUID will do) into \
         the variable {}, or name a directory or file of keys with --keys, or write `security: {{anonymous: true}}` into \
         the configuration to serve everybody",
        sources::KEY_VARIABLE
    );
    Ok(())
}

/// The signals that ask a process to stop.
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Listens to them from now on.
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Resolves with the next one.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The sockets that are listened on.
struct Listeners {
    public: TcpListener,
    management: Option<TcpListener>,
    /// For other pods, with the uid of this one.
    peers: Option<(Uid, TcpListener)>,
}

async fn serve_http(
    door: &Arc<Door>,
    reloader: Reloader,
    Listeners { public, management, peers }: Listeners,
    arguments: &Serve,
    stop: &mut Stop,
) -> anyhow::Result<()> {
    let (tasks, connections) = (TaskTracker::new(), TaskTracker::new());
    let mut forever = vec![
        tasks.spawn(reloader.watch()),
        tasks.spawn(handshake::keep(Arc::clone(door))),
        tasks.spawn(session::expire(Arc::clone(door))),
        connections.spawn(serve_public(public, Arc::clone(door), connections.clone())),
    ];
    forever.extend(peers.map(|(uid, listener)| {
        connections.spawn(session::peer::serve(listener, uid, Arc::clone(door), connections.clone()))
    }));
    forever.extend(management.map(|listener| tasks.spawn(serve_management(listener, Arc::clone(door)))));

    tokio::select! {
        () = stop.asked() => {}
        // A front door that cannot be revoked or reached is none: the kubelet starts another.
        (ended, ..) = futures::future::select_all(forever) => anyhow::bail!("a task that runs forever has ended: {ended:?}"),
    }
    let linger = arguments.linger();
    tracing::info!(seconds = linger.as_secs_f64(), "stopping: not ready, serving on");
    door.enter(Phase::Leaving);
    tokio::select! {
        () = tokio::time::sleep(linger) => {}
        () = stop.asked() => {}
    }
    drained(door, stop).await;
    door.enter(Phase::Stopping);
    connections.close();
    door.calls.close();
    let drain = arguments.shutdown_timeout(door.rules().map(|rules| rules.call_timeout));
    tracing::info!(seconds = drain.as_secs_f64(), "stopping: waiting for running calls");
    tokio::select! {
        ((), ()) = futures::future::join(connections.wait(), door.calls.wait()) => tracing::info!("stopped"),
        () = tokio::time::sleep(drain) => tracing::warn!("stopped with calls still running"),
        () = stop.asked() => tracing::warn!("stopped at once"),
    }
    Ok(())
}

/// Lets sessions that other pods can reach live on for a while.
async fn drained(door: &Door, stop: &mut Stop) {
    let Some(rules) = door.rules().filter(|_| door.sessions.sealing().is_some()) else { return };
    door.enter(Phase::Draining);
    let (sessions, drain) = (door.sessions.seats.taken(), rules.sessions.drain);
    tracing::info!(sessions, seconds = drain.as_secs_f64(), "stopping: sessions live on");
    tokio::select! {
        () = door.sessions.seats.empty() => {}
        () = tokio::time::sleep(drain) => {}
        () = stop.asked() => {}
    }
}

/// The public listener.
pub async fn serve_public(listener: TcpListener, door: Arc<Door>, connections: TaskTracker) {
    let phases = door.phases();
    let rules = Arc::clone(&door);
    let rim = Rim {
        listener: Listener::PUBLIC,
        limits: Arc::new(move || rules.wire_limits()),
        metrics: Arc::clone(&door.metrics),
    };
    let handler = move |arrival, mut request: http::Request<Body>| {
        request.headers_mut().remove(session::peer::CLIENT); // only another pod may say it, and not here
        pipeline::answer(Arc::clone(&door), arrival, request)
    };
    accept::serve(listener, rim, phases, connections, handler).await;
}

/// The management listener; it answers until the process ends.
pub async fn serve_management(listener: TcpListener, door: Arc<Door>) {
    let rim = Rim {
        listener: Listener::MANAGEMENT,
        limits: Arc::new(WireLimits::management),
        metrics: Arc::clone(&door.metrics),
    };
    let router = management::router(door);
    let (_always, phases) = watch::channel(Phase::Serving);
    let handler = move |arrival: Arrival, request: http::Request<Body>| {
        let router = router.clone();
        async move {
            if let Some(fault) = arrival.fault {
                return Refusal::Wire(fault).into_response(&Waiting::Nobody);
            }
            if arrival.beyond && route::health(None, request.uri().path()).is_none() {
                return Refusal::Crowded.into_response(&Waiting::Nobody);
            }
            match router.oneshot(request.map(axum::body::Body::new)).await {
                Ok(response) => response.map(|body| body.map_err(|error| Box::new(error) as BodyError).boxed_unsync()),
                Err(never) => match never {},
            }
        }
    };
    accept::serve(listener, rim, phases, TaskTracker::new(), handler).await;
}

async fn bind(addresses: &[SocketAddr]) -> anyhow::Result<TcpListener> {
    TcpListener::bind(addresses).await.with_context(|| format!("cannot listen on {addresses:?}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the rim: variables of declared tools' headers, named by the configuration"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[expect(clippy::disallowed_methods, reason = "the rim: randomness for request ids")]
fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}
