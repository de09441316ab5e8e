//! Commands that need root, and the hint for users who are not root.

use anyhow::{Result, bail};
use nix::unistd::Uid;

/// Rejects users other than root: `command` changes the machine.
pub fn require_root(command: &str) -> Result<()> {
    check(command, Uid::effective().is_root())
}

fn check(command: &str, is_root: bool) -> Result<()> {
    if !is_root {
        bail!("`{command}` must be run as root, for example with sudo");
    }
    Ok(())
}

/// The hint to add to an error that was caused by missing permissions.
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
    fn users_other_than_root_are_rejected() {
        let message = super::check("coracle up", false).unwrap_err().to_string();
        assert_eq!(
            message,
            "`coracle up` must be run as root, for example with sudo"
        );
        assert!(super::check("coracle up", true).is_ok());
    }
}
