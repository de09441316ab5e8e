//! What the server and each of its OCI commands can do, as CRI's Status tells it.

use std::{collections::BTreeMap, process::Command, time::Duration};

use cri::v1::{
    RuntimeCondition, RuntimeFeatures, RuntimeHandler, RuntimeHandlerFeatures, RuntimeStatus,
    StatusResponse,
};
use serde_json::Value;

use super::state::Runtime;
use crate::{config::Config, mount_tree};

/// A command that does not tell its features in this time is taken to have none.
const PATIENCE: Duration = Duration::from_secs(10);

impl Runtime {
    pub async fn status_response(&self, verbose: bool) -> StatusResponse {
        let (ready, reason, message) = match self.network_status().await {
            Ok(()) => (true, "", String::new()),
            Err(error) => (false, "NetworkPluginNotReady", error.to_string()),
        };
        let condition = |kind: &str, status, reason: &str, message| RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: reason.into(),
            message,
        };
        let mut info = std::collections::HashMap::new();
        if verbose {
            info.insert("config".to_owned(), described(&self.0.config).to_string());
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
            .0
            .handler_features
            .get_or_init(|| detect(self.0.config.clone()))
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

/// Asks every command once; a changed one counts from the next start of the server on.
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
    let mut asked = tokio::process::Command::from(asked);
    asked.kill_on_drop(true).stdin(std::process::Stdio::null());
    let answer = match tokio::time::timeout(PATIENCE, asked.output()).await {
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
        // Mapped mounts are made by us, before the command is called.
        user_namespaces: kernel && lists(&document["linux"]["namespaces"], "user"),
    }
}

/// What `crictl info` shows.
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
    fn features_are_what_the_document_says() {
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
