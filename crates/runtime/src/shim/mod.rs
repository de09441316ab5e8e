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
/// input. Returns at once; the shim goes on in the background. With `--open-files` it, and the
/// containers after it, get that soft limit instead of the one of whoever starts it.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(Arguments {
        directory,
        open_files,
    }) = Arguments::parse(arguments)
    else {
        eprintln!("usage: shim [--open-files NUMBER] --data-dir DIR --id SANDBOX --directory DIR");
        return ExitCode::from(2);
    };
    if let Some(soft) = open_files {
        limit_open_files(soft);
    }
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

/// The arguments that a shim uses; the others are only there to be seen in the process list.
struct Arguments {
    directory: PathBuf,
    open_files: Option<u64>,
}

impl Arguments {
    fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Arguments> {
        let mut arguments = arguments.into_iter();
        let (mut directory, mut open_files) = (None, None);
        while let Some(name) = arguments.next() {
            let value = arguments.next()?;
            if name == "--directory" {
                directory = Some(PathBuf::from(value));
            } else if name == "--open-files" {
                open_files = Some(value.to_str()?.parse().ok()?);
            }
        }
        Some(Arguments {
            directory: directory?,
            open_files,
        })
    }
}

fn limit_open_files(soft: u64) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Lowering the soft limit is always allowed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_the_directory_and_perhaps_a_limit() {
        let parse = |words: &str| {
            let words = words.split_whitespace().map(OsString::from);
            Arguments::parse(words).map(|parsed| (parsed.directory, parsed.open_files))
        };
        let directory = PathBuf::from("/d");
        assert_eq!(
            parse("--open-files 1024 --data-dir /x --id s --directory /d"),
            Some((directory.clone(), Some(1024)))
        );
        assert_eq!(parse("--id s --directory /d"), Some((directory, None)));
        assert_eq!(parse("--open-files many --directory /d"), None);
        assert_eq!(parse("--id s"), None);
    }
}
