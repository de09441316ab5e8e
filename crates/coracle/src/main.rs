//! The one binary. `main` is the table of contents: parse the flags, run the command.
//!
//! Only this crate reads flags, the environment and signals.

mod agent;
mod claims;
mod cli;
mod components;
mod down;
mod keeper;
mod layout;
mod local_path;
mod pki;
mod runtime_command;
mod server;
mod storage;
mod ticket;
mod up;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Blocked signals are inherited; a shim that never hears of its children's end would hang, so
    // no command relies on whoever started it.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
    // CNI plugins are called by their file name, with no arguments.
    let mut arguments = std::env::args_os();
    let called_as = arguments.next().unwrap_or_default();
    if std::path::Path::new(&called_as).file_name() == Some("coracle-cni".as_ref()) {
        return network::cni::main();
    }
    // The shim and the OCI command are single-threaded and parse their own arguments: they run
    // once per pod or container and must stay small.
    match arguments.next().as_deref().and_then(|name| name.to_str()) {
        Some("shim") => return runtime::shim::main(arguments),
        Some("oci") => return runtime::oci::main(arguments),
        Some("cni") => return network::cni::main(),
        _ => {}
    }
    let command = cli::Cli::parse().command;
    match cli::run(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
