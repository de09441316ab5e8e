//! Stands in for the crate of this name, which libcontainer uses for checkpoints of containers.
//!
//! Our runtime answers checkpoints as unimplemented, and the real crate takes a protobuf compiler
//! and two builds of a protobuf library to build: a minute of a clean build for code that never
//! runs. `[patch]` in the workspace's manifest puts this in its place. Every attempt fails with
//! [`CriuError`]; nothing here has an effect.

use std::os::fd::RawFd;

/// How CRIU would treat cgroups.
#[derive(Clone)]
pub enum CgMode {
    DEFAULT,
}

/// Checkpoints are left out of this build.
#[derive(Debug)]
pub struct CriuError;

impl std::fmt::Display for CriuError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("checkpoints are left out of this build")
    }
}

impl std::error::Error for CriuError {}

/// A checkpoint that is never made.
pub struct Criu;

impl Criu {
    /// Always fails, before libcontainer touches the container.
    pub fn new() -> Result<Criu, CriuError> {
        Err(CriuError)
    }

    pub fn get_criu_version(&mut self) -> Result<u32, CriuError> {
        Err(CriuError)
    }

    pub fn dump(&mut self) -> Result<(), CriuError> {
        Err(CriuError)
    }

    pub fn add_external(&mut self, _: String) {}

    pub fn cgroups_mode(&mut self, _: CgMode) {}

    pub fn set_ext_unix_sk(&mut self, _: bool) {}

    pub fn set_external_mount(&mut self, _: String, _: String) {}

    pub fn set_file_locks(&mut self, _: bool) {}

    pub fn set_images_dir_fd(&mut self, _: RawFd) {}

    pub fn set_leave_running(&mut self, _: bool) {}

    pub fn set_link_remap(&mut self, _: bool) {}

    pub fn set_log_file(&mut self, _: String) {}

    pub fn set_log_level(&mut self, _: i32) {}

    pub fn set_manage_cgroups(&mut self, _: bool) {}

    pub fn set_orphan_pts_master(&mut self, _: bool) {}

    pub fn set_pid(&mut self, _: i32) {}

    pub fn set_root(&mut self, _: String) {}

    pub fn set_shell_job(&mut self, _: bool) {}

    pub fn set_tcp_established(&mut self, _: bool) {}

    pub fn set_work_dir_fd(&mut self, _: RawFd) {}
}

/// The name of a namespace among the files of a checkpoint.
pub fn criu_ns_to_key(name: &str) -> String {
    name.to_string()
}
