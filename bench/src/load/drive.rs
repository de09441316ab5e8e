//! Drives one server with many connections and a fixed number of requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::connection::{Connection, connector};
use super::usage::cpu_time;

/// The load comes from this many threads, each with its share of the connections.
const THREADS: usize = 2;

/// A server under load.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    /// The bearer token of requests.
    pub token: String,
    /// The processes whose CPU time is measured.
    pub processes: Vec<u32>,
}

impl Target {
    pub fn request(&self, method: &str, path: &str, more: &str, body: &str) -> Vec<u8> {
        let length = match body {
            "" => String::new(),
            _ => format!(
                "content-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            ),
        };
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: application/json\r\n{more}{length}\r\n{body}",
            self.address, self.token
        )
        .into_bytes()
    }
}

/// The request of each number.
pub type Requests = Arc<dyn Fn(usize) -> Arc<[u8]> + Send + Sync>;

pub fn same(request: Vec<u8>) -> Requests {
    let request: Arc<[u8]> = request.into();
    Arc::new(move |_| request.clone())
}

#[derive(Clone)]
pub struct Load {
    pub connections: usize,
    pub count: usize,
    pub requests: Requests,
    /// The expected status code.
    pub code: u16,
}

#[derive(Clone, Debug)]
pub struct LoadOutcome {
    pub per_second: f64,
    pub p99: Duration,
    /// CPU time of the server for one request.
    pub cpu: Duration,
    pub bytes_each: usize,
}

/// Opens the connections, then times the requests.
pub fn drive(target: &Target, load: &Load) -> Result<LoadOutcome> {
    let next = Arc::new(AtomicUsize::new(0));
    let start = Arc::new(Barrier::new(THREADS + 1));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (target, load) = (target.clone(), load.clone());
            let (next, start) = (next.clone(), start.clone());
            let share = (load.connections + thread) / THREADS;
            std::thread::spawn(move || run_thread(&target, &load, share, &next, &start))
        })
        .collect();
    start.wait();
    let (began, cpu) = (Instant::now(), cpu_time(&target.processes));
    let mut times = Vec::with_capacity(load.count);
    let mut bytes = 0;
    let mut problem = None;
    for thread in threads {
        match thread.join().ok().context("a thread ended")? {
            Ok((more, received)) => {
                times.extend(more);
                bytes += received;
            }
            Err(other) => problem = Some(other),
        }
    }
    if let Some(problem) = problem {
        return Err(problem);
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu_time(&target.processes).saturating_sub(cpu);
    ensure!(times.len() == load.count, "requests were lost");
    times.sort_unstable();
    Ok(LoadOutcome {
        per_second: times.len() as f64 / seconds,
        p99: times[times.len() * 99 / 100],
        cpu: cpu / times.len() as u32,
        bytes_each: bytes / times.len(),
    })
}

fn run_thread(
    target: &Target,
    load: &Load,
    connections: usize,
    next: &AtomicUsize,
    start: &Barrier,
) -> Result<(Vec<Duration>, usize)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let opened = runtime.block_on(open(target, connections));
    // A thread that fails waits at the barrier too, because the others wait for it there.
    start.wait();
    runtime.block_on(async {
        let work = opened?.into_iter().map(|mut connection| async move {
            let (mut times, mut bytes) = (Vec::new(), 0);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= load.count {
                    return anyhow::Ok((times, bytes));
                }
                let request = (load.requests)(number);
                let began = Instant::now();
                let answer = connection.exchange(&request).await?;
                times.push(began.elapsed());
                bytes += answer.bytes;
                ensure!(answer.code == load.code, "answered {}", answer.code);
            }
        });
        let mut all = (Vec::new(), 0);
        for result in futures::future::join_all(work).await {
            let (times, bytes) = result?;
            all.0.extend(times);
            all.1 += bytes;
        }
        Ok(all)
    })
}

async fn open(target: &Target, connections: usize) -> Result<Vec<Connection>> {
    let tls: TlsConnector = connector()?;
    let mut opened = Vec::with_capacity(connections);
    for _ in 0..connections {
        opened.push(Connection::open(target.address, &tls).await?);
    }
    Ok(opened)
}
