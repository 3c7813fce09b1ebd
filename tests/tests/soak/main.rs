//! The front door under mixed traffic for long: it keeps nothing of what is over.

mod abort;
mod backend;
mod connection;
mod huge;
mod traffic;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mooring_tests::command;
use mooring_tests::front_door_process::{FrontDoorProcess, config, http};
use mooring_tests::process::{PATIENCE, Usage, free_port};
use mooring_tests::soak;
use mooring_tests::wait::until;
use tokio::time::Instant;

use backend::Backend;
use connection::call;
use traffic::{BODY_MAXIMUM, Clients};

/// Clients at once.
const CLIENTS: usize = 24;
/// Most that memory grows from the end of the first round to that of the second, in percent.
const GROWTH: u64 = 5;
/// How long a rest is looked at, for its least.
const REST: Duration = Duration::from_secs(5);

/// What the front door says that it has.
const GAUGES: [(&str, &str); 5] = [
    ("mooring_server_connections", "public"),
    ("mooring_server_in_flight", ""),
    ("mooring_server_body_bytes", ""),
    ("mooring_server_event_streams", ""),
    ("mooring_server_sessions", ""),
];

/// What it uses, and how many tasks it has.
#[derive(Debug)]
struct Kept {
    usage: Usage,
    tasks: f64,
}

impl Kept {
    async fn now(door: &FrontDoorProcess) -> Result<Self> {
        Ok(Self { usage: door.usage()?, tasks: door.metric("mooring_server_tasks", "").await? })
    }
}

/// The least of it while nothing is asked: now and then it looks at the server behind it, and at its files.
async fn at_rest(door: &FrontDoorProcess) -> Result<Kept> {
    let mut least = Kept::now(door).await?;
    let end = Instant::now() + REST;
    while Instant::now() < end {
        let Kept { usage, tasks } = Kept::now(door).await?;
        least.usage.descriptors = least.usage.descriptors.min(usage.descriptors);
        least.usage.threads = least.usage.threads.min(usage.threads);
        least.tasks = least.tasks.min(tasks);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(least)
}

/// Waits until it has no more than it had.
async fn back_to(door: &FrontDoorProcess, before: &Kept) -> Result<Kept> {
    until("the front door to let go of everything", PATIENCE, || async {
        let now = Kept::now(door).await?;
        let (usage, least) = (&now.usage, &before.usage);
        let is_back =
            usage.descriptors <= least.descriptors && usage.threads <= least.threads && now.tasks <= before.tasks;
        ensure!(is_back, "{now:?}, before {before:?}");
        for (name, labels) in GAUGES {
            let left = door.metric(name, labels).await?;
            ensure!(left < 0.5, "{name} is {left}");
        }
        Ok(now)
    })
    .await
}

/// What it says of exchanges that failed: answers of its own and the server's, and those for which the server is to blame.
async fn failures(door: &FrontDoorProcess) -> Result<[f64; 2]> {
    Ok([
        door.metric("mooring_server_requests_total", "5xx").await?,
        door.metric("mooring_server_backend_errors_total", "").await?,
    ])
}

fn show(what: &str, Kept { usage, tasks }: &Kept) {
    let Usage { resident_kib, descriptors, threads, cpu_seconds, .. } = usage;
    println!(
        "{what}: {resident_kib} KiB, {descriptors} descriptors, {threads} threads, {tasks} tasks, {cpu_seconds:.0} s of CPU"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_kept_of_what_is_over() -> Result<()> {
    let backend = Backend::start().await?;
    // One call fails before all others, so that it is seen that failures are counted.
    let mut config = config(&http(free_port()?));
    config["limits"]["bodyBytes"] = BODY_MAXIMUM.into();
    let door = FrontDoorProcess::start(&config).await?;
    let failed = door.target().send("POST", call(1, false, 0).to_string()).await?;
    assert!(failed.status.is_server_error(), "{}: {}", failed.status, failed.text());
    config["source"] = http(backend.port());
    door.configure(&config)?;
    door.ready().await?;
    let failed = failures(&door).await?;
    assert!(failed.iter().all(|count| *count > 0.5), "{failed:?}");
    let before = at_rest(&door).await?;
    show("at rest", &before);

    let clients = Clients::new(door.target());
    let mut resident = Vec::new();
    for round in 1..=2 {
        let traffic = clients.run(CLIENTS, Instant::now() + soak::time()? / 2).await;
        traffic.with_context(|| command::tail(&door.log_text(), 20))?;
        show(&format!("at the end of round {round}"), &Kept::now(&door).await?);
        let after = back_to(&door, &before).await?;
        show("afterwards", &after);
        resident.push(after.usage.resident_kib);
        let (acts, aborts) = clients.done();
        println!("{acts} acts so far, {aborts} of them aborts");
    }
    let (answered, others) = (door.metric("mooring_server_requests_total", "2xx").await?, failures(&door).await?);
    let none_more = others.iter().zip(failed).all(|(now, before)| now - before < 0.5);
    assert!(answered > 0.5 && none_more, "{answered}, {others:?}\n{}", command::tail(&door.log_text(), 20));
    assert!(resident[1] * 100 <= resident[0] * (100 + GROWTH), "memory grows: {resident:?} KiB");
    Ok(())
}
