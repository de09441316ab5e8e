//! Debian's docker-registry on loopback: plain, with passwords, behind TLS of a private authority.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Ended when dropped.
pub struct Registry {
    process: Child,
    pub port: u16,
}

/// What it asks of its clients, in its own configuration's words.
#[derive(Default)]
pub struct Demands {
    pub password_file: Option<PathBuf>,
    /// Certificate and key of the server.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The authority of clients.
    pub client_authority: Option<PathBuf>,
}

impl Registry {
    /// Serves `directory`, which several may share.
    pub async fn start(directory: &Path, demands: Demands) -> Result<Registry> {
        // A port is free when it is chosen; somebody may be faster.
        for _ in 0..5 {
            if let Some(registry) = Registry::serve(directory, &demands).await? {
                return Ok(registry);
            }
        }
        anyhow::bail!("the registry does not start")
    }

    /// Nothing when it has ended, as it does when its port is taken.
    async fn serve(directory: &Path, demands: &Demands) -> Result<Option<Registry>> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let mut config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n  delete: {{enabled: true}}\nhttp:\n  addr: \"127.0.0.1:{port}\"\n",
            directory.join("registry").display()
        );
        if let Some((certificate, key)) = &demands.tls {
            config += &format!(
                "  tls:\n    certificate: {}\n    key: {}\n",
                certificate.display(),
                key.display()
            );
            if let Some(authority) = &demands.client_authority {
                config += &format!("    clientcas: [{}]\n", authority.display());
            }
        }
        if let Some(file) = &demands.password_file {
            config += &format!(
                "auth:\n  htpasswd: {{realm: test, path: {}}}\n",
                file.display()
            );
        }
        let file = directory.join(format!("registry-{port}.yml"));
        std::fs::write(&file, config)?;
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut registry = Registry { process, port };
        for _ in 0..6000 {
            let asked = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
            // Whoever else has the port answers too, so this comes second.
            if registry.process.try_wait()?.is_some() {
                return Ok(None);
            }
            if asked.is_ok() {
                return Ok(Some(registry));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("the registry does not listen")
    }

    pub fn name(&self, repository: &str) -> String {
        format!("127.0.0.1:{}/{repository}", self.port)
    }

    /// Pushes an OCI archive to a registry that asks for nothing.
    pub fn push(&self, archive: &Path, repository: &str) -> Result<()> {
        let pushed = Command::new("skopeo")
            .args([
                "copy",
                "--quiet",
                "--insecure-policy",
                "--dest-tls-verify=false",
            ])
            .arg(format!("oci-archive:{}", archive.display()))
            .arg(format!("docker://{}", self.name(repository)))
            .stdin(Stdio::null())
            .output()?;
        let told = String::from_utf8_lossy(&pushed.stderr);
        ensure!(pushed.status.success(), "{told}");
        Ok(())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `tester` with the password `secret`, as docker-registry reads it.
pub fn password_file(directory: &Path) -> Result<PathBuf> {
    let file = directory.join("htpasswd");
    let line = "tester:$2b$04$uVifvi9cSZQwFyS/ROZaeuY9LxfH9QQoYqT6Qin4uEtiTovZamYdK\n";
    std::fs::write(&file, line)?;
    Ok(file)
}

/// A certificate authority of this test's own, its files in a directory.
pub struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pub certificate: PathBuf,
}

impl Authority {
    pub fn new(directory: &Path) -> Result<Authority> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let certificate = directory.join("authority.pem");
        std::fs::write(&certificate, parameters.self_signed(&key)?.pem())?;
        Ok(Authority {
            directory: directory.to_owned(),
            issuer: Issuer::new(parameters, key),
            certificate,
        })
    }

    /// A certificate for 127.0.0.1 and its key.
    pub fn issue(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        let parameters = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()])
            .context("names")?;
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        let paths = (
            self.directory.join(format!("{name}.cert")),
            self.directory.join(format!("{name}.key")),
        );
        std::fs::write(&paths.0, certificate.pem())?;
        std::fs::write(&paths.1, key.serialize_pem())?;
        Ok(paths)
    }
}
