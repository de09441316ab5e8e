//! Two things about files that several parts of a node do: replacing a file so that no reader sees
//! half of it, and reading the kernel's table of mounts. Blocking; no Kubernetes word.

pub mod atomic_file;
pub mod mount_table;
