//! What all judges share: the version they judge by, where they keep what they build, and the
//! packages and commands they need.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::command::{output, run};

pub const KUBERNETES: &str = "v1.36.4";

pub struct Setting {
    pub root: PathBuf,
    /// Everything built or fetched lies here, outside of the repository's own files.
    pub judges: PathBuf,
    target: PathBuf,
}

impl Setting {
    pub fn new(root: &Path) -> Setting {
        let absolute = |path: PathBuf| root.join(path);
        let target = absolute(
            variable("CARGO_TARGET_DIR")
                .unwrap_or("target".into())
                .into(),
        );
        let judges = match variable("JUDGES_DIR") {
            Some(folder) => absolute(folder.into()),
            None => target.join("judges"),
        };
        Setting {
            root: root.to_path_buf(),
            judges,
            target,
        }
    }

    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The binary to judge: `CORACLE`, or the release build.
    pub fn coracle(&self) -> Result<PathBuf> {
        let file = match variable("CORACLE") {
            Some(file) => PathBuf::from(file),
            None => self.target.join("release/coracle"),
        };
        file.canonicalize()
            .with_context(|| format!("{}: `make build` makes it", file.display()))
    }

    /// Where logs and results go: `RESULTS`, or a folder of that name.
    pub fn results(&self, name: &str) -> PathBuf {
        match variable("RESULTS") {
            Some(folder) => self.root.join(folder),
            None => self.judges.join(name),
        }
    }

    /// Builds commands of Kubernetes' own module; returns the folder they lie in.
    pub fn tools(&self, commands: &[&str]) -> Result<PathBuf> {
        let folder = output(self.script("conformance-tools").args(commands))?;
        Ok(folder.into())
    }

    /// One of the shell scripts beside us.
    pub fn script(&self, name: &str) -> Command {
        let mut command = Command::new(self.root.join("scripts").join(name));
        command.current_dir(&self.root);
        command
    }
}

/// Installs through apt what the machine lacks.
pub fn need_packages(packages: &[&str]) -> Result<()> {
    let is_installed = |package: &&&str| {
        Command::new("dpkg-query")
            .args(["-W", "-f", "${Status}", package])
            .output()
            .is_ok_and(|output| output.stdout == b"install ok installed")
    };
    let missing: Vec<&&str> = packages.iter().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    run(Command::new("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(missing)
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

/// An environment variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
