//! The AppArmor profile of `RuntimeDefault`: a container may do what its capabilities and its file
//! system allow, but not mount, not change the kernel through `/proc` and `/sys`, and not signal or
//! trace what is outside. Loaded by `apparmor_parser`, which only exists where AppArmor is in use.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::Error;

pub const NAME: &str = "coracle-default";

/// Where packages install it.
const PARSERS: [&str; 2] = ["/sbin/apparmor_parser", "/usr/sbin/apparmor_parser"];

const PROFILE: &str = "\
profile coracle-default flags=(attach_disconnected, mediate_deleted) {
  network,
  deny network alg,
  deny network vsock,
  capability,
  file,
  umount,
  deny mount,
  signal (receive) peer=unconfined,
  signal (send, receive) peer=coracle-default,
  ptrace (read, readby, trace, tracedby) peer=coracle-default,
  unix,
  deny /proc/sysrq-trigger rwklx,
  deny /proc/kcore rwklx,
  deny /proc/kmem rwklx,
  deny /proc/mem rwklx,
  deny /proc/sys/fs/** wklx,
  deny /proc/sys/vm/** wklx,
  deny /proc/sys/debug/** wklx,
  deny /proc/sys/dev/** wklx,
  deny /proc/sys/kernel/{?,??,[^s][^h][^m]**} wklx,
  deny /proc/{acpi,bus,fs,irq,scsi}/** wklx,
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/fs/[^c]*/** wklx,
  deny /sys/fs/c[^g]*/** wklx,
  deny /sys/fs/cg[^r]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/kernel/security/** rwklx,
}
";

/// Loads the profile. Nothing is done again where it is loaded.
pub fn load(is_loaded: impl Fn(&str) -> bool) -> Result<(), Error> {
    if is_loaded(NAME) {
        return Ok(());
    }
    let parser = PARSERS
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
        .ok_or(Error::NoParser)?;
    feed(&parser).map_err(Error::Load)?;
    match is_loaded(NAME) {
        true => Ok(()),
        false => Err(Error::Load(format!("{} left it out", parser.display()))),
    }
}

fn feed(parser: &Path) -> Result<(), String> {
    let mut child = Command::new(parser)
        .args(["--replace", "--skip-cache"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(PROFILE.as_bytes())
            .map_err(|error| error.to_string())?;
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
