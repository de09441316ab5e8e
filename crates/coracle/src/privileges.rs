//! Which commands need root, and what is said to those who are not.

use anyhow::{Result, bail};
use nix::unistd::Uid;

/// Refuses to go on as anybody but root: `command` changes the machine.
pub fn need_root(command: &str) -> Result<()> {
    check(command, Uid::effective().is_root())
}

fn check(command: &str, is_root: bool) -> Result<()> {
    if !is_root {
        bail!("`{command}` must be run as root, for example with sudo");
    }
    Ok(())
}

/// What to add to an error that says that something may not be read or written.
pub fn hint(error: &anyhow::Error) -> Option<&'static str> {
    let denied = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied);
    (denied && !Uid::effective().is_root())
        .then_some("only root may do this: run the command as root, for example with sudo")
}

#[cfg(test)]
mod tests {
    #[test]
    fn others_than_root_are_told_so_in_one_sentence() {
        let said = super::check("coracle up", false).unwrap_err().to_string();
        assert_eq!(
            said,
            "`coracle up` must be run as root, for example with sudo"
        );
        assert!(super::check("coracle up", true).is_ok());
    }
}
