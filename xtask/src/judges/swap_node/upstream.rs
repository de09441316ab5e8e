//! Upstream's parts: a control plane with an authority of its own, and a kubelet.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::stage::{MACHINE, PORT, Stage};
use crate::judges::command::{command, output, succeeds, wait_for};

const KUBELET: &str = include_str!("kubelet.yaml");

impl Stage<'_> {
    /// Everything but the node, whose kubeconfig is written.
    pub fn upstream_control_plane(&mut self) -> Result<()> {
        std::fs::create_dir_all(self.file("pki"))?;
        self.authority()?;
        let names = format!("DNS:kubernetes.default.svc,IP:{MACHINE},IP:10.96.0.1,IP:127.0.0.1");
        for (name, subject, names) in [
            ("server", "/CN=kube-apiserver", names.as_str()),
            (
                "apiserver-kubelet-client",
                "/O=system:masters/CN=kube-apiserver-kubelet-client",
                "",
            ),
            ("admin", "/O=system:masters/CN=admin", ""),
            ("scheduler", "/CN=system:kube-scheduler", ""),
            ("controllers", "/CN=system:kube-controller-manager", ""),
            ("node", "/O=system:nodes/CN=system:node:ours", ""),
            ("proxy", "/CN=system:kube-proxy", ""),
        ] {
            self.certificate(name, subject, names)?;
        }
        for name in ["admin", "scheduler", "controllers", "node", "proxy"] {
            self.kubeconfig(name)?;
        }
        let client = "http://127.0.0.1:2379";
        let data = self.file("etcd");
        self.start(
            "etcd",
            &mut command(&[
                "etcd",
                "--data-dir",
                &data,
                "--listen-client-urls",
                client,
                "--advertise-client-urls",
                client,
                "--listen-peer-urls",
                "http://127.0.0.1:2380",
            ]),
        )?;
        wait_for("etcd", 60, || {
            succeeds(&mut command(&[
                "curl",
                "-fs",
                "http://127.0.0.1:2379/health",
            ]))
        })?;
        self.api_server(client)?;
        let ready = ["get", "--raw", "/readyz"];
        wait_for("kube-apiserver", 180, || {
            succeeds(&mut self.kubectl(&ready))
        })?;
        self.controllers_and_scheduler()?;
        // The name by which upstream's API server knows itself to kubelets is an administrator's;
        // what the proxy may see is granted by whoever installs it.
        output(&mut self.kubectl(&[
            "create",
            "clusterrolebinding",
            "proxy",
            "--clusterrole",
            "system:node-proxier",
            "--user",
            "system:kube-proxy",
        ]))?;
        self.wait_for_api()
    }

    fn api_server(&mut self, etcd: &str) -> Result<()> {
        let pki = |name: &str| self.file(&format!("pki/{name}"));
        let mut server = Command::new(self.programs.upstream.join("kube-apiserver"));
        server
            .args(["--etcd-servers", etcd, "--secure-port", PORT])
            .args(["--advertise-address", MACHINE])
            .args(["--service-cluster-ip-range", "10.96.0.0/12"])
            .args(["--client-ca-file", &pki("ca.crt")])
            .args(["--tls-cert-file", &pki("server.crt")])
            .args(["--tls-private-key-file", &pki("server.key")])
            .args(["--authorization-mode", "Node,RBAC"])
            .args(["--enable-admission-plugins", "NodeRestriction"])
            .args([
                "--service-account-issuer",
                "https://kubernetes.default.svc.cluster.local",
            ])
            .args(["--service-account-key-file", &pki("accounts.key")])
            .args(["--service-account-signing-key-file", &pki("accounts.key")])
            .args([
                "--kubelet-client-certificate",
                &pki("apiserver-kubelet-client.crt"),
            ])
            .args(["--kubelet-client-key", &pki("apiserver-kubelet-client.key")])
            .args(["--kubelet-preferred-address-types", "InternalIP"]);
        self.start("kube-apiserver", &mut server).map(drop)
    }

    fn controllers_and_scheduler(&mut self) -> Result<()> {
        let mut controllers = Command::new(self.programs.upstream.join("kube-controller-manager"));
        controllers
            .args(["--kubeconfig", &self.file("controllers.kubeconfig")])
            .arg("--use-service-account-credentials")
            .args([
                "--service-account-private-key-file",
                &self.file("pki/accounts.key"),
            ])
            .args(["--root-ca-file", &self.file("pki/ca.crt")])
            .args(["--allocate-node-cidrs", "--cluster-cidr", "10.244.0.0/16"])
            .args([
                "--service-cluster-ip-range",
                "10.96.0.0/12",
                "--leader-elect=false",
            ]);
        self.start("kube-controller-manager", &mut controllers)?;
        let mut scheduler = Command::new(self.programs.upstream.join("kube-scheduler"));
        scheduler
            .args(["--kubeconfig", &self.file("scheduler.kubeconfig")])
            .arg("--leader-elect=false");
        self.start("kube-scheduler", &mut scheduler).map(drop)
    }

    fn authority(&self) -> Result<()> {
        openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=swap-ca",
            "-keyout",
            &self.file("pki/ca.key"),
            "-out",
            &self.file("pki/ca.crt"),
        ])?;
        openssl(&["genrsa", "-out", &self.file("pki/accounts.key"), "2048"])
    }

    fn certificate(&self, name: &str, subject: &str, names: &str) -> Result<()> {
        let [key, request, signed, extensions] =
            ["key", "csr", "crt", "ext"].map(|ending| self.file(&format!("pki/{name}.{ending}")));
        let mut text = "extendedKeyUsage=clientAuth,serverAuth\n".to_string();
        if !names.is_empty() {
            text.push_str(&format!("subjectAltName={names}\n"));
        }
        std::fs::write(&extensions, text)?;
        openssl(&[
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            subject,
            "-keyout",
            &key,
            "-out",
            &request,
        ])?;
        openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &self.file("pki/ca.crt"),
            "-CAkey",
            &self.file("pki/ca.key"),
            "-CAcreateserial",
            "-days",
            "2",
            "-out",
            &signed,
            "-extfile",
            &extensions,
        ])
    }

    /// A kubeconfig with the certificate of that name.
    pub fn kubeconfig(&self, name: &str) -> Result<()> {
        let pki = self.file("pki");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: swap\n\
             contexts: [{{name: swap, context: {{cluster: swap, user: {name}}}}}]\n\
             clusters: [{{name: swap, cluster: {{server: \"https://{MACHINE}:{PORT}\", certificate-authority: \"{pki}/ca.crt\"}}}}]\n\
             users: [{{name: {name}, user: {{client-certificate: \"{pki}/{name}.crt\", client-key: \"{pki}/{name}.key\"}}}}]\n"
        );
        std::fs::write(self.file(&format!("{name}.kubeconfig")), text)?;
        Ok(())
    }

    /// The configuration of upstream's kubelet, whose cgroups lie below one of ours.
    pub fn configure_kubelet(&mut self) -> Result<()> {
        for folder in ["kubelet", "pods", "plugins"] {
            std::fs::create_dir_all(self.file(folder))?;
        }
        let group = format!("coracle-swap-{}", std::process::id());
        for folder in hierarchies()? {
            std::fs::create_dir_all(folder.join(&group))?;
        }
        let cpuset = Path::new("/sys/fs/cgroup/cpuset");
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if cpuset.join(&group).join(file).exists() {
                let value = std::fs::read(cpuset.join(file))?;
                std::fs::write(cpuset.join(&group).join(file), value)?;
            }
        }
        let text = KUBELET
            .replace("STAGE", &self.folder.display().to_string())
            .replace("GROUP", &group);
        std::fs::write(self.file("kubelet.yaml"), text)?;
        Ok(())
    }
}

/// The unified hierarchy, or every one of cgroups v1.
fn hierarchies() -> Result<Vec<std::path::PathBuf>> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_path_buf()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let folder = entry?.path();
        if folder.join("cgroup.procs").exists() {
            found.push(folder);
        }
    }
    Ok(found)
}

fn openssl(arguments: &[&str]) -> Result<()> {
    let done = Command::new("openssl").args(arguments).output()?;
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "openssl {}: {errors}",
        arguments.join(" ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelets_configuration_has_its_places() {
        assert!(KUBELET.contains("cgroupRoot: /GROUP"));
        assert!(KUBELET.contains("unix://STAGE/cri.sock"));
        assert!(!KUBELET.contains('$'));
    }
}
