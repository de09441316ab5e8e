//! The binary: parses the flags and runs the command.
//!
//! Only this crate reads flags, environment variables and signals.
//!
//! | module | its part |
//! |---|---|
//! | `cli` | the flags of all commands; `get`, `apply`, `trace` and the other client commands |
//! | `up`, `down`, `keeper` | a cluster in the background |
//! | `server` → `node`; `agent` → `node` | what runs in the foreground |
//! | `components`, `runtime_command` | one component alone |
//! | `prepare`, `first_start`, `removal` | what a start creates, and how it is removed |
//! | `ticket`, `join`, `rotation`, `revocation` | nodes on other machines |
//! | `layout`, `claims`, `pki`, `kubeconfig`, `storage` | files, shared ranges and ports, certificates |
//! | `process`, `host`, `flags`, `privileges`, `descriptors` | the process and its machine |

/// Prints a line on standard output. A reader that has gone is ignored, so that a command which
/// changes the machine does not stop half-way.
macro_rules! print_line {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// Prints a line on standard error. A reader that has gone is ignored.
macro_rules! print_error {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod agent;
mod claims;
mod cli;
mod cluster_arguments;
mod components;
mod descriptors;
mod down;
mod first_start;
mod flags;
mod foreign_pods;
mod host;
mod join;
mod keeper;
mod kubeconfig;
mod layout;
mod local_path;
mod log_tail;
mod node;
mod node_configuration;
mod pki;
mod prepare;
mod privileges;
mod process;
mod removal;
mod revocation;
mod rotation;
mod runtime_command;
mod server;
mod simulate;
mod storage;
mod ticket;
mod up;

use std::process::ExitCode;

use clap::Parser;

/// Memory is often freed on another thread than the one that allocated it, which mimalloc handles
/// well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Blocked signals are inherited from the parent process. A shim with SIGCHLD blocked would hang.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    // A CNI plugin is called by its file name and without arguments.
    let mut arguments = std::env::args_os();
    let called_as = arguments.next().unwrap_or_default();
    if std::path::Path::new(&called_as).file_name() == Some("coracle-cni".as_ref()) {
        return network::cni::main();
    }
    // The shim and the OCI command parse their own arguments. They run once per pod or container
    // and must stay small and single-threaded.
    match arguments.next().as_deref().and_then(|name| name.to_str()) {
        Some("shim") => return runtime::shim::main(arguments),
        Some("oci") => return runtime::oci::main(arguments),
        Some("cni") => return network::cni::main(),
        _ => {}
    }
    let command = cli::Cli::parse().command;
    if command.is_client_command() {
        runtime::signals::end_on_closed_pipe();
    }
    match cli::run(command) {
        Ok(code) => code,
        Err(error) => {
            let hint = privileges::hint(&error).map(|hint| format!("; {hint}"));
            let error = environment::chain(error.as_ref());
            print_error!("error: {error}{}", hint.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}
