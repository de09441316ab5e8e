//! Real etcd processes on loopback, each with its own directory; killed and reaped on drop.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::super::{Etcd, Options, Tls};
use crate::Error;

pub struct Members {
    directory: TempDir,
    members: Vec<Member>,
    tls: Option<Tls>,
}

struct Member {
    name: String,
    client: u16,
    peer: u16,
    process: Option<Child>,
}

impl Members {
    pub async fn start(count: usize) -> Members {
        Members::start_with(count, |_| None).await
    }

    /// `secure` may write the server's certificates into the directory and returns the client's.
    pub async fn start_with(
        count: usize,
        secure: impl FnOnce(&std::path::Path) -> Option<Tls>,
    ) -> Members {
        let directory = tempfile::tempdir().expect("temporary directory");
        let tls = secure(directory.path());
        let mut members = Members {
            directory,
            members: Vec::new(),
            tls,
        };
        // A port is free when it is chosen; somebody may be faster.
        for attempt in 0..5 {
            let member = |number| Member {
                name: format!("m{attempt}-{number}"),
                client: free_port(),
                peer: free_port(),
                process: None,
            };
            members.members = (0..count).map(member).collect();
            for index in 0..count {
                members.restart(index);
            }
            if members.serve().await {
                return members;
            }
            for index in 0..count {
                members.kill(index);
            }
        }
        panic!("etcd does not start: {}", members.log());
    }

    pub fn options(&self) -> Options {
        let scheme = self.scheme();
        let url = |member: &Member| format!("{scheme}://127.0.0.1:{}", member.client);
        let mut options = Options::new(self.members.iter().map(url).collect());
        options.tls = self.tls.clone();
        options
    }

    /// kill -9.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill().expect("kill");
            process.wait().expect("wait");
        }
    }

    pub fn restart(&mut self, index: usize) {
        let scheme = self.scheme();
        let cluster: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("{}=http://127.0.0.1:{}", member.name, member.peer))
            .collect();
        let member = &self.members[index];
        let client = format!("{scheme}://127.0.0.1:{}", member.client);
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let directory = self.directory.path();
        let log = std::fs::File::create(directory.join(format!("{}.log", member.name)));
        let log = log.expect("log file");
        let mut command = Command::new(binary());
        command
            .args(["--name", &member.name])
            .arg("--data-dir")
            .arg(directory.join(&member.name))
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(["--initial-cluster-state", "new"]);
        if self.tls.is_some() {
            command
                .arg("--client-cert-auth")
                .arg("--trusted-ca-file")
                .arg(directory.join("ca.pem"))
                .arg("--cert-file")
                .arg(directory.join("server.pem"))
                .arg("--key-file")
                .arg(directory.join("server.key"));
        }
        let process = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log file"))
            .stderr(log)
            .spawn()
            .expect("etcd starts (scripts/setup test installs it)");
        self.members[index].process = Some(process);
    }

    /// Waits until they can be used; false when one of them has ended.
    async fn serve(&mut self) -> bool {
        for _ in 0..40 {
            match Etcd::connect(self.options()).await {
                Ok(_) => return true,
                Err(Error::Unavailable(_)) => {}
                Err(error) => panic!("etcd refuses: {error}"),
            }
            let mut processes = self.members.iter_mut().flat_map(|one| &mut one.process);
            if processes.any(|process| process.try_wait().expect("etcd").is_some()) {
                return false;
            }
        }
        panic!("etcd does not serve: {}", self.log());
    }

    /// What the first of them said.
    fn log(&self) -> String {
        let name = self.members.first().map_or("", |member| &member.name);
        let log = self.directory.path().join(format!("{name}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }
}

/// Free at this moment, and not among those that connections get: one of them would keep a member
/// from coming back to its port.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 37 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + (number % 10_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn binary() -> PathBuf {
    std::env::var_os("ETCD").map_or_else(|| "etcd".into(), PathBuf::from)
}
