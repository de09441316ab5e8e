//! A binary for the integration tests: this crate's subcommands as `coracle` has them, and a bare
//! runtime server. Not part of any release.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program = arguments.next();
    match arguments.next().as_deref().and_then(|name| name.to_str()) {
        Some("shim") => runtime::shim::main(arguments),
        Some("oci") => runtime::oci::main(arguments),
        Some("serve") => serve(program.unwrap_or_default(), arguments.collect()),
        _ => ExitCode::from(2),
    }
}

/// `serve ROOT STATE CNI_CONF CLUSTER_ID OCI…`: the socket is `STATE/cri.sock`.
/// CNI plugins are looked for in `CNI_CONF/bin`, then among Debian's. The variable
/// `INSECURE_REGISTRIES` names registries, between commas, that are spoken to over plain http, and
/// `CGROUP_DRIVER` who makes cgroups.
fn serve(program: OsString, arguments: Vec<OsString>) -> ExitCode {
    let program = std::fs::canonicalize(program)
        .map(OsString::from)
        .unwrap_or_default();
    let [root, state, cni, cluster, oci @ ..] = arguments.as_slice() else {
        return ExitCode::from(2);
    };
    let state = PathBuf::from(state);
    let oci_command = if oci.is_empty() {
        vec![program.clone(), "oci".into()]
    } else {
        oci.to_vec()
    };
    let config = runtime::Config {
        root: root.into(),
        passage: state.parent().map(PathBuf::from).into_iter().collect(),
        socket: state.join("cri.sock"),
        cluster_id: cluster.to_string_lossy().into_owned(),
        data_dir: root.into(),
        cni_conf_dir: cni.into(),
        cni_bin_dirs: vec![PathBuf::from(cni).join("bin"), "/usr/lib/cni".into()],
        oci_command,
        cgroup_driver: std::env::var("CGROUP_DRIVER")
            .ok()
            .and_then(|name| name.parse().ok())
            .unwrap_or_default(),
        oci_handlers: runtime::config::installed_handlers(),
        shim_command: vec![program, "shim".into()],
        insecure_registries: std::env::var("INSECURE_REGISTRIES")
            .iter()
            .flat_map(|names| names.split(','))
            .map(str::to_owned)
            .collect(),
        registry_directories: vec![PathBuf::from(root).join("../registries")],
        own_plugin: None,
        boot_id_file: std::env::var_os("TEST_BOOT_ID_FILE")
            .unwrap_or_else(|| runtime::config::BOOT_ID_FILE.into())
            .into(),
        recorder: trace::Recorder::off(),
        state,
    };
    if let Some(number) = std::env::var("TEST_DIE_AT")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        runtime::failpoint::die_at(number);
    }
    let result = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
        .and_then(|tokio| {
            let environment = environment::Environment::system();
            tokio
                .block_on(runtime::serve(
                    config,
                    environment,
                    CancellationToken::new(),
                ))
                .map_err(|error| error.to_string())
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
