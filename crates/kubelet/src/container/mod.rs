//! From a container in a pod's spec to its configuration for CRI: environment, mounts, security,
//! resources. Nothing here talks to the runtime.

pub mod config;
pub mod dns;
pub mod env;
pub mod env_file;
pub mod expansion;
pub mod fields;
pub mod hosts;
pub mod sandbox;
pub mod security;
pub mod service_env;
pub mod termination_message;
pub mod users;
