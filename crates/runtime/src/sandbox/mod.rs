//! What a sandbox needs from the machine: a network namespace, a CNI network in it, and the files
//! that its containers share. Processes are the shim's.

pub mod cni;
pub mod files;
pub mod netns;
pub mod userns;
