//! The stage: mounts, a network with one machine on it, a control plane and a node.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result};

use super::{Programs, Which};
use crate::judges::cleanup::Cleanup;
use crate::judges::command::{command, output, run, sh, start, succeeds, text, wait_for};

/// The machine's address, of the range set aside for documents (RFC 5737).
pub const MACHINE: &str = "192.0.2.1";
pub const PORT: &str = "6443";

pub struct Stage<'a> {
    pub which: Which,
    pub programs: Programs,
    pub folder: PathBuf,
    pub cleanup: &'a mut Cleanup,
    /// The node's process, while it runs.
    pub node: Option<Child>,
}

impl<'a> Stage<'a> {
    /// Opens the stage. Must run in namespaces of its own.
    pub fn open(
        which: Which,
        programs: Programs,
        cleanup: &'a mut Cleanup,
        results: &Path,
    ) -> Result<Stage<'a>> {
        let folder = output(&mut command(&["mktemp", "-d", "--tmpdir", "cri-XXXXXX"]))?;
        // In reverse order: the logs are kept, mounts and cgroups go, then the files.
        cleanup.run(&["rm", "-rf", &folder])?;
        cleanup.run(&["bash", "-c", &remove_cgroups(&folder)])?;
        cleanup.run(&["bash", "-c", &unmount_all(&folder)])?;
        let keep = format!("mkdir -p '{0}'; cp '{folder}'/*.log '{0}/'", text(results)?);
        cleanup.run(&["bash", "-c", &keep])?;
        let stage = Stage {
            which,
            programs,
            folder: folder.into(),
            cleanup,
            node: None,
        };
        stage.mounts()?;
        stage.network()?;
        Ok(stage)
    }

    /// A file of the stage, as text.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder.display())
    }

    pub fn say(&self, text: &str) {
        println!("swap-node {}: {text}", self.which.name());
    }

    /// Upstream's kubectl as the administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut kubectl = Command::new("timeout");
        kubectl
            .arg("180")
            .arg(self.programs.upstream.join("kubectl"))
            .args(["--kubeconfig", &self.file("admin.kubeconfig")])
            .args(["--cache-dir", &self.file("cache")])
            .args(arguments);
        kubectl
    }

    pub fn start(&mut self, name: &str, command: &mut Command) -> Result<Child> {
        let log = self.folder.join(format!("{name}.log"));
        start(self.cleanup, command, &log)
    }

    /// The whole play: control plane, node, workload.
    pub fn play(&mut self) -> Result<()> {
        match self.which {
            Which::Ours => self.upstream_control_plane()?,
            Which::Theirs => {
                self.our_control_plane()?;
                self.serve_cri()?;
                self.take_ticket()?;
                self.configure_kubelet()?;
            }
        }
        self.first_start()?;
        self.scenario()?;
        self.say("all of it works");
        Ok(())
    }

    /// Starts the node, again if it was killed.
    pub fn start_node(&mut self, more: &[&str]) -> Result<()> {
        let child = match self.which {
            Which::Ours => {
                let mut agent = Command::new(&self.programs.coracle);
                agent
                    .args(["agent", "--data-dir", &self.file("node")])
                    .args(["--node-name", "ours", "--node-ip", MACHINE])
                    .args(more);
                self.start("agent", &mut agent)?
            }
            Which::Theirs => {
                let mut kubelet = Command::new(self.programs.upstream.join("kubelet"));
                kubelet
                    .args(["--config", &self.file("kubelet.yaml")])
                    .args(["--kubeconfig", &self.file("node.kubeconfig")])
                    .args(["--root-dir", &self.file("kubelet")])
                    .args(["--cert-dir", &self.file("kubelet/pki")])
                    .args([
                        "--hostname-override",
                        "theirs",
                        "--node-ip",
                        MACHINE,
                        "-v",
                        "2",
                    ]);
                self.start("kubelet", &mut kubelet)?
            }
        };
        self.node = Some(child);
        Ok(())
    }

    fn first_start(&mut self) -> Result<()> {
        if self.which == Which::Theirs {
            return self.start_node(&[]);
        }
        let coracle = text(&self.programs.coracle)?.to_string();
        let data = self.file("node");
        // Behind the node and before the control plane.
        self.cleanup
            .run(&[&coracle, "down", "--delete", "--data-dir", &data])?;
        output(
            Command::new(&coracle)
                .args(["image", "import", "--data-dir", &data])
                .arg(&self.programs.image),
        )?;
        let (node, proxy) = (self.file("node.kubeconfig"), self.file("proxy.kubeconfig"));
        self.start_node(&[
            "--kubeconfig",
            &node,
            "--proxy-kubeconfig",
            &proxy,
            "--pod-cidr",
            "10.244.0.0/24",
        ])
    }

    /// Whether pods have left nothing on the node.
    pub fn is_empty(&self) -> bool {
        match self.which {
            Which::Ours => {
                let shims = format!("coracle shim .*{}", self.file("node"));
                let pods = std::fs::read_dir(self.file("node/kubelet/pods"));
                !succeeds(&mut command(&["pgrep", "-f", &shims]))
                    && pods.is_ok_and(|mut pods| pods.next().is_none())
            }
            Which::Theirs => {
                let none = |arguments: &[&str]| {
                    let listed = self.crictl().args(arguments).output();
                    listed.is_ok_and(|listed| listed.stdout.is_empty())
                };
                none(&["ps", "-aq"]) && none(&["pods", "-q", "--state", "Ready"])
            }
        }
    }

    pub fn show_failure(&self) {
        let logs = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten();
        for log in logs.map(|entry| entry.path()) {
            if log.extension().is_some_and(|ending| ending == "log") {
                eprintln!("--- {}", log.display());
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                eprintln!("{}", lines[lines.len().saturating_sub(15)..].join("\n"));
            }
        }
        let _ = run(&mut self.kubectl(&["get", "pods", "-o", "wide"]));
    }

    fn mounts(&self) -> Result<()> {
        sh(&["mount", "--make-rshared", "/"])?;
        // Users of pods with a user namespace pass through.
        sh(&["chmod", "711", text(&self.folder)?])?;
        std::fs::create_dir_all(self.file("cni"))?;
        std::fs::create_dir_all(self.file("cni-data"))?;
        std::fs::create_dir_all("/var/lib/cni")?;
        std::fs::write(
            self.file("hosts"),
            "127.0.0.1 localhost registry.k8s.io gcr.io k8s.gcr.io\n",
        )?;
        sh(&["mount", "--bind", &self.file("hosts"), "/etc/hosts"])?;
        sh(&["mount", "--bind", &self.file("cni-data"), "/var/lib/cni"])?;
        // The address range is seen on this stage only.
        std::fs::write(
            self.file("cni/10-judge.conflist"),
            r#"{"cniVersion": "1.0.0", "name": "judge", "plugins": [
  {"type": "bridge", "bridge": "judge0", "isGateway": true, "ipMasq": true, "promiscMode": false,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}},
  {"type": "tuning"}]}
"#,
        )?;
        // Claims of other clusters are those of another network.
        std::fs::create_dir_all("/run/coracle")?;
        sh(&[
            "mount",
            "-t",
            "tmpfs",
            "-o",
            "mode=755",
            "none",
            "/run/coracle",
        ])
    }

    fn network(&self) -> Result<()> {
        let address = format!("{MACHINE}/24");
        for words in [
            &["link", "set", "lo", "up"][..],
            &["link", "add", "lan", "type", "veth", "peer", "name", "far"],
            &["address", "add", &address, "dev", "lan"],
            &["link", "set", "far", "up"],
            &["link", "set", "lan", "up"],
            &["route", "add", "default", "dev", "lan"],
        ] {
            run(Command::new("ip").args(words))?;
        }
        Ok(())
    }

    fn our_control_plane(&mut self) -> Result<()> {
        let mut server = Command::new(&self.programs.coracle);
        server
            .args([
                "server",
                "--data-dir",
                &self.file("server"),
                "--disable",
                "node",
            ])
            .args(["--node-ip", MACHINE, "--port", PORT]);
        self.start("server", &mut server)?;
        let kubeconfig = self.file("server/kubeconfig");
        wait_for("the server's kubeconfig", 120, || {
            Path::new(&kubeconfig).exists()
        })?;
        std::fs::copy(kubeconfig, self.file("admin.kubeconfig"))?;
        self.wait_for_api()
    }

    /// Waits until the API answers and pods can be created.
    pub fn wait_for_api(&self) -> Result<()> {
        for arguments in [
            &["get", "--raw", "/readyz"][..],
            &["get", "serviceaccount", "default"],
        ] {
            let what = arguments.join(" ");
            wait_for(&what, 180, || succeeds(&mut self.kubectl(arguments)))?;
        }
        Ok(())
    }

    fn crictl(&self) -> Command {
        let mut crictl = Command::new(self.programs.cri_tools.join("crictl"));
        crictl.args([
            "--runtime-endpoint",
            &format!("unix://{}", self.file("cri.sock")),
        ]);
        crictl
    }

    /// Our runtime alone, for upstream's kubelet.
    fn serve_cri(&mut self) -> Result<()> {
        let mut runtime = Command::new(&self.programs.coracle);
        runtime
            .args(["runtime", "--data-dir", &self.file("data")])
            .args(["--socket", &self.file("cri.sock")])
            .args([
                "--cni-conf-dir",
                &self.file("cni"),
                "--cni-bin-dir",
                "/usr/lib/cni",
            ]);
        for host in ["registry.k8s.io", "gcr.io", "k8s.gcr.io"] {
            runtime.args(["--insecure-registry", host]);
        }
        self.start("runtime", &mut runtime)?;
        let crictl = self.programs.cri_tools.join("crictl");
        let endpoint = format!("unix://{}", self.file("cri.sock"));
        self.cleanup.run(&[
            "timeout",
            "60",
            text(&crictl)?,
            "--runtime-endpoint",
            &endpoint,
            "rmp",
            "-fa",
        ])?;
        wait_for("our runtime", 60, || succeeds(self.crictl().arg("version")))?;
        output(
            Command::new(&self.programs.coracle)
                .args(["image", "import", "--data-dir", &self.file("data")])
                .arg(&self.programs.image),
        )?;
        Ok(())
    }

    /// The identity of upstream's kubelet comes from a ticket, as that of our own nodes does.
    fn take_ticket(&mut self) -> Result<()> {
        let file = self.file("ticket");
        output(
            Command::new(&self.programs.coracle)
                .args(["invite", "theirs", "--address", MACHINE])
                .args(["--data-dir", &self.file("server"), "--output", &file]),
        )?;
        let ticket: serde_json::Value = serde_json::from_slice(&std::fs::read(file)?)?;
        std::fs::create_dir_all(self.file("pki"))?;
        for (name, path) in [
            ("ca.crt", "/authority"),
            ("node.crt", "/node/certificate"),
            ("node.key", "/node/key"),
            ("serving.crt", "/kubelet_server/certificate"),
            ("serving.key", "/kubelet_server/key"),
        ] {
            let text = ticket.pointer(path).and_then(serde_json::Value::as_str);
            let text = text.with_context(|| format!("{path} of the ticket"))?;
            std::fs::write(self.file(&format!("pki/{name}")), text)?;
        }
        self.kubeconfig("node")
    }
}

/// The kubelet's cgroups and those of our runtime, in every hierarchy.
fn remove_cgroups(folder: &str) -> String {
    let process = std::process::id();
    format!(
        "for group in coracle-swap-{process} \"coracle-$(cat '{folder}/data/cluster-id' 2>/dev/null || echo none)\" k8s.io; do \
         find /sys/fs/cgroup -mindepth 1 -depth -type d -path \"*/$group*\" -exec rmdir {{}} +; done"
    )
}

fn unmount_all(folder: &str) -> String {
    format!(
        "awk -v stage='{folder}/' 'index($5, stage) == 1 {{ print $5 }}' /proc/self/mountinfo | sort -r | \
         while read -r point; do umount -l \"$point\"; done; umount -l /etc/hosts /var/lib/cni /run/coracle"
    )
}
