//! What several parts of a node do with files: replacing a file so that no reader sees half of it,
//! reading the kernel's table of mounts, and measuring disks. Blocking; no Kubernetes word.

pub mod atomic_file;
pub mod disk_space;
pub mod disk_usage;
pub mod mount_table;
