//! One arrangement of parts while it runs: servers, components, their certificates, the scenario.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{Parts, say};
use crate::judges::cleanup::Cleanup;
use crate::judges::command::{command, output, start, succeeds, text, wait_for};

/// One arrangement of parts while it runs.
struct Stage<'a> {
    parts: &'a Parts,
    data: PathBuf,
    logs: &'a Path,
    cleanup: &'a mut Cleanup,
    authority: String,
    account_key: String,
    url: String,
    pods: String,
    services: String,
    simulated_nodes: &'static str,
}

/// Runs the scenario with the parts of one stage.
pub fn run_stage(parts: &Parts, name: &str, logs: &Path) -> Result<()> {
    say(name);
    if logs.exists() {
        std::fs::remove_dir_all(logs)?;
    }
    std::fs::create_dir_all(logs)?;
    let mut cleanup = Cleanup::start()?;
    let data = PathBuf::from(output(&mut command(&[
        "mktemp",
        "-d",
        "--tmpdir",
        "swap-XXXXXX",
    ]))?);
    let folder = text(&data)?;
    cleanup.run(&["rm", "-rf", folder])?;
    let mut stage = Stage {
        parts,
        authority: format!("{folder}/authority"),
        account_key: String::new(),
        url: String::new(),
        pods: String::new(),
        services: String::new(),
        simulated_nodes: "",
        data,
        logs,
        cleanup: &mut cleanup,
    };
    match name {
        "upstream" => {
            stage.upstream_server()?;
            stage.kube_scheduler()?;
            stage.kube_controller_manager()?;
        }
        "ours" => stage.our_server(None)?,
        "scheduler" => {
            stage.our_server(Some("scheduler"))?;
            stage.kube_scheduler()?;
        }
        "controllers" => {
            stage.our_server(Some("controllers"))?;
            stage.kube_controller_manager()?;
        }
        _ => {
            stage.upstream_server()?;
            stage.our_components()?;
        }
    }
    let done = stage.scenario();
    stage.keep_logs();
    let steps = done.inspect_err(|_| {
        say(&format!("{name}: FAILED; logs are in {}", logs.display()));
    })?;
    say(&format!("{name}: {steps} steps came true"));
    cleanup.finish()
}

impl Stage<'_> {
    /// A file of this stage, as text.
    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.data.display())
    }

    fn start(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let log = self.logs.join(format!("{name}.log"));
        start(self.cleanup, command, &log).map(drop)
    }

    /// A certificate signed by this stage's authority.
    fn certificate(&self, name: &str, user: &str, group: &str, extension: &str) -> Result<()> {
        let subject = match group {
            "" => format!("/CN={user}"),
            group => format!("/O={group}/CN={user}"),
        };
        let [key, request, signed, extensions] =
            ["key", "csr", "crt", "ext"].map(|ending| self.file(&format!("{name}.{ending}")));
        std::fs::write(
            &extensions,
            format!(
                "keyUsage=digitalSignature\nextendedKeyUsage=clientAuth,serverAuth\n{extension}\n"
            ),
        )?;
        quietly(&[
            "openssl",
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &request,
            "-subj",
            &subject,
        ])?;
        quietly(&[
            "openssl",
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &format!("{}.crt", self.authority),
            "-CAkey",
            &format!("{}.key", self.authority),
            "-CAcreateserial",
            "-CAserial",
            &self.file("serial"),
            "-days",
            "2",
            "-out",
            &signed,
            "-extfile",
            &extensions,
        ])
    }

    fn kubeconfig(&self, name: &str, user: &str, group: &str) -> Result<String> {
        self.certificate(name, user, group, "")?;
        let file = self.file(&format!("{name}.kubeconfig"));
        std::fs::write(
            &file,
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
                 contexts: [{{name: here, context: {{cluster: here, user: {name}}}}}]\n\
                 clusters: [{{name: here, cluster: {{server: \"{}\", certificate-authority: \"{}.crt\"}}}}]\n\
                 users: [{{name: {name}, user: {{client-certificate: \"{}\", client-key: \"{}\"}}}}]\n",
                self.url,
                self.authority,
                self.file(&format!("{name}.crt")),
                self.file(&format!("{name}.key")),
            ),
        )?;
        Ok(file)
    }

    fn our_server(&mut self, disabled: Option<&str>) -> Result<()> {
        let coracle = self.parts.coracle.clone();
        let data = self.file("coracle");
        self.cleanup
            .run(&[text(&coracle)?, "down", "--delete", "--data-dir", &data])?;
        output(
            Command::new(&coracle)
                .args(["image", "import", "--data-dir", &data])
                .args(&self.parts.images),
        )?;
        let mut up = Command::new(&coracle);
        up.args(["up", "--data-dir", &data, "--node-name", "node-0"]);
        if let Some(part) = disabled {
            up.args(["--disable", part]);
        }
        let printed = output(&mut up).inspect_err(|_| {
            let log = std::fs::read_to_string(self.file("coracle/server.log"));
            eprintln!("{}", log.unwrap_or_default());
        })?;
        std::fs::write(self.logs.join("up.log"), printed)?;
        for ending in ["crt", "key"] {
            let from = self.file(&format!("coracle/pki/ca.{ending}"));
            std::fs::copy(from, format!("{}.{ending}", self.authority))?;
        }
        let kubeconfig = std::fs::read_to_string(self.file("coracle/kubeconfig"))?;
        self.url = address(&kubeconfig).context("an address in the kubeconfig")?;
        let settings = std::fs::read(self.file("coracle/cluster.json"))?;
        let settings: serde_json::Value = serde_json::from_slice(&settings)?;
        let range = |key: &str| settings[key].as_str().map(str::to_string);
        self.pods = range("pod_range").context("pod_range")?;
        self.services = range("service_range").context("service_range")?;
        self.account_key = self.file("coracle/pki/service-account.key");
        self.simulated_nodes = "node-1,node-2";
        Ok(())
    }

    fn upstream_server(&mut self) -> Result<()> {
        self.services = "10.109.0.0/16".into();
        self.pods = "10.110.0.0/16".into();
        self.account_key = self.file("accounts.key");
        self.simulated_nodes = "node-0,node-1,node-2";
        let [authority_key, authority_crt] =
            ["key", "crt"].map(|ending| format!("{}.{ending}", self.authority));
        quietly(&[
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &authority_key,
            "-out",
            &authority_crt,
            "-subj",
            "/CN=swap",
            "-days",
            "2",
        ])?;
        quietly(&[
            "openssl",
            "ecparam",
            "-name",
            "prime256v1",
            "-genkey",
            "-noout",
            "-out",
            &self.account_key,
        ])?;
        let names = "subjectAltName=IP:127.0.0.1,IP:10.109.0.1,DNS:kubernetes.default.svc";
        self.certificate("server", "kube-apiserver", "", names)?;
        let client = format!("http://127.0.0.1:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let port = free_port()?.to_string();
        let etcd = self.file("etcd");
        let cluster = format!("default={peer}");
        self.start(
            "etcd",
            &mut command(&[
                "etcd",
                "--data-dir",
                &etcd,
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &cluster,
                "--unsafe-no-fsync",
            ]),
        )?;
        let program = text(&self.parts.upstream.join("kube-apiserver"))?.to_string();
        let (certificate, key) = (self.file("server.crt"), self.file("server.key"));
        let (accounts, services) = (self.account_key.clone(), self.services.clone());
        self.start(
            "kube-apiserver",
            &mut command(&[
                &program,
                "--etcd-servers",
                &client,
                "--bind-address",
                "127.0.0.1",
                "--secure-port",
                &port,
                "--tls-cert-file",
                &certificate,
                "--tls-private-key-file",
                &key,
                "--client-ca-file",
                &authority_crt,
                "--service-account-issuer",
                "https://kubernetes.default.svc.cluster.local",
                "--service-account-key-file",
                &accounts,
                "--service-account-signing-key-file",
                &accounts,
                "--service-cluster-ip-range",
                &services,
                "--authorization-mode",
                "Node,RBAC",
                "--allow-privileged",
            ]),
        )?;
        self.url = format!("https://127.0.0.1:{port}");
        Ok(())
    }

    // One of each, so that none needs to be elected: on a busy machine a lease is easily lost, and a
    // component that loses it ends.
    fn kube_scheduler(&mut self) -> Result<()> {
        let kubeconfig = self.kubeconfig("kube-scheduler", "system:kube-scheduler", "")?;
        let program = text(&self.parts.upstream.join("kube-scheduler"))?.to_string();
        self.start(
            "kube-scheduler",
            &mut command(&[
                &program,
                "--kubeconfig",
                &kubeconfig,
                "--authentication-kubeconfig",
                &kubeconfig,
                "--authorization-kubeconfig",
                &kubeconfig,
                "--secure-port",
                "0",
                "-v",
                "2",
                "--leader-elect=false",
            ]),
        )
    }

    fn kube_controller_manager(&mut self) -> Result<()> {
        let name = "kube-controller-manager";
        let kubeconfig = self.kubeconfig(name, "system:kube-controller-manager", "")?;
        let program = text(&self.parts.upstream.join(name))?.to_string();
        let (certificate, key) = (
            format!("{}.crt", self.authority),
            format!("{}.key", self.authority),
        );
        let (accounts, pods, services) = (
            self.account_key.clone(),
            self.pods.clone(),
            self.services.clone(),
        );
        self.start(
            name,
            &mut command(&[
                &program,
                "--kubeconfig",
                &kubeconfig,
                "--authentication-kubeconfig",
                &kubeconfig,
                "--authorization-kubeconfig",
                &kubeconfig,
                "--secure-port",
                "0",
                "-v",
                "2",
                "--leader-elect=false",
                "--use-service-account-credentials",
                "--root-ca-file",
                &certificate,
                "--cluster-signing-cert-file",
                &certificate,
                "--cluster-signing-key-file",
                &key,
                "--service-account-private-key-file",
                &accounts,
                "--allocate-node-cidrs",
                "--cluster-cidr",
                &pods,
                "--service-cluster-ip-range",
                &services,
            ]),
        )
    }

    fn our_components(&mut self) -> Result<()> {
        let scheduler = self.kubeconfig("kube-scheduler", "system:kube-scheduler", "")?;
        let controllers = self.kubeconfig(
            "kube-controller-manager",
            "system:kube-controller-manager",
            "",
        )?;
        let program = text(&self.parts.coracle)?.to_string();
        let (certificate, key) = (
            format!("{}.crt", self.authority),
            format!("{}.key", self.authority),
        );
        let pods = self.pods.clone();
        self.start(
            "coracle-scheduler",
            &mut command(&[&program, "scheduler", "--kubeconfig", &scheduler]),
        )?;
        self.start(
            "coracle-controllers",
            &mut command(&[
                &program,
                "controllers",
                "--kubeconfig",
                &controllers,
                "--signing-certificate",
                &certificate,
                "--signing-key",
                &key,
                "--pod-range",
                &pods,
                "--without",
                "local-path",
            ]),
        )
    }

    /// Runs the scenario; returns how many of its steps came true.
    fn scenario(&mut self) -> Result<usize> {
        let kubeconfig = self.kubeconfig("admin", "swap-admin", "system:masters")?;
        let ready = format!("{}/readyz", self.url);
        let (authority, certificate, key) = (
            format!("{}.crt", self.authority),
            self.file("admin.crt"),
            self.file("admin.key"),
        );
        wait_for(&ready, 120, || {
            succeeds(&mut command(&[
                "curl",
                "-fs",
                "--cacert",
                &authority,
                "--cert",
                &certificate,
                "--key",
                &key,
                &ready,
            ]))
        })?;
        let log = self.logs.join("scenario.log");
        let file = std::fs::File::create(&log)?;
        let status = Command::new(&self.parts.swap)
            .arg(kubeconfig)
            .arg(self.logs.join("pictures"))
            .arg(self.simulated_nodes)
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()?;
        let text = std::fs::read_to_string(&log)?;
        if !status.success() {
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
            bail!("the scenario failed: {status}");
        }
        Ok(text.lines().filter(|line| line.starts_with("  ")).count())
    }

    /// Keeps our server's logs, if it is ours.
    fn keep_logs(&self) {
        for folder in ["coracle", "coracle/log"] {
            let files = std::fs::read_dir(self.data.join(folder));
            for file in files.into_iter().flatten().flatten() {
                let path = file.path();
                if path.extension().is_some_and(|ending| ending == "log") {
                    let _ = std::fs::copy(&path, self.logs.join(file.file_name()));
                }
            }
        }
    }
}

/// Runs a command without its output.
fn quietly(words: &[&str]) -> Result<()> {
    let done = command(words).output().context(words[0].to_string())?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{}: {errors}", words.join(" "));
    Ok(())
}

fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(listener.local_addr()?.port())
}

/// The first address of a server in a kubeconfig.
fn address(kubeconfig: &str) -> Option<String> {
    let rest = &kubeconfig[kubeconfig.find("https://")?..];
    let end =
        rest[8..].find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != ':');
    Some(rest[..8 + end.unwrap_or(rest.len() - 8)].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_server_is_found() {
        let kubeconfig = "clusters:\n- cluster:\n    server: \"https://127.0.0.1:6443\"\n";
        assert_eq!(
            address(kubeconfig).as_deref(),
            Some("https://127.0.0.1:6443")
        );
        assert_eq!(address("none"), None);
    }
}
