//! What an operator decides about admission.

use std::sync::Arc;

/// Refuses Services with external IP addresses.
pub(crate) const DENY_EXTERNAL_IPS: &str = "DenyServiceExternalIPs";

/// What an operator decides about admission.
#[derive(Clone, Default)]
pub struct AdmissionConfig {
    /// Plugins that are off by default and were asked for, by name (see [`OPTIONAL_PLUGINS`]).
    pub enabled: Vec<String>,
    /// Which pod ranges the cluster gave to its nodes. Without it, nodes bring none of their own.
    pub pod_ranges: Option<GivenPodRanges>,
}

/// The plugins that are off by default.
pub const OPTIONAL_PLUGINS: [&str; 1] = [DENY_EXTERNAL_IPS];

/// Looks up the pod range that the cluster gave to the node of a name, if it gave one.
pub type GivenPodRanges =
    Arc<dyn Fn(&str) -> Result<Option<String>, UnknownPodRange> + Send + Sync>;

/// Which range a node was given is not known at the moment, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnknownPodRange(pub String);

impl AdmissionConfig {
    pub(crate) fn enables(&self, plugin: &str) -> bool {
        self.enabled.iter().any(|enabled| enabled == plugin)
    }

    /// Refuses names of plugins that cannot be switched on.
    pub(crate) fn check(&self) -> Result<(), crate::Error> {
        let mut enabled = self.enabled.iter();
        match enabled.find(|name| !OPTIONAL_PLUGINS.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(crate::Error::Configuration(format!(
                "the admission plugin {name:?} cannot be enabled; there are: {}",
                OPTIONAL_PLUGINS.join(", ")
            ))),
        }
    }
}
