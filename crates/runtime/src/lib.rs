//! The embedded CRI runtime: images, snapshots, sandboxes, containers, the per-pod shim and the
//! OCI command. It speaks CRI over a Unix socket and decides nothing about pods; the kubelet does.
//!
//! # Layers
//! A module uses modules of lower layers only (`removal` also uses its neighbours `config` and
//! `cgroups`).
//!
//! | layer | modules | what they are |
//! |---|---|---|
//! | 7 | `service` | the CRI server |
//! | 6 | `shim` | the process per pod, which runs `oci`, and the server's client of it |
//! | 5 | `oci` | the command with runc's interface |
//! | 4 | `spec` | the OCI documents of sandboxes and containers |
//! | 3 | `records`, `in_use` | what is on disk about sandboxes and containers |
//! | 2 | `images`, `sandbox` | the image store; namespaces and CNI |
//! | 1 | `config`, `cgroups`, `snapshots`, `mount_points`, `removal` | settings, and one facility of the kernel each |
//! | 0 | `sys`, `mount_tree`, `copy_tree`, `remove_tree`, `disk_usage`, `own_executable`, `run_files`, `pause`, `signals`, `failpoint` | system calls |
//!
//! Inside `service`, from below: `host` (configuration, clock, paths), the tables of sandboxes and
//! containers (`sandbox_table`, `container_table`), `events` and `exits`, then one part per area of
//! CRI (`images`, `bundles`, `containers`, `pod_network`, `pause_process`, `sandboxes`, `execution`,
//! `streams`, `stats`, `metrics`, `features`), each with private state and the parts below it passed
//! in; `assembly` puts them together, and `runtime_api` and `image_api` answer the calls.
#![allow(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests may block"))]

#[allow(clippy::disallowed_methods, reason = "cgroupfs waits for no disk")]
pub mod cgroups;
#[allow(clippy::disallowed_methods, reason = "small files, read at the start")]
pub mod config;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod copy_tree;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod disk_usage;
pub mod failpoint;
pub mod images;
mod in_use;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod mount_points;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod mount_tree;
#[allow(clippy::disallowed_methods, reason = "its own one-threaded process")]
pub mod oci;
#[allow(clippy::disallowed_methods, reason = "small files, read at the start")]
mod own_executable;
#[allow(clippy::disallowed_methods, reason = "small files, read at the start")]
pub mod pause;
#[allow(clippy::disallowed_methods, reason = "appends a line without a sync")]
mod records;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod removal;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod remove_tree;
#[allow(clippy::disallowed_methods, reason = "files in memory")]
mod run_files;
mod sandbox;
mod service;
pub mod shim;
pub mod signals;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod snapshots;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod spec;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
mod sys;

pub use config::Config;
pub use in_use::{InUse, in_use};
pub use removal::remove_all;
pub use service::{Error, serve};
