//! The API server under load: creates, gets and lists of 1 KB ConfigMaps over TLS with a bearer
//! token, compared with kube-apiserver on etcd and nginx where these are installed. Server and load
//! share the machine, so that only columns of the same run can be compared.

pub mod connection;
pub mod drive;
mod servers;
mod usage;
pub mod watchers;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use connection::{Connection, connector};
use drive::{Load, LoadOutcome, Target, drive, same};
pub use servers::Server;
pub use usage::{cpu_time, memory};

/// Components other than the API server.
pub const OTHER_PARTS: &str = "scheduler,controllers,node,proxy,dns";
const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const FEW: &str = "/api/v1/namespaces/bench-500/configmaps";
const OBJECTS: usize = 10_000;
const FEW_OBJECTS: usize = 500;
/// Every row is measured this often on every server, in turn; the median counts.
const ROUNDS: usize = 3;

/// One kind of load, with the number of requests for Coracle, upstream and nginx.
struct Row {
    name: &'static str,
    connections: usize,
    path: &'static str,
    more: &'static str,
    counts: [usize; 3],
}

const GZIP: &str = "accept-encoding: gzip\r\n";
const ONE: &str = "/api/v1/namespaces/bench/configmaps/map-1";

const READS: [Row; 5] = [
    Row {
        name: "get one",
        connections: 64,
        path: ONE,
        more: "",
        counts: [20_000, 2_000, 20_000],
    },
    Row {
        name: "list 500, gzip",
        connections: 8,
        path: FEW,
        more: GZIP,
        counts: [1_000, 60, 0],
    },
    Row {
        name: "list 500, plain",
        connections: 8,
        path: FEW,
        more: "",
        counts: [500, 60, 0],
    },
    Row {
        name: "list 10,000, gzip",
        connections: 2,
        path: MAPS,
        more: GZIP,
        counts: [60, 6, 0],
    },
    Row {
        name: "list 10,000, plain",
        connections: 2,
        path: MAPS,
        more: "",
        counts: [40, 6, 0],
    },
];

/// Runs all rows and prints them.
pub async fn run(binary: &Path, kube_apiserver: Option<&Path>) -> Result<()> {
    let ours = Server::coracle(binary, OTHER_PARTS).await?;
    let upstream = match kube_apiserver {
        Some(path) => Some(Server::upstream(path).await?),
        None => None,
    };
    let compared = [Some(&ours), upstream.as_ref()];
    println!(
        "                     coracle   upstream     ratio      nginx     ratio    CPU of the server per request"
    );
    let mut created = Outcomes::default();
    for round in 0..ROUNDS {
        for (index, server) in compared.into_iter().enumerate() {
            if let Some(server) = server {
                let _held = Held::others(&compared, server);
                created.add(index, create(&server.target, round)?);
            }
        }
    }
    created.print("create");
    for server in compared.into_iter().flatten() {
        fill(&server.target)?;
    }
    let body = fetch(&ours.target, ONE).await?;
    let nginx = match which("nginx") {
        true => Some(Server::nginx(ONE, &body, &ours.target.token).await?),
        false => None,
    };
    for row in &READS {
        let mut outcomes = Outcomes::default();
        for round in 0..ROUNDS {
            let servers = [Some(&ours), upstream.as_ref(), nginx.as_ref()];
            for (index, server) in servers.into_iter().enumerate() {
                let count = row.counts[index];
                if let (Some(server), true) = (server, count > 0) {
                    let _held = Held::others(&servers, server);
                    let outcome = read(&server.target, row, count, round)?;
                    outcomes.add(index, outcome);
                }
            }
        }
        outcomes.print(row.name);
    }
    let used = |server: &Server| format!("{:.0} MB", memory(&server.target.processes));
    println!(
        "memory with {OBJECTS} objects and after these lists: coracle's API server alone {}{}",
        used(&ours),
        upstream.as_ref().map_or(String::new(), |upstream| {
            format!(", kube-apiserver and etcd {}", used(upstream))
        })
    );
    drop((ours, upstream, nginx));
    let whole = Server::coracle(binary, "").await?;
    let idle = memory(&whole.target.processes);
    let made = create_all(&whole.target, MAPS, OBJECTS)?;
    println!(
        "everything in one process: {:.0} creates/s, {:.1} MB before and {:.1} MB with {OBJECTS} objects",
        made.per_second,
        idle,
        memory(&whole.target.processes)
    );
    Ok(())
}

/// The figures of a row, per server.
#[derive(Default)]
struct Outcomes([Vec<LoadOutcome>; 3]);

impl Outcomes {
    fn add(&mut self, server: usize, outcome: LoadOutcome) {
        self.0[server].push(outcome);
    }

    fn median(&self, server: usize) -> Option<LoadOutcome> {
        let mut outcomes = self.0[server].clone();
        outcomes.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        outcomes.get(outcomes.len() / 2).cloned()
    }

    fn print(&self, name: &str) {
        let [ours, upstream, nginx] = [0, 1, 2].map(|server| self.median(server));
        let Some(ours) = ours else { return };
        let rate = |outcome: &Option<LoadOutcome>| match outcome {
            Some(outcome) => format!("{:>8.0}/s", outcome.per_second),
            None => format!("{:>10}", "–"),
        };
        let ratio = |outcome: &Option<LoadOutcome>| match outcome {
            Some(outcome) => format!("{:>8.2}×", ours.per_second / outcome.per_second),
            None => format!("{:>9}", "–"),
        };
        let cpu = [Some(&ours), upstream.as_ref(), nginx.as_ref()].map(|outcome| {
            outcome.map_or("–".to_string(), |outcome| {
                format!("{:.0} µs", outcome.cpu.as_secs_f64() * 1e6)
            })
        });
        println!(
            "{name:<18}{}{} {}{} {}    {} ({} bytes, p99 {:.1} ms)",
            rate(&Some(ours.clone())),
            rate(&upstream),
            ratio(&upstream),
            rate(&nginx),
            ratio(&nginx),
            cpu.join(" / "),
            ours.bytes_each,
            ours.p99.as_secs_f64() * 1e3,
        );
    }
}

/// A 1 KB ConfigMap. All are different, and they compress like text.
fn map(name: &str, number: usize) -> String {
    let mut state = number as u64 + 1;
    let mut text = String::with_capacity(1100);
    while text.len() < 1000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let word = WORDS[(state >> 33) as usize % WORDS.len()];
        text.push_str(word);
        text.push_str(if (state >> 60) == 0 { ".\\n" } else { " " });
    }
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"text":"{text}"}}}}"#
    )
}

const WORDS: [&str; 32] = [
    "server",
    "listen",
    "upstream",
    "timeout",
    "seconds",
    "enabled",
    "true",
    "false",
    "path",
    "/etc/config",
    "level",
    "warn",
    "10.96.0.1",
    "port: 8080",
    "retry",
    "backoff",
    "metrics",
    "namespace",
    "cluster",
    "node",
    "replica",
    "cache",
    "size",
    "limit",
    "request",
    "memory",
    "512Mi",
    "cpu",
    "250m",
    "policy",
    "default",
    "rule",
];

/// Servers that are suspended while another is measured, so that their background work (garbage
/// collection, compaction, syncs) does not disturb the measurement.
struct Held(Vec<u32>);

impl Held {
    fn others(all: &[Option<&Server>], measured: &Server) -> Held {
        let others = all.iter().flatten();
        let others = others.filter(|other| other.target.address != measured.target.address);
        let held = Held(
            others
                .flat_map(|other| other.target.processes.clone())
                .collect(),
        );
        held.signal(Signal::SIGSTOP);
        held
    }

    fn signal(&self, signal: Signal) {
        for process in &self.0 {
            let _ = kill(Pid::from_raw(*process as i32), signal);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
    }
}

fn create(target: &Target, round: usize) -> Result<LoadOutcome> {
    let share = OBJECTS / (ROUNDS + 1);
    let count = share;
    create_range(target, MAPS, round * share, count)
}

/// Creates the remaining objects, so that lists have the announced length.
fn fill(target: &Target) -> Result<()> {
    let done = OBJECTS / (ROUNDS + 1) * ROUNDS;
    create_range(target, MAPS, done, OBJECTS - done)?;
    create_range(target, FEW, 0, FEW_OBJECTS)?;
    Ok(())
}

fn create_all(target: &Target, path: &'static str, count: usize) -> Result<LoadOutcome> {
    create_range(target, path, 0, count)
}

fn create_range(
    target: &Target,
    path: &'static str,
    from: usize,
    count: usize,
) -> Result<LoadOutcome> {
    // Created before the measurement.
    let requests: Vec<Arc<[u8]>> = (from..from + count)
        .map(|number| {
            let body = map(&format!("map-{number}"), number);
            target.request("POST", path, "", &body).into()
        })
        .collect();
    let load = Load {
        connections: 64,
        count,
        requests: Arc::new(move |number| requests[number].clone()),
        code: 201,
    };
    drive(target, &load)
}

fn read(target: &Target, row: &Row, count: usize, round: usize) -> Result<LoadOutcome> {
    let request = target.request("GET", row.path, row.more, "");
    let load = Load {
        connections: row.connections,
        count,
        requests: same(request),
        code: 200,
    };
    if round == 0 {
        let warm = Load {
            count: (count / 10).max(row.connections),
            ..load.clone()
        };
        drive(target, &warm)?;
    }
    drive(target, &load)
}

async fn fetch(target: &Target, path: &str) -> Result<Vec<u8>> {
    let mut connection = Connection::open(target.address, &connector()?).await?;
    let (code, body) = connection
        .fetch(&target.request("GET", path, "", ""))
        .await?;
    ensure!(code == 200, "{path} answered {code}");
    Ok(body)
}

fn which(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
