//! CRI's Status: whether the node is ready, and the features of the server and of each OCI runtime.

use std::{collections::BTreeMap, process::Stdio, sync::Arc, time::Duration};

use cri::v1::{
    RuntimeCondition, RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus,
    StatusResponse,
};
use serde_json::Value;
use tokio::{process::Command, sync::OnceCell};

use super::{host::Host, pod_network::PodNetwork};
use crate::{config::Config, mount_tree};

/// An OCI runtime that does not list its features in this time is taken to have none.
const FEATURES_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Features {
    host: Arc<Host>,
    network: Arc<PodNetwork>,
    /// The features of each OCI runtime, by handler; each runtime is asked once.
    handlers: OnceCell<BTreeMap<String, RuntimeHandlerFeatures>>,
}

impl Features {
    pub fn new(host: Arc<Host>, network: Arc<PodNetwork>) -> Features {
        Features {
            host,
            network,
            handlers: OnceCell::new(),
        }
    }

    pub async fn status(&self, verbose: bool) -> StatusResponse {
        let (ready, reason, message) = match self.network.status().await {
            Ok(()) => (true, "", String::new()),
            Err(error) => (
                false,
                "NetworkPluginNotReady",
                environment::chain(&error).to_string(),
            ),
        };
        let condition = |kind: &str, status, reason: &str, message| RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: reason.into(),
            message,
        };
        let mut info = std::collections::HashMap::new();
        if verbose {
            info.insert(
                "config".to_owned(),
                described(self.host.config()).to_string(),
            );
        }
        StatusResponse {
            status: Some(RuntimeStatus {
                conditions: vec![
                    condition("RuntimeReady", true, "", String::new()),
                    condition("NetworkReady", ready, reason, message),
                ],
            }),
            info,
            runtime_handlers: self.handlers().await,
            features: Some(RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
            }),
        }
    }

    async fn handlers(&self) -> Vec<RuntimeHandler> {
        let known = self
            .handlers
            .get_or_init(|| detect(self.host.config().clone()))
            .await;
        known
            .iter()
            .map(|(name, features)| RuntimeHandler {
                name: name.clone(),
                features: Some(*features),
            })
            .collect()
    }
}

/// Asks every OCI runtime for its features.
async fn detect(config: Config) -> BTreeMap<String, RuntimeHandlerFeatures> {
    let kernel = tokio::task::spawn_blocking(mount_tree::maps_ids)
        .await
        .unwrap_or(false);
    let ours = RuntimeHandlerFeatures {
        recursive_read_only_mounts: true,
        user_namespaces: kernel,
    };
    let mut known = BTreeMap::new();
    // A configured default that is not our own command is asked like the others.
    let is_ours = config.oci_command.last().is_some_and(|last| last == "oci");
    let default = match is_ours {
        true => ours,
        false => ask(&config.oci_command, kernel).await,
    };
    known.insert(String::new(), default);
    for (name, command) in &config.oci_handlers {
        known.insert(name.clone(), ask(command, kernel).await);
    }
    known
}

async fn ask(command: &[std::ffi::OsString], kernel: bool) -> RuntimeHandlerFeatures {
    let mut asked = Command::new(command.first().cloned().unwrap_or_default());
    asked.args(command.iter().skip(1)).arg("features");
    asked.kill_on_drop(true).stdin(Stdio::null());
    let answer = match tokio::time::timeout(FEATURES_TIMEOUT, asked.output()).await {
        Ok(Ok(output)) => serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        _ => Value::Null,
    };
    features(&answer, kernel)
}

/// From the `features` document of the OCI runtime specification.
fn features(document: &Value, kernel: bool) -> RuntimeHandlerFeatures {
    let lists = |list: &Value, word: &str| {
        list.as_array()
            .is_some_and(|words| words.iter().any(|known| known == word))
    };
    RuntimeHandlerFeatures {
        recursive_read_only_mounts: lists(&document["mountOptions"], "rro"),
        // The server makes mapped mounts itself, before it calls the OCI runtime.
        user_namespaces: kernel && lists(&document["linux"]["namespaces"], "user"),
    }
}

/// The configuration as `crictl info` shows it.
fn described(config: &Config) -> Value {
    let handlers: BTreeMap<&str, Vec<String>> = config
        .oci_handlers
        .iter()
        .map(|(name, command)| {
            let words = command
                .iter()
                .map(|word| word.to_string_lossy().into_owned());
            (name.as_str(), words.collect())
        })
        .collect();
    serde_json::json!({
        "rootDir": config.root, "stateDir": config.state, "cluster": config.cluster_id,
        "cni": {"confDir": config.cni_conf_dir, "binDirs": config.cni_bin_dirs},
        "handlers": handlers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_the_oci_document() {
        let document = serde_json::json!({
            "mountOptions": ["ro", "rro"],
            "linux": {"namespaces": ["mount", "user"]},
        });
        let found = features(&document, true);
        assert!(found.recursive_read_only_mounts && found.user_namespaces);
        assert!(!features(&document, false).user_namespaces);
        assert_eq!(
            features(&Value::Null, true),
            RuntimeHandlerFeatures::default()
        );
    }
}
