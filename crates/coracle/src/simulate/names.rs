//! The names of simulated objects: their namespace, labels, nodes and API paths.

pub const NAMESPACE: &str = "simulation";
/// The label of simulated nodes.
pub const SIMULATED: &str = "coracle.dev/simulated";
/// The number of zones over which the nodes are distributed.
pub const ZONES: usize = 3;

/// The name of a simulated node.
pub fn node_name(number: usize) -> String {
    format!("simulated-{number:05}")
}

/// The API path of the simulated pods.
pub fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}
