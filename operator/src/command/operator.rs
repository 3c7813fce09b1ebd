//! `mooring operator`: from start to stop, in order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use kube::client::ClientBuilder;
use mooring_plan::Settings;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::apply::Writer;
use crate::cli;
use crate::dispatch::Dispatcher;
use crate::fence::Fence;
use crate::lease::Election;
use crate::listener::{self, Phase, Progress};
use crate::metrics::Metrics;
use crate::observe::{Observer, cluster};
use crate::publish::Publisher;
use crate::reconcile::Reconciler;
use crate::refresh::Refresher;
use crate::turns::Turns;
use crate::watch::{Waker, Watches};
use crate::world::{Wake, World};
use crate::{random, telemetry};

/// Longest wait for passes that were begun, when stopping.
const DRAIN: Duration = Duration::from_secs(20);
/// Pause before the API server is asked again whether it is there.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Runs until a signal, or until the Lease is lost.
pub async fn run(arguments: cli::Operator) -> anyhow::Result<()> {
    telemetry::start(arguments.log_format, &arguments.log_level).context("--log-level is not understood")?;
    let (progress, metrics) = (Progress::default(), Arc::new(Metrics::default()));
    let (stop, stop_listening) = (CancellationToken::new(), CancellationToken::new());
    let listening = TaskTracker::new();
    listen(&arguments, &progress, &metrics, &listening, stop_listening.clone()).await?;
    let signals = TaskTracker::new();
    await_signal(&signals, stop.clone())?;

    let worked = work(&arguments, &progress, &metrics, &stop).await;
    progress.set(Phase::Stopping);
    stop_listening.cancel();
    listening.close();
    listening.wait().await;
    tracing::info!("stopped");
    worked
}

async fn listen(
    arguments: &cli::Operator,
    progress: &Progress,
    metrics: &Arc<Metrics>,
    tasks: &TaskTracker,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let address = arguments.listen;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let router = listener::router(progress.clone(), Arc::clone(metrics));
    tasks.spawn(async move {
        // Scrapers keep connections open: a stop does not wait for them.
        let serve = axum::serve(listener, router).into_future();
        if let Some(Err(error)) = stop.run_until_cancelled(serve).await {
            tracing::error!(%error, "the listener failed");
        }
    });
    Ok(())
}

fn await_signal(tasks: &TaskTracker, stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    tasks.spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
            _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        }
        stop.cancel();
    });
    Ok(())
}

/// From the first look at the cluster to the last pass. A stop in between is no error.
async fn work(
    arguments: &cli::Operator,
    progress: &Progress,
    metrics: &Arc<Metrics>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let config = super::kubeconfig::config(arguments.kubeconfig.as_deref()).await?;
    let client = Client::try_from(config.clone()).context("cannot make a client of the configuration")?;
    let fence = Fence::default();
    let fenced = ClientBuilder::try_from(config).context("cannot make a client of the configuration")?;
    let fenced = fenced.with_layer(&fence).build();
    let scope = arguments.scope();

    let Some(assigns_users) = stop.run_until_cancelled(check(&client)).await else { return Ok(()) };
    let settings = Settings { cluster_assigns_users: assigns_users?, ..arguments.shape.settings() };
    progress.set(Phase::Undefined);
    if stop.run_until_cancelled(cluster::await_definition(&client, &scope)).await.is_none() {
        return Ok(());
    }

    let instance = match &arguments.instance {
        Some(instance) => instance.clone(),
        None => instance_name().await?,
    };
    if !arguments.leader_elect {
        let lost = std::future::pending::<&'static str>();
        return lead(arguments, settings, fenced, progress, metrics, instance, stop, lost).await;
    }
    progress.set(Phase::Waiting);
    let namespace = arguments.lease_namespace.clone().filter(|name| !name.is_empty());
    let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let election = Election::new(client.clone(), &namespace, &arguments.lease_name, &instance);
    let Some(since) = stop.run_until_cancelled(election.acquire()).await else { return Ok(()) };
    let lost = election.keep(since, &fence);
    let worked = lead(arguments, settings, fenced, progress, metrics, instance, stop, lost).await;
    fence.close();
    election.release().await;
    worked
}

/// Waits for the API server; refuses one that is too old.
async fn check(client: &Client) -> anyhow::Result<bool> {
    loop {
        match cluster::check(client).await {
            Ok(assigns_users) => return Ok(assigns_users),
            Err(error @ cluster::ClusterError::TooOld(_)) => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "the operator waits for the API server, not ready"),
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Works until a stop, or until `lost` tells that this process leads no more: then it ends at once.
#[expect(clippy::too_many_arguments, reason = "called from one place, with what that place made")]
async fn lead(
    arguments: &cli::Operator,
    settings: Settings,
    client: Client,
    progress: &Progress,
    metrics: &Arc<Metrics>,
    instance: String,
    stop: &CancellationToken,
    lost: impl Future<Output = &'static str>,
) -> anyhow::Result<()> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), scope = ?arguments.scope(), instance, "this operator leads");
    progress.set(Phase::Syncing);
    metrics.leads(true);
    let (watching, passes) = (TaskTracker::new(), TaskTracker::new());
    let working = async {
        let stopped = serve(arguments, settings, client, progress, metrics, instance, stop, &watching, &passes);
        stopped.await;
        progress.set(Phase::Stopping);
        passes.close();
        watching.close();
        if tokio::time::timeout(DRAIN, passes.wait()).await.is_err() {
            tracing::warn!("passes that were begun are left; the next leader does them again");
        }
        watching.wait().await;
    };
    let result = tokio::select! {
        () = working => Ok(()),
        why = lost => Err(anyhow::anyhow!("{why}: this operator ends, so that two never work at a time")),
    };
    metrics.leads(false);
    result
}

/// Puts the parts together, waits for the first lists, and works until the stop.
#[expect(clippy::too_many_arguments, reason = "called from one place, with what that place made")]
async fn serve(
    arguments: &cli::Operator,
    settings: Settings,
    client: Client,
    progress: &Progress,
    metrics: &Arc<Metrics>,
    instance: String,
    stop: &CancellationToken,
    watching: &TaskTracker,
    passes: &TaskTracker,
) {
    let world = Arc::new(World::new(settings));
    let turns = Arc::new(Turns::new(arguments.upgrade_parallelism.into()));
    let dispatcher = Arc::new(Dispatcher::new(
        Arc::clone(&world),
        Arc::clone(&turns),
        Arc::clone(metrics),
        arguments.concurrency.into(),
    ));
    let waker: Waker = {
        let dispatcher = Arc::clone(&dispatcher);
        Arc::new(move |wakes: Vec<Wake>| dispatcher.wake(wakes))
    };
    let watches = Watches {
        client: client.clone(),
        scope: arguments.scope(),
        world: Arc::clone(&world),
        waker: Arc::clone(&waker),
        tasks: watching.clone(),
        stop: stop.clone(),
    };
    if stop.run_until_cancelled(watches.start()).await.is_none() {
        return;
    }
    let observer = Observer::new(client.clone(), Arc::clone(&world), turns);
    let refresher =
        Refresher::new(client.clone(), Arc::clone(&world), Arc::clone(metrics), waker, watching.clone(), stop.clone());
    let reconciler = Reconciler {
        observer: observer.clone(),
        writer: Writer::new(client.clone(), Arc::clone(&world), Arc::clone(metrics), observer),
        publisher: Publisher::new(client, Arc::clone(&world), Arc::clone(metrics), instance),
        refresher,
        world: Arc::clone(&world),
    };
    metrics.servers(world.server_count());
    progress.set(Phase::Working);
    tracing::info!(servers = world.server_count(), "the cluster is read; work begins");
    dispatcher.run(reconciler, passes, stop).await;
}

/// The host name, which in a pod is the pod's, and a random part, so that no two processes share a name.
async fn instance_name() -> anyhow::Result<String> {
    let host = tokio::fs::read_to_string("/proc/sys/kernel/hostname").await.unwrap_or_else(|_| "mooring".to_owned());
    let part = mooring_contract::key::base62(&random::bytes::<8>()?, 11);
    Ok(format!("{}-{part}", host.trim()))
}
