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
//! | 0 | `sys`, `mount_tree`, `copy_tree`, `remove_tree`, `own_executable`, `run_files`, `pause`, `signals`, `failpoint` | system calls |
//!
//! Inside `service`, from below: `host` (configuration, clock, paths), the tables of sandboxes and
//! containers (`sandbox_table`, `container_table`), `events` and `exits`, then one part per area of
//! CRI (`images`, `bundles`, `containers`, `pod_network`, `pause_process`, `sandboxes`, `execution`,
//! `streams`, `stats`, `metrics`, `features`), each with private state and the parts below it passed
//! in; `assembly` puts them together, and `runtime_api` and `image_api` answer the calls.
#![allow(unsafe_code)]

pub mod cgroups;
pub mod config;
mod copy_tree;
pub mod failpoint;
pub mod images;
mod in_use;
mod mount_points;
mod mount_tree;
pub mod oci;
mod own_executable;
pub mod pause;
mod records;
mod removal;
mod remove_tree;
mod run_files;
mod sandbox;
mod service;
pub mod shim;
pub mod signals;
mod snapshots;
mod spec;
mod sys;

pub use config::Config;
pub use in_use::{InUse, in_use};
pub use removal::remove_all;
pub use service::{Error, serve};
