//! `make bench`: start-up, pod latency, API throughput, watch fan-out, scheduling and memory of the release
//! binary, measured from outside as a user sees them. Prints figures, and asserts only that every
//! response was correct.

mod cluster;
mod custom;
mod load;
mod memory;
mod pods;
mod runtime;
mod schedule;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use cluster::Cluster;
use environment::Environment;

const STARTS: usize = 5;
const SEQUENTIAL_PODS: usize = 40;
const PODS_AT_ONCE: usize = 50;
/// The number of measurements.
const BURSTS: usize = 5;
const SOAK_BATCH: usize = 25;

const USAGE: &str = "usage: bench BINARY IMAGE.tar [pods | load | watch | schedule | custom [DIRECTORY] | runtime PAUSE.tar | soak N] [--kube-apiserver FILE]";

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let upstream = arguments.iter().position(|text| text == "--kube-apiserver");
    let upstream = upstream.map(|at| arguments.split_off(at));
    let upstream = upstream.and_then(|rest| rest.get(1).map(PathBuf::from));
    let binary: PathBuf = arguments.first().context(USAGE)?.into();
    let image: PathBuf = arguments.get(1).context(USAGE)?.into();
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    tokio.block_on(async {
        match arguments.get(2).map(String::as_str) {
            Some("soak") => {
                let pods = arguments.get(3).map_or(Ok(1000), |text| text.parse())?;
                soak(binary, image, pods).await
            }
            Some("pods") => bench(binary, image).await,
            Some("load") => load::run(&binary, upstream.as_deref()).await,
            Some("runtime") => {
                let pause: PathBuf = arguments.get(3).context(USAGE)?.into();
                runtime::bench(&binary, &image, &pause).await
            }
            Some("watch") => load::watchers::run(&binary).await,
            Some("custom") => {
                let real = arguments.get(3).map(PathBuf::from);
                custom::run(&binary, upstream.as_deref(), real.as_deref()).await
            }
            Some("schedule") => schedule::run(&binary, upstream.as_deref()).await,
            Some(_) => anyhow::bail!(USAGE),
            None => {
                bench(binary.clone(), image).await?;
                load::run(&binary, upstream.as_deref()).await?;
                load::watchers::run(&binary).await?;
                schedule::run(&binary, upstream.as_deref()).await
            }
        }
    })
}

async fn bench(binary: PathBuf, image: PathBuf) -> Result<()> {
    let environment = Environment::system();
    let (mut ready, mut usable) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let cluster = Cluster::prepare(&binary, &image)?;
        let times = cluster.start(&environment).await?;
        ready.push(times.ready_ms);
        usable.push(times.usable_ms);
    }
    println!(
        "start to /readyz               {}",
        spread(&mut ready, "ms")
    );
    println!(
        "start to a pod can be applied  {}",
        spread(&mut usable, "ms")
    );

    let cluster = Cluster::prepare(&binary, &image)?;
    cluster.start(&environment).await?;
    let client = cluster.client().await?;
    let bytes = std::fs::metadata(&binary)?.len();
    println!(
        "binary                         {:.1} MB",
        bytes as f64 / 1e6
    );
    println!("memory, no pod                 {}", memory::of(&cluster)?);
    pods::run_one(&client, "idle").await?;
    println!("memory, one idle pod           {}", memory::of(&cluster)?);

    let mut times = Vec::new();
    for number in 0..SEQUENTIAL_PODS {
        times.push(pods::create_to_ready(&client, &format!("seq-{number}"), &environment).await?);
    }
    println!(
        "pod, create to Ready           {}",
        spread(&mut times, "ms")
    );
    pods::print_steps(&client, SEQUENTIAL_PODS).await?;
    pods::delete_all(&client).await?;

    let mut rates = Vec::new();
    let mut filled = String::new();
    for _ in 0..BURSTS {
        pods_are_gone(&cluster).await?;
        let seconds = pods::create_at_once(&client, PODS_AT_ONCE, &environment).await?;
        rates.push(PODS_AT_ONCE as f64 / seconds);
        filled = memory::of(&cluster)?;
        pods::delete_all(&client).await?;
    }
    println!(
        "{PODS_AT_ONCE} pods at once                {}",
        spread(&mut rates, "pods/s")
    );
    println!("memory, {PODS_AT_ONCE} pods               {filled}");
    Ok(())
}

/// Waits until the processes of deleted pods have ended: the API server removes a pod with grace
/// period 0 at once, and the next measurement should not be disturbed by its processes.
async fn pods_are_gone(cluster: &Cluster) -> Result<()> {
    let data_dir = cluster.data_dir().display().to_string();
    for _ in 0..600 {
        let processes = memory::processes_of(&data_dir)?;
        if !processes.iter().any(|process| process.kind == "shim") {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    bail!("pods are still there a minute after they were deleted")
}

/// Starts and stops pods in batches and prints the memory of the processes, which must not grow.
async fn soak(binary: PathBuf, image: PathBuf, total: usize) -> Result<()> {
    let environment = Environment::system();
    let cluster = Cluster::prepare(&binary, &image)?;
    cluster.start(&environment).await?;
    let client = cluster.client().await?;
    let mut done = 0;
    while done < total {
        let batch = SOAK_BATCH.min(total - done);
        let seconds = pods::create_at_once(&client, batch, &environment).await?;
        pods::delete_all(&client).await?;
        done += batch;
        println!(
            "{done} pods, last batch {seconds:.2} s, {}",
            memory::of(&cluster)?
        );
    }
    cluster.expect_no_leftovers()
}

/// Median, 99th percentile and extremes.
fn spread(values: &mut [f64], unit: &str) -> String {
    values.sort_by(f64::total_cmp);
    let at = |fraction: f64| values[((values.len() - 1) as f64 * fraction).round() as usize];
    format!(
        "p50 {:.0} {unit}, p99 {:.0} {unit} (min {:.0}, max {:.0}, n={})",
        at(0.5),
        at(0.99),
        at(0.0),
        at(1.0),
        values.len()
    )
}
