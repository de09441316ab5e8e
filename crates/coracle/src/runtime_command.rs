//! `coracle runtime`: the container runtime alone, serving CRI to whoever asks (upstream's kubelet,
//! crictl, critest). The server has the same runtime inside; this is not part of a cluster.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use environment::Environment;
use tokio_util::sync::CancellationToken;

#[derive(Args)]
pub struct RuntimeArguments {
    /// Where images, containers and the runtime's own state are kept
    #[arg(long, value_name = "DIR", default_value = "/var/lib/coracle-runtime")]
    data_dir: PathBuf,
    /// Unix socket to serve CRI on [default: cri.sock in the data directory]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// The first CNI configuration in here is the pod network
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Where CNI plugins are
    #[arg(long, value_name = "DIR", default_values = ["/opt/cni/bin", "/usr/lib/cni"])]
    cni_bin_dir: Vec<PathBuf>,
    /// Use this OCI runtime instead of our own for pods without a RuntimeClass
    #[arg(long, value_name = "PROGRAM")]
    oci_runtime: Option<PathBuf>,
    /// Who makes cgroups: cgroupfs or systemd
    #[arg(long, value_name = "DRIVER", default_value = "cgroupfs")]
    cgroup_driver: runtime::config::CgroupDriver,
    /// Registries to speak plain http with
    #[arg(long, value_name = "HOST")]
    insecure_registry: Vec<String>,
    /// What to log
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = crate::flags::log_filter)]
    log: String,
}

pub fn run(arguments: RuntimeArguments) -> Result<ExitCode> {
    crate::privileges::need_root("coracle runtime")?;
    let filter = tracing_subscriber::EnvFilter::try_new(&arguments.log)
        .with_context(|| format!("--log {}", arguments.log))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    crate::descriptors::raise();
    let environment = Environment::system();
    crate::layout::private_dir(&arguments.data_dir)?;
    let data_dir = arguments.data_dir.canonicalize()?;
    let executable = std::env::current_exe()?;
    let command = |name: &str| vec![executable.clone().into_os_string(), name.into()];
    let config = runtime::Config {
        root: data_dir.join("runtime"),
        state: data_dir.join("state"),
        passage: vec![data_dir.clone()],
        socket: arguments
            .socket
            .unwrap_or_else(|| data_dir.join("cri.sock")),
        cluster_id: cluster_id(&data_dir, &environment)?,
        oci_handlers: handlers(&data_dir)?,
        registry_directories: vec![data_dir.join("registries")],
        boot_id_file: runtime::config::BOOT_ID_FILE.into(),
        recorder: trace::Recorder::off(),
        data_dir,
        cni_conf_dir: arguments.cni_conf_dir,
        cni_bin_dirs: arguments.cni_bin_dir,
        own_plugin: Some(own_plugin()),
        oci_command: match arguments.oci_runtime {
            Some(program) => vec![program.into()],
            None => command("oci"),
        },
        cgroup_driver: arguments.cgroup_driver,
        shim_command: crate::descriptors::shim_command(&executable),
        insecure_registries: arguments.insecure_registry,
    };
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    tokio.block_on(async move {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            stop.cancel();
        });
        runtime::serve(config, environment, shutdown).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Our CNI plugin, for a runtime that finds a link to this very file under its name.
pub fn own_plugin() -> runtime::config::OwnPlugin {
    runtime::config::OwnPlugin {
        name: network::cni::PLUGIN,
        call: std::sync::Arc::new(|variables: &BTreeMap<&str, String>, input: &[u8]| {
            let variables = network::cni::Variables::from(|name| variables.get(name).cloned());
            network::cni::call(&variables, input)
        }),
    }
}

/// The OCI runtimes that RuntimeClasses can name: those installed, and those that
/// `runtime-handlers.json` in the data directory lists (`{"handler": ["program", "argument"]}`),
/// which come before them.
pub fn handlers(data_dir: &std::path::Path) -> Result<BTreeMap<String, Vec<OsString>>> {
    let mut handlers = runtime::config::installed_handlers();
    let file = data_dir.join("runtime-handlers.json");
    let listed: BTreeMap<String, Vec<String>> = match std::fs::read(&file) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).with_context(|| format!("reading {}", file.display()))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    for (name, command) in listed {
        anyhow::ensure!(
            !name.is_empty() && !command.is_empty(),
            "{}: a handler needs a name and a command",
            file.display()
        );
        handlers.insert(name, command.into_iter().map(OsString::from).collect());
    }
    Ok(handlers)
}

/// Made once and kept: everything that the kernel shows of this runtime carries it.
fn cluster_id(data_dir: &std::path::Path, environment: &Environment) -> Result<String> {
    let file = data_dir.join("cluster-id");
    if let Ok(id) = std::fs::read_to_string(&file) {
        return Ok(id.trim().to_owned());
    }
    let mut bytes = [0; 3];
    environment.fill(&mut bytes);
    let id: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&file, format!("{id}\n")).with_context(|| file.display().to_string())?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    #[test]
    fn listed_handlers_come_before_installed_ones() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("runtime-handlers.json");
        std::fs::write(&file, r#"{"runc": ["/opt/runc", "--debug"]}"#).unwrap();
        let handlers = super::handlers(directory.path()).unwrap();
        assert_eq!(handlers["runc"], ["/opt/runc", "--debug"]);
        std::fs::write(&file, r#"{"runc": []}"#).unwrap();
        assert!(super::handlers(directory.path()).is_err());
    }
}
