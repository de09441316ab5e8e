//! The limit on open files: ours is raised to what is allowed at most; containers keep the one this
//! program was started with.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use tracing::warn;

/// The soft limit this process was started with, once it has been raised.
static STARTED_WITH: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit to the hard limit.
pub fn raise() {
    match serving::descriptors::raise() {
        Ok(soft) => {
            let _ = STARTED_WITH.set(soft);
        }
        Err(error) => warn!("the limit on open files stays as it is: {error}"),
    }
}

/// Starts shims of `program`. They, and the containers they start, get the soft limit back.
pub fn shim_command(program: &Path) -> Vec<OsString> {
    let mut command = vec![program.into(), "shim".into()];
    if let Some(soft) = STARTED_WITH.get() {
        command.extend(["--open-files".into(), soft.to_string().into()]);
    }
    command
}
