//! What a sandbox needs from the machine: a network namespace, a CNI network in it, and the files
//! that its containers share. The shim starts its processes.

pub mod cni;
pub mod files;
pub mod netns;
pub mod userns;
