//! The embedded CRI runtime: images, snapshots, sandboxes, containers, the per-pod shim and the
//! OCI command. It speaks CRI over a Unix socket and decides nothing about pods; that is the
//! kubelet's.
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
pub mod pause;
mod records;
mod removal;
mod remove_tree;
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
