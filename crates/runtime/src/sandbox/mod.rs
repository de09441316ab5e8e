//! What a sandbox needs from the machine: a network namespace, a CNI network in it, and the files
//! that its containers share. The shim starts its processes.

pub mod cni;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
pub mod files;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
pub mod netns;
#[allow(clippy::disallowed_methods, reason = "called on blocking threads")]
pub mod userns;
