//! Debian's containerd, one for each cluster of a test, where `CORACLE_E2E_RUNTIME=containerd` is set:
//! the same tests then run on another container runtime.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::cluster::{eventually, image_archive, repository, succeed};

/// The name of the pause image, which containerd does not include.
const PAUSE: &str = "docker.io/library/coracle-pause:1";

pub struct Containerd {
    child: Child,
    directory: PathBuf,
}

impl Containerd {
    pub fn wanted() -> bool {
        match std::env::var("CORACLE_E2E_RUNTIME").as_deref() {
            Ok("containerd") => true,
            Ok("" | "coracle") | Err(_) => false,
            Ok(other) => panic!("CORACLE_E2E_RUNTIME={other}: coracle or containerd"),
        }
    }

    /// Starts containerd with its files in `directory` and the pod network of the cluster in
    /// `data_dir`.
    pub fn start(directory: PathBuf, data_dir: &Path) -> Containerd {
        let cni = data_dir.join("cni");
        for path in [&directory, &cni.join("net.d"), &cni.join("bin")] {
            fs::create_dir_all(path).expect("made");
        }
        // containerd needs it in addition to the plugins of the network.
        let loopback = cni.join("bin/loopback");
        std::os::unix::fs::symlink("/usr/lib/cni/loopback", loopback).expect("linked");
        let text = format!(
            r#"version = 2
root = "{0}/root"
state = "{0}/state"
[grpc]
  address = "{0}/cri.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{1}/bin"
    conf_dir = "{1}/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"#,
            directory.display(),
            cni.display()
        );
        let file = directory.join("config.toml");
        fs::write(&file, text).expect("written");
        let log = fs::File::create(directory.join("containerd.log")).expect("a log");
        let child = Command::new("containerd")
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("containerd starts (scripts/setup bench installs it)");
        let containerd = Containerd { child, directory };
        eventually("containerd to listen", || {
            UnixStream::connect(containerd.socket()).ok()
        });
        for archive in [image_archive(), pause_archive()] {
            let socket = containerd.socket();
            succeed(
                Command::new("ctr")
                    .arg("--address")
                    .arg(&socket)
                    .args(["--namespace", "k8s.io", "image", "import"])
                    .arg(archive),
            );
        }
        containerd
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("cri.sock")
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.directory.join("containerd.log"));
            let log = log.unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- end of containerd's log");
            for line in &lines[lines.len().saturating_sub(40)..] {
                eprintln!("{line}");
            }
        }
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points: Vec<&str> = table
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|point| Path::new(point).starts_with(&self.directory))
            .collect();
        for point in points.into_iter().rev() {
            let _ = nix::mount::umount2(point, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// Created once per run.
fn pause_archive() -> &'static Path {
    static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("coracle-pause.tar");
        succeed(
            Command::new(repository().join("scripts/image"))
                .env("COMMAND", r#"["sleep","2147483647"]"#)
                .arg(PAUSE)
                .arg(&path),
        );
        path
    })
}
