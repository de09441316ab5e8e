//! Many watchers: the latency of events, whether each watcher gets exactly its own events, and the
//! cost of an event for the server.

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use environment::Environment;
use tokio::time::Instant;

use super::connection::{Connection, connector};
use super::drive::Target;
use super::{OTHER_PARTS, Server, cpu_time, memory};

/// Watchers are spread over this many threads.
const THREADS: usize = 2;
/// Connections that write.
const WRITERS: usize = 8;
/// The longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(60);
const MARK: &[u8] = b"\"sent\":\"";

/// The written objects and the watches.
#[derive(Clone, Copy)]
enum Scene {
    /// All watchers watch the same ConfigMaps.
    Shared,
    /// Every watcher has a node of its own and watches its pods.
    OwnNode,
}

struct Plan {
    scene: Scene,
    watchers: usize,
    writes: usize,
    per_second: usize,
}

pub async fn run(binary: &Path) -> Result<()> {
    for plan in [
        Plan {
            scene: Scene::Shared,
            watchers: 1000,
            writes: 500,
            per_second: 100,
        },
        Plan {
            scene: Scene::OwnNode,
            watchers: 500,
            writes: 5000,
            per_second: 1000,
        },
        Plan {
            scene: Scene::OwnNode,
            watchers: 5000,
            writes: 5000,
            per_second: 1000,
        },
    ] {
        let server = Server::coracle(binary, OTHER_PARTS).await?;
        measure(&server.target, &plan).await?;
    }
    Ok(())
}

async fn measure(target: &Target, plan: &Plan) -> Result<()> {
    let began = Arc::new(Barrier::new(THREADS + 1));
    let before = memory(&target.processes);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (target, began, scene) = (target.clone(), began.clone(), plan.scene);
            let share: Vec<usize> = (thread..plan.watchers).step_by(THREADS).collect();
            let expected: Vec<usize> = share.iter().map(|watcher| plan.events(*watcher)).collect();
            std::thread::spawn(move || watch_all(&target, scene, &share, &expected, &began))
        })
        .collect();
    // This blocks the thread, which has nothing else to do.
    began.wait();
    let held = memory(&target.processes);
    let visits = visits(target).await?;
    let (start, cpu) = (Instant::now(), cpu_time(&target.processes));
    write_all(target, plan).await?;
    let seconds = start.elapsed().as_secs_f64();
    let mut late = Vec::new();
    for thread in threads {
        late.extend(thread.join().ok().context("a thread ended")??);
    }
    let cpu = cpu_time(&target.processes).saturating_sub(cpu);
    let visits = visits_since(target, visits).await?;
    late.sort_unstable();
    let at = |part: usize| late[(late.len() - 1) * part / 1000] as f64 / 1000.0;
    println!(
        "{} watchers {}: {:.0} writes/s, {} events, each to whom it concerns and nobody else; p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms; \
         CPU of the server per write {:.0} µs, watchers visited per write {:.2}; {:.1} MB before, {:.1} MB with the watchers",
        plan.watchers,
        match plan.scene {
            Scene::Shared => "of one kind",
            Scene::OwnNode => "each of its own node's pods",
        },
        plan.writes as f64 / seconds,
        late.len(),
        at(500),
        at(990),
        at(999),
        cpu.as_secs_f64() * 1e6 / plan.writes as f64,
        visits as f64 / plan.writes as f64,
        before,
        held,
    );
    Ok(())
}

impl Plan {
    /// The number of events that `watcher` must receive.
    fn events(&self, watcher: usize) -> usize {
        match self.scene {
            Scene::Shared => self.writes,
            Scene::OwnNode => (watcher..self.writes).step_by(self.watchers).count(),
        }
    }
}

fn watch_all(
    target: &Target,
    scene: Scene,
    watchers: &[usize],
    expected: &[usize],
    began: &Barrier,
) -> Result<Vec<u32>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let opened = runtime.block_on(async {
        let tls = connector()?;
        let mut opened = Vec::with_capacity(watchers.len());
        for watcher in watchers {
            let path = match scene {
                Scene::Shared => "/api/v1/namespaces/bench-watch/configmaps?watch=true".to_string(),
                Scene::OwnNode => {
                    format!("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dnode-{watcher}")
                }
            };
            let mut connection = Connection::open_small(target.address, &tls).await?;
            let code = connection
                .begin(&target.request("GET", &path, "", ""))
                .await?;
            ensure!(code == 200, "a watch answered {code}");
            opened.push(connection);
        }
        anyhow::Ok(opened)
    });
    began.wait();
    let environment = Environment::system();
    runtime.block_on(async {
        let watching = opened?.into_iter().zip(watchers).zip(expected).map(
            |((connection, watcher), expected)| {
                let own = match scene {
                    Scene::Shared => None,
                    Scene::OwnNode => Some(format!("\"nodeName\":\"node-{watcher}\"")),
                };
                receive(connection, own, *expected, &environment)
            },
        );
        let mut late = Vec::new();
        for times in futures::future::join_all(watching).await {
            late.extend(times?);
        }
        Ok(late)
    })
}

/// Receives exactly `expected` events. Returns the latency of each in microseconds.
async fn receive(
    mut connection: Connection,
    own: Option<String>,
    expected: usize,
    environment: &Environment,
) -> Result<Vec<u32>> {
    let mut late = Vec::with_capacity(expected);
    let mut line = Vec::new();
    while late.len() < expected {
        let data = tokio::time::timeout(PATIENCE, connection.data()).await;
        let data = data.context("an event did not come")??;
        let data = connection.bytes(data.context("a watch ended")?);
        let now = environment.now_micros();
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                if let Some(own) = &own {
                    ensure!(find(&line, own.as_bytes()).is_some(), "a stranger's event");
                }
                let sent = sent(&line).context("an event without its time")?;
                late.push((now - sent).clamp(0, u32::MAX.into()) as u32);
                line.clear();
            }
        }
    }
    Ok(late)
}

fn sent(line: &[u8]) -> Option<i64> {
    let digits = &line[find(line, MARK)? + MARK.len()..];
    let end = digits.iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| *byte == first) {
        if text[from + at..].starts_with(wanted) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

/// Writes at a constant rate.
async fn write_all(target: &Target, plan: &Plan) -> Result<()> {
    let environment = Environment::system();
    let tls = connector()?;
    let start = Instant::now();
    let writers = (0..WRITERS).map(|writer| {
        let (environment, tls) = (environment.clone(), tls.clone());
        async move {
            let mut connection = Connection::open(target.address, &tls).await?;
            for number in (writer..plan.writes).step_by(WRITERS) {
                let due = Duration::from_secs_f64(number as f64 / plan.per_second as f64);
                tokio::time::sleep_until(start + due).await;
                let request = plan.write(target, number, environment.now_micros());
                let answer = connection.exchange(&request).await?;
                ensure!(answer.code == 201, "a write answered {}", answer.code);
            }
            anyhow::Ok(())
        }
    });
    futures::future::try_join_all(writers).await?;
    Ok(())
}

impl Plan {
    fn write(&self, target: &Target, number: usize, now: i64) -> Vec<u8> {
        let base = "/api/v1/namespaces/bench-watch";
        match self.scene {
            Scene::Shared => {
                let text = "x".repeat(900);
                let body = format!(
                    r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"map-{number}"}},"data":{{"sent":"{now}","text":"{text}"}}}}"#
                );
                target.request("POST", &format!("{base}/configmaps"), "", &body)
            }
            Scene::OwnNode => {
                let node = number % self.watchers;
                let body = format!(
                    r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{number}","annotations":{{"sent":"{now}"}}}},"spec":{{"nodeName":"node-{node}","automountServiceAccountToken":false,"containers":[{{"name":"c","image":"image"}}]}}}}"#
                );
                target.request("POST", &format!("{base}/pods"), "", &body)
            }
        }
    }
}

/// The number of watchers that the server has visited to deliver events so far.
async fn visits(target: &Target) -> Result<u64> {
    let mut connection = Connection::open(target.address, &connector()?).await?;
    let request = target.request("GET", "/metrics", "", "");
    let (code, body) = connection.fetch(&request).await?;
    ensure!(code == 200, "/metrics answered {code}");
    let text = String::from_utf8(body)?;
    let lines = text.lines();
    let visits = lines.filter_map(|line| line.strip_prefix("coracle_watch_visits_total "));
    Ok(visits
        .filter_map(|number| number.trim().parse::<u64>().ok())
        .sum())
}

async fn visits_since(target: &Target, before: u64) -> Result<u64> {
    Ok(visits(target).await?.saturating_sub(before))
}
