//! The one binary. `main` is the table of contents: parse the flags, run the command.
//!
//! Only this crate reads flags, the environment and signals.

/// Prints a line about something that was done. That nobody reads it any more is no reason to stop
/// half-way.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// Prints a line on standard error, if anybody reads it.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod agent;
mod claims;
mod cli;
mod components;
mod descriptors;
mod down;
mod first_start;
mod flags;
mod foreign_pods;
mod join;
mod keeper;
mod kubeconfig;
mod layout;
mod local_path;
mod pki;
mod privileges;
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

/// The requests of many connections allocate on every thread and free on others.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    if command.only_asks() {
        runtime::signals::end_on_closed_pipe();
    }
    match cli::run(command) {
        Ok(code) => code,
        Err(error) => {
            let hint = privileges::hint(&error).map(|hint| format!("; {hint}"));
            complain!("error: {}{}", told_once(&error), hint.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes in one line. Many errors tell their cause themselves.
fn told_once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("no such file")
            .context("reading a: no such file")
            .context("importing b");
        assert_eq!(
            super::told_once(&error),
            "importing b: reading a: no such file"
        );
    }
}
