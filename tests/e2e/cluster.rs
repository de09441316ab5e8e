//! A cluster for one test: started by the binary, deleted on drop, and checked to be gone.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::containerd::Containerd;
use crate::slots::wait_for_slot;

pub const IMAGE: &str = "docker.io/library/coracle-test:1";

/// The kubectl commands that can be repeated because they change nothing.
const ASKING: [&str; 6] = ["describe", "get", "logs", "rollout", "top", "wait"];

/// kubectl's errors when the server or kubectl itself did not get enough CPU time.
const STARVED: [&str; 3] = [
    "TLS handshake timeout",
    "i/o timeout",
    "http2: client connection lost",
];

/// A running cluster in a temporary data directory.
pub struct Cluster {
    /// Dropped before its directory.
    containerd: Option<Containerd>,
    directory: tempfile::TempDir,
    /// Whether the drop checks that nothing of the cluster is left. A second panic would abort the
    /// test process.
    pub expect_clean: bool,
}

impl Cluster {
    /// Starts a cluster with the test image and waits until pods can be applied.
    pub fn start() -> Cluster {
        let cluster = Cluster::prepared();
        cluster.up(&[]);
        cluster
    }

    /// A data directory with the test image and nothing running.
    pub fn prepared() -> Cluster {
        wait_for_slot();
        let directory = tempfile::Builder::new()
            .prefix("coracle-e2e-")
            .tempdir()
            .expect("temporary directory");
        let mut cluster = Cluster {
            directory,
            containerd: None,
            expect_clean: true,
        };
        if Containerd::wanted() {
            let directory = cluster.directory.path().join("containerd");
            cluster.containerd = Some(Containerd::start(directory, &cluster.data_dir()));
        }
        cluster.coracle(&[
            "image",
            "import",
            "--data-dir",
            &cluster.data_dir_text(),
            &image_archive().display().to_string(),
        ]);
        cluster
    }

    pub fn up(&self, arguments: &[&str]) -> String {
        let data_dir = self.data_dir_text();
        let mut all = vec!["up", "--data-dir", &data_dir];
        let socket = self.containerd.as_ref().map(|containerd| {
            let socket = containerd.socket();
            format!("--container-runtime-endpoint=unix://{}", socket.display())
        });
        all.extend(socket.as_deref());
        all.extend(arguments);
        self.coracle(&all)
    }

    pub fn down(&self) {
        self.coracle(&["down", "--data-dir", &self.data_dir_text()]);
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn data_dir_text(&self) -> String {
        self.data_dir().display().to_string()
    }

    pub fn kubeconfig(&self) -> String {
        self.data_dir().join("kubeconfig").display().to_string()
    }

    /// The cluster id: six characters in the name of everything that belongs to the cluster.
    pub fn id(&self) -> String {
        let text = std::fs::read_to_string(self.data_dir().join("cluster.json")).expect("settings");
        let settings: Value = serde_json::from_str(&text).expect("settings");
        settings["cluster_id"].as_str().expect("id").to_string()
    }

    /// Runs the binary, which must succeed.
    pub fn coracle(&self, arguments: &[&str]) -> String {
        succeed(coracle().args(arguments))
    }

    /// Runs a client command of the binary against this cluster, which must succeed.
    pub fn client(&self, arguments: &[&str]) -> String {
        let kubeconfig = self.kubeconfig();
        let mut all = arguments.to_vec();
        all.extend(["--kubeconfig", &kubeconfig]);
        self.coracle(&all)
    }

    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .env("KUBECONFIG", self.kubeconfig())
            // kubectl caches discovery by host and port, and other tests may have used the same port.
            .arg("--cache-dir")
            .arg(self.directory.path().join("kubectl-cache"))
            .args(arguments);
        command
    }

    /// Runs the stock kubectl, which must succeed. A read that timed out on a busy machine is
    /// repeated.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let asks = arguments.first().is_some_and(|verb| ASKING.contains(verb));
        let mut attempts = if asks { 5 } else { 1 };
        loop {
            let mut command = self.kubectl_command(arguments);
            let output = command.output().expect("kubectl runs");
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).into_owned();
            }
            let said = said(&output);
            attempts -= 1;
            let starved = STARVED.iter().any(|words| said.contains(words));
            assert!(attempts > 0 && starved, "{command:?} failed:\n{said}");
        }
    }

    /// Runs kubectl, which must fail, and returns its output.
    pub fn kubectl_fails(&self, arguments: &[&str]) -> String {
        fail(&mut self.kubectl_command(arguments))
    }

    /// Applies YAML text with kubectl.
    pub fn apply(&self, yaml: &str) -> String {
        with_input(&mut self.kubectl_command(&["apply", "-f", "-"]), yaml, true)
    }

    /// Applies YAML text that must be rejected. Returns kubectl's output.
    pub fn apply_fails(&self, yaml: &str) -> String {
        with_input(
            &mut self.kubectl_command(&["apply", "-f", "-"]),
            yaml,
            false,
        )
    }

    /// An object as JSON.
    pub fn object(&self, kind: &str, name: &str) -> Value {
        let text = self.kubectl(&["get", kind, name, "-o", "json"]);
        serde_json::from_str(&text).expect("kubectl prints JSON")
    }

    /// Waits for a pod's phase by watching, through kubectl.
    pub fn wait_for_phase(&self, pod: &str, phase: &str) {
        self.kubectl(&[
            "wait",
            &format!("pod/{pod}"),
            &format!("--for=jsonpath={{.status.phase}}={phase}"),
            "--timeout=120s",
        ]);
    }

    pub fn wait_ready(&self, pod: &str) {
        self.kubectl(&[
            "wait",
            &format!("pod/{pod}"),
            "--for=condition=Ready",
            "--timeout=120s",
        ]);
    }

    /// The process id of the keeper's current server.
    pub fn server_pid(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.data_dir().join("keeper.pid")).ok()?;
        let keeper = text.split_whitespace().next()?.to_string();
        processes().into_iter().find_map(|process| {
            let is_server = process.arguments.get(1).map(String::as_str) == Some("server");
            (is_server && process.parent == keeper).then_some(process.pid)
        })
    }

    /// Waits until the kernel has removed everything of the cluster.
    pub fn expect_no_traces(&self, id: &str) {
        for _ in 0..100 {
            if self.traces(id).is_empty() {
                return;
            }
            #[allow(clippy::disallowed_methods)] // A test outside of any simulation.
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(self.traces(id), Vec::<String>::new(), "left behind");
    }

    /// Everything on the machine whose name contains this cluster's id or data directory.
    pub fn traces(&self, id: &str) -> Vec<String> {
        let mut traces = Vec::new();
        let data_dir = self.data_dir_text();
        for process in processes() {
            if process
                .arguments
                .iter()
                .any(|argument| argument.contains(&data_dir))
                && process
                    .arguments
                    .first()
                    .is_some_and(|name| name.contains("coracle"))
            {
                traces.push(format!("process {} {:?}", process.pid, process.arguments));
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let run_dir = format!("/run/coracle/{id}");
        for line in mounts.lines() {
            if line.contains(&data_dir) || line.contains(&run_dir) {
                traces.push(format!("mount {line}"));
            }
        }
        for (what, command) in [
            ("link", vec!["ip", "-o", "link"]),
            ("route", vec!["ip", "route", "show", "table", "all"]),
            ("nft", vec!["nft", "list", "tables"]),
            ("netns", vec!["ip", "netns"]),
        ] {
            let text = succeed(Command::new(command[0]).args(&command[1..]));
            for line in text.lines().filter(|line| line.contains(id)) {
                traces.push(format!("{what} {line}"));
            }
        }
        for entry in std::fs::read_dir("/sys/fs/cgroup")
            .expect("cgroups")
            .flatten()
        {
            for path in [entry.path(), entry.path().join(format!("coracle-{id}"))] {
                if path.is_dir() && path.to_string_lossy().contains(id) {
                    traces.push(format!("cgroup {}", path.display()));
                }
            }
        }
        if Path::new(&run_dir).exists() {
            traces.push(run_dir);
        }
        if self.data_dir().exists() {
            traces.push(data_dir);
        }
        traces
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.data_dir().exists() {
            return;
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.data_dir().join("server.log"));
            let log = log.unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- end of the server's log");
            for line in &lines[lines.len().saturating_sub(60)..] {
                eprintln!("{line}");
            }
        }
        let id = self
            .data_dir()
            .join("cluster.json")
            .exists()
            .then(|| self.id());
        let output = coracle()
            .args(["down", "--delete", "--data-dir", &self.data_dir_text()])
            .output()
            .expect("down runs");
        if std::thread::panicking() {
            return;
        }
        assert!(output.status.success(), "down --delete failed: {output:?}");
        if let Some(id) = id.filter(|_| self.expect_clean) {
            self.expect_no_traces(&id);
        }
    }
}

pub struct Process {
    pub pid: i32,
    pub parent: String,
    pub arguments: Vec<String>,
}

/// All processes with their arguments.
pub fn processes() -> Vec<Process> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let Ok(arguments) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The command may contain spaces. The parent is the second field after its closing bracket.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(1))
            .unwrap_or_default()
            .to_string();
        processes.push(Process {
            pid,
            parent,
            arguments: arguments
                .split(|byte| *byte == 0)
                .map(|argument| String::from_utf8_lossy(argument).into_owned())
                .filter(|argument| !argument.is_empty())
                .collect(),
        });
    }
    processes
}

pub fn coracle() -> Command {
    Command::new(env!("CARGO_BIN_EXE_coracle"))
}

/// Runs a command that must succeed and returns its standard output.
pub fn succeed(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}",
        said(&output)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail and returns its output.
pub fn fail(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        !output.status.success(),
        "{command:?} succeeded:\n{}",
        said(&output)
    );
    said(&output)
}

pub fn with_input(command: &mut Command, input: &str, success: bool) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("command starts");
    child
        .stdin
        .take()
        .expect("input")
        .write_all(input.as_bytes())
        .expect("input written");
    let output = child.wait_with_output().expect("command ends");
    assert_eq!(
        output.status.success(),
        success,
        "{command:?}:\n{}",
        said(&output)
    );
    said(&output)
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// How long a condition may take on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Calls `check` until it returns something. Panics with `what` after a time limit.
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    #[allow(clippy::disallowed_methods)] // A test outside of any simulation.
    let started = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "gave up waiting: {what}");
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends a helper process on drop.
pub struct Background(pub Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The test image, made once per run.
pub fn image_archive() -> &'static Path {
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("coracle-test.tar");
        let script = repository().join("scripts/image");
        succeed(Command::new(script).arg(IMAGE).arg(OsStr::new(&path)));
        path
    })
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
