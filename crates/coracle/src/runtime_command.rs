//! `coracle runtime`: the container runtime alone, serving CRI to another kubelet, crictl or
//! critest. A node of a cluster has the same runtime inside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use environment::Environment;
use tokio_util::sync::CancellationToken;

use crate::descriptors;
use crate::flags;
use crate::layout::{new_cluster_id, private_dir};
use crate::node_configuration::runtime_handlers;
use crate::privileges;
use crate::process;

#[derive(Args)]
pub struct RuntimeArguments {
    /// Directory for images, containers and the runtime's own state
    #[arg(long, value_name = "DIR", default_value = "/var/lib/coracle-runtime")]
    data_dir: PathBuf,
    /// Unix socket to serve CRI on [default: cri.sock in the data directory]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Directory with CNI configurations; the first one is used for all pods
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Directory with CNI plugins; can be repeated
    #[arg(long, value_name = "DIR", default_values = ["/opt/cni/bin", "/usr/lib/cni"])]
    cni_bin_dir: Vec<PathBuf>,
    /// OCI runtime for pods without a RuntimeClass, such as /usr/bin/runc [default: the embedded one]
    #[arg(long, value_name = "PROGRAM")]
    oci_runtime: Option<PathBuf>,
    /// Cgroup driver: cgroupfs or systemd
    #[arg(long, value_name = "DRIVER", default_value = "cgroupfs")]
    cgroup_driver: runtime::config::CgroupDriver,
    /// Registry to use over plain HTTP, such as localhost:5000; can be repeated
    #[arg(long, value_name = "HOST")]
    insecure_registry: Vec<String>,
    /// Log filter, such as info, debug or runtime=debug,info
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = flags::log_filter)]
    log: String,
}

pub fn run(arguments: RuntimeArguments) -> Result<ExitCode> {
    privileges::require_root("coracle runtime")?;
    process::start_logging(&arguments.log, false)?;
    descriptors::raise();
    let environment = Environment::system();
    private_dir(&arguments.data_dir)?;
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
        oci_handlers: runtime_handlers(&data_dir)?,
        registry_directories: vec![data_dir.join("registries")],
        boot_id_file: runtime::config::BOOT_ID_FILE.into(),
        recorder: trace::Recorder::off(),
        data_dir,
        cni_conf_dir: arguments.cni_conf_dir,
        cni_bin_dirs: arguments.cni_bin_dir,
        own_plugin: Some(embedded_cni_plugin()),
        oci_command: match arguments.oci_runtime {
            Some(program) => vec![program.into()],
            None => command("oci"),
        },
        cgroup_driver: arguments.cgroup_driver,
        shim_command: descriptors::shim_command(&executable),
        insecure_registries: arguments.insecure_registry,
    };
    let shutdown = CancellationToken::new();
    process::run_on_all_cores(async move {
        let stop = shutdown.clone();
        tokio::spawn(async move {
            if process::wait_for_shutdown(&stop).await.is_ok() {
                stop.cancel();
            }
        });
        Ok(runtime::serve(config, environment, shutdown).await?)
    })
}

/// The embedded CNI plugin, which the runtime calls on a thread instead of starting a program.
pub fn embedded_cni_plugin() -> runtime::config::OwnPlugin {
    runtime::config::OwnPlugin {
        name: network::cni::PLUGIN,
        call: std::sync::Arc::new(|variables: &BTreeMap<&str, String>, input: &[u8]| {
            let variables = network::cni::Variables::from(|name| variables.get(name).cloned());
            let answer = network::cni::call(&variables, input);
            answer.map_err(|failure| -> Box<dyn std::error::Error + Send + Sync> { failure.into() })
        }),
    }
}

/// The id in all names that the kernel shows of this runtime, created at the first start.
fn cluster_id(data_dir: &Path, environment: &Environment) -> Result<String> {
    let file = data_dir.join("cluster-id");
    if let Ok(id) = std::fs::read_to_string(&file) {
        return Ok(id.trim().to_owned());
    }
    let id = new_cluster_id(environment);
    std::fs::write(&file, format!("{id}\n"))
        .with_context(|| format!("writing {}", file.display()))?;
    Ok(id)
}
