//! Judges that set up machines of their own: the images of the conformance suite, parts of the
//! control plane and nodes that change places with upstream's, software of others, and virtual
//! machines. Each needs root, and most need Go. What they do to the machine is undone by
//! [`cleanup`] however they end.

pub mod cleanup;
mod command;
pub mod ecosystem;
pub mod images;
mod setting;
pub mod swap_control_plane;
pub mod swap_node;
pub mod test_vm;
