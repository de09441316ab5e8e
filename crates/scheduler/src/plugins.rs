//! The plugins, one file each.

pub mod assume;
pub mod default_binder;
pub mod image_locality;
pub mod node_affinity;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod taint_toleration;
pub mod volume_binding;
