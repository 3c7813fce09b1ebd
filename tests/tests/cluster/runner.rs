//! Runs the scenarios on one cluster: side by side where they have a namespace each and disturb nobody, alone where they
//! measure or change what all share. It speaks like Rust's own test runner, takes its name filters, and goes on after a
//! failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use mooring_tests::Cluster;
use mooring_tests::cluster::somebody_elses;
use mooring_tests::left_out::left_out;

use crate::room::Room;
use crate::world::World;

/// Scenarios at once: each waits for pods most of the time.
const AT_ONCE: usize = 5;
/// Longest time for one scenario.
const LIMIT: Duration = Duration::from_secs(240);

/// What a scenario shares the cluster with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Others run at the same time.
    Together,
    /// Nothing else runs: it measures time, or stops what all need.
    Alone,
}

/// Whose cluster will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// Any.
    Any,
    /// The harness's own, and why.
    Own(&'static str),
}

/// One scenario.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) company: Company,
    pub(crate) on: On,
    pub(crate) run: fn(Room) -> BoxFuture<'static, Result<()>>,
}

impl Scenario {
    /// Its namespace: the last part of its name.
    fn namespace(&self) -> String {
        self.name.rsplit("::").next().unwrap_or_default().replace('_', "-")
    }
}

/// What was asked for on the command line.
#[derive(Default)]
struct Arguments {
    list: bool,
    exact: bool,
    filters: Vec<String>,
    skip: Vec<String>,
}

impl Arguments {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut read = Self::default();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => read.list = true,
                "--exact" => read.exact = true,
                "--skip" => read.skip.push(arguments.next().context("--skip names a scenario")?),
                // Of cargo's runner; what they ask for is so here anyway.
                "--nocapture" | "--no-capture" | "--show-output" | "--quiet" | "-q" => {}
                "--test-threads" | "--color" | "--format" => drop(arguments.next()),
                flag if flag.starts_with("--test-threads=") || flag.starts_with("--color=") => {}
                flag if flag.starts_with('-') => bail!("unknown argument {flag}"),
                _ => read.filters.push(argument),
            }
        }
        Ok(read)
    }

    fn wants(&self, scenario: &Scenario) -> bool {
        let fits = |text: &String| if self.exact { scenario.name == text } else { scenario.name.contains(text) };
        (self.filters.is_empty() || self.filters.iter().any(fits)) && !self.skip.iter().any(fits)
    }
}

/// Runs what the command line asks for. The answer is whether all passed.
pub(crate) async fn run(all: &[Scenario]) -> Result<bool> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    let wanted: Vec<Scenario> = all.iter().copied().filter(|scenario| arguments.wants(scenario)).collect();
    if arguments.list {
        for scenario in &wanted {
            println!("{}: test", scenario.name);
        }
        println!("\n{} tests, 0 benchmarks", wanted.len());
        return Ok(true);
    }
    let external = somebody_elses()?.is_some();
    let (wanted, elsewhere): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|scenario| !external || scenario.on == On::Any);
    for scenario in &elsewhere {
        if let On::Own(why) = scenario.on {
            left_out(&format!("cluster {}", scenario.name), why)?;
        }
    }
    println!("\nrunning {} tests", wanted.len());
    let start = Instant::now();
    let (mut failures, mut ended) = (BTreeMap::new(), Ok(()));
    if !wanted.is_empty() {
        let world = Arc::new(World::start().await?);
        let (together, alone): (Vec<Scenario>, Vec<Scenario>) =
            wanted.iter().copied().partition(|scenario| scenario.company == Company::Together);
        for (scenarios, at_once) in [(together, AT_ONCE), (alone, 1)] {
            let running = scenarios.into_iter().map(|scenario| one(&world, scenario));
            let mut outcomes = futures::stream::iter(running).buffer_unordered(at_once);
            while let Some((name, outcome)) = outcomes.next().await {
                if let Err(error) = outcome {
                    failures.insert(name, error);
                }
            }
        }
        if !failures.is_empty() {
            println!("\nthe operator's log ends with\n{}", world.operator_log().await);
        }
        print_figures(&world);
        let world = Arc::into_inner(world).context("a scenario still holds the cluster")?;
        ended = world.stop().await;
    }
    if !failures.is_empty() {
        println!("\nfailures:\n");
        for (name, error) in &failures {
            println!("---- {name} ----\n{error}\n");
        }
        println!("failures:");
        for name in failures.keys() {
            println!("    {name}");
        }
    }
    let verdict = if failures.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        wanted.len() - failures.len(),
        failures.len(),
        all.len() - wanted.len(),
        start.elapsed().as_secs_f64()
    );
    ended?;
    Ok(failures.is_empty())
}

/// Runs one scenario in a namespace of its own; a failure brings along what the namespace looks like.
async fn one(world: &Arc<World>, scenario: Scenario) -> (&'static str, Result<(), String>) {
    let start = Instant::now();
    let outcome = in_a_room(world, scenario).await;
    let took = start.elapsed().as_secs_f64();
    match &outcome {
        Ok(()) => println!("test {} ... ok ({took:.1} s)", scenario.name),
        // All of it stands at the end, which a run that is stopped does not see.
        Err(error) => {
            let cause = error.lines().next().unwrap_or_default();
            println!("test {} ... FAILED ({took:.1} s): {cause}", scenario.name);
        }
    }
    (scenario.name, outcome)
}

async fn in_a_room(world: &Arc<World>, scenario: Scenario) -> Result<(), String> {
    let room = Room::make(world, &scenario.namespace()).await.map_err(|error| format!("{error:#}"))?;
    // A task of its own, so that a panic is a failure like any other.
    let run = tokio::spawn(tokio::time::timeout(LIMIT, (scenario.run)(room.clone())));
    let outcome = match run.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(anyhow!("it took longer than {} s", LIMIT.as_secs())),
        Err(panicked) => Err(anyhow!("it panicked: {panicked}")),
    };
    let outcome = match outcome {
        Ok(()) => Ok(()),
        Err(error) => Err(format!("{error:#}\n\n{}", room.describe().await)),
    };
    room.leave().await;
    outcome
}

fn print_figures(world: &World) {
    let figures = world.figures();
    if figures.is_empty() {
        return;
    }
    let width = figures.iter().map(|(what, _)| what.len()).max().unwrap_or_default();
    println!("\nfigures:");
    for (what, value) in &figures {
        println!("    {what:<width$}  {value}");
    }
    if matches!(world.cluster, Cluster::Local(_)) {
        println!();
    }
}
