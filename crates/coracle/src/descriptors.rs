//! The limit on open files: the server raises its own to the hard limit; containers get the limit
//! with which the server was started.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use tracing::warn;

/// The soft limit with which this process was started, once it has been raised.
static STARTED_WITH: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit to the hard limit.
pub fn raise() {
    match serving::descriptors::raise() {
        Ok(soft) => {
            let _ = STARTED_WITH.set(soft);
        }
        Err(error) => {
            warn!("Cannot raise the limit on open files, which may limit connections: {error}")
        }
    }
}

/// The command that starts a shim of `program`. Shims and their containers get the original limit.
pub fn shim_command(program: &Path) -> Vec<OsString> {
    let mut command = vec![program.into(), "shim".into()];
    if let Some(soft) = STARTED_WITH.get() {
        command.extend(["--open-files".into(), soft.to_string().into()]);
    }
    command
}
