//! The per-pod shim: our binary again, single-threaded, outliving the server. It owns the pod's
//! processes (as their subreaper), their output and their exit codes, and has a child for each OCI
//! command. It never calls libcontainer itself and never reads images or CRI messages.

mod attachment;
pub mod client;
mod connection;
mod container;
mod daemon;
mod event_loop;
mod logs;
mod pause;
mod process;
pub mod protocol;
mod requests;
pub mod session;
mod streams;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// `coracle shim --data-dir D --id SANDBOX --directory DIR`, with the listening socket as standard
/// input. Returns at once; the shim goes on in the background.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(directory) = directory_of(arguments) else {
        eprintln!("usage: shim --data-dir DIR --id SANDBOX --directory DIR");
        return ExitCode::from(2);
    };
    match daemon::start(&directory) {
        Ok(daemon::Side::Parent) => ExitCode::SUCCESS,
        Ok(daemon::Side::Shim(shim)) => {
            let code = match shim.run() {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("shim: {error}");
                    1
                }
            };
            std::process::exit(code)
        }
        Err(error) => {
            eprintln!("shim: {}: {error}", directory.display());
            ExitCode::FAILURE
        }
    }
}

fn directory_of(arguments: impl IntoIterator<Item = OsString>) -> Option<PathBuf> {
    let mut arguments = arguments.into_iter();
    let mut directory = None;
    while let Some(name) = arguments.next() {
        let value = arguments.next()?;
        // The other arguments are there to be seen in the process list.
        if name == "--directory" {
            directory = Some(PathBuf::from(value));
        }
    }
    directory
}

/// Files inside a shim's directory.
pub struct Layout<'a>(pub &'a Path);

impl Layout<'_> {
    pub fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }
    pub fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
    /// Where the OCI command keeps its own state.
    pub fn oci_root(&self) -> PathBuf {
        self.0.join("oci")
    }
    /// The shim's pid and start time.
    pub fn pid(&self) -> PathBuf {
        self.0.join("pid")
    }
    pub fn log(&self) -> PathBuf {
        self.0.join("shim.log")
    }
    /// How a container ended, for a server that comes after the shim itself is gone.
    pub fn exit(&self, container: &str) -> PathBuf {
        self.0.join(format!("{container}.exit"))
    }
    pub fn bundle(&self, container: &str) -> PathBuf {
        self.0.join("bundles").join(container)
    }
}
