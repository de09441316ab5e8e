//! The OCI command runs from a sealed executable: it enters containers, which must not reach the
//! host's binary through `/proc/<pid>/exe`.

use std::{ffi::CString, os::unix::ffi::OsStrExt};

use super::Error;
use crate::own_executable::{is_sealed, sealed_executable};

/// Re-executes this process from a sealed executable unless it already runs from one.
pub fn ensure() -> Result<(), Error> {
    if is_sealed().map_err(Error::system("looking at our own executable"))? {
        return Ok(());
    }
    let executable = sealed_executable().map_err(Error::system("sealing our own executable"))?;
    let arguments: Vec<CString> = std::env::args_os()
        .filter_map(|argument| CString::new(argument.as_bytes()).ok())
        .collect();
    let environment: Vec<CString> = std::env::vars_os()
        .filter_map(|(name, value)| {
            let mut pair = name.into_encoded_bytes();
            pair.push(b'=');
            pair.extend_from_slice(value.as_bytes());
            CString::new(pair).ok()
        })
        .collect();
    let error = nix::unistd::execveat(
        &executable,
        c"",
        &arguments,
        &environment,
        nix::fcntl::AtFlags::AT_EMPTY_PATH,
    );
    match error {
        Ok(never) => match never {},
        Err(errno) => Err(Error::system("running our sealed executable")(errno)),
    }
}
