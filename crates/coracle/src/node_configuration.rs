//! The configuration files of a node in its data directory: `kubelet.yaml`, `kubelet.d` and
//! `runtime-handlers.json`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::layout::{Layout, Settings};

/// Rejects configuration files that cannot be used.
pub fn check(layout: &Layout) -> Result<()> {
    let configuration = kubelet(layout)?;
    cgroup_driver(&configuration)?;
    runtime_handlers(&layout.data_dir).map(drop)
}

pub fn kubelet(layout: &Layout) -> Result<kubelet::Configuration> {
    kubelet::Configuration::read(
        &layout.data_dir.join("kubelet.yaml"),
        &layout.data_dir.join("kubelet.d"),
    )
    .context("reading the kubelet's configuration")
}

pub fn cgroup_driver(
    configuration: &kubelet::Configuration,
) -> Result<runtime::config::CgroupDriver> {
    let driver = configuration.cgroup_driver.parse();
    driver
        .map_err(anyhow::Error::msg)
        .context("reading the kubelet's configuration")
}

/// The socket of the container runtime that runs the pods, or `None` for the embedded runtime.
pub fn foreign_runtime(layout: &Layout, settings: &Settings) -> Result<Option<PathBuf>> {
    match &settings.runtime_endpoint {
        Some(socket) => Ok(Some(socket.clone())),
        None => Ok(kubelet(layout)?.runtime_socket()),
    }
}

/// The OCI runtimes that a RuntimeClass can name: those that are installed, and those that
/// `runtime-handlers.json` in the data directory lists (`{"handler": ["program", "argument"]}`).
/// The file wins where both have a handler.
pub fn runtime_handlers(data_dir: &Path) -> Result<BTreeMap<String, Vec<OsString>>> {
    let mut handlers = runtime::config::installed_handlers();
    let file = data_dir.join("runtime-handlers.json");
    let listed: BTreeMap<String, Vec<String>> = match std::fs::read(&file) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).with_context(|| format!("reading {}", file.display()))?
        }
        Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    for (name, command) in listed {
        ensure!(
            !name.is_empty() && !command.is_empty(),
            "{}: a handler needs a name and a command",
            file.display()
        );
        handlers.insert(name, command.into_iter().map(OsString::from).collect());
    }
    Ok(handlers)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_listed_handler_replaces_an_installed_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("runtime-handlers.json");
        std::fs::write(&file, r#"{"runc": ["/opt/runc", "--debug"]}"#).unwrap();
        let handlers = super::runtime_handlers(directory.path()).unwrap();
        assert_eq!(handlers["runc"], ["/opt/runc", "--debug"]);
        std::fs::write(&file, r#"{"runc": []}"#).unwrap();
        assert!(super::runtime_handlers(directory.path()).is_err());
    }
}
