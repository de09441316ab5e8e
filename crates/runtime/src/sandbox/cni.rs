//! The CNI specification's runtime side: a configuration list, its plugins run in order for ADD and
//! in reverse for DEL, results passed on. Versions 0.3.1 to 1.1.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    process::Stdio,
};

use cri::v1::{PortMapping, Protocol};
use serde_json::{Map, Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no network config found in {0}: cni plugin not initialized")]
    NotConfigured(PathBuf),
    #[error("network config {0}: {1}")]
    Configuration(PathBuf, String),
    #[error("failed to find plugin {0:?} in path {1:?}")]
    PluginMissing(String, Vec<PathBuf>),
    #[error("plugin type={plugin:?} failed ({command}): {message}")]
    Plugin {
        plugin: String,
        command: &'static str,
        message: String,
    },
}

/// A network as its configuration file describes it.
#[derive(Clone, Debug)]
pub struct Network {
    name: String,
    version: String,
    plugins: Vec<Map<String, Value>>,
    bin_dirs: Vec<PathBuf>,
    /// What this cluster remembers for DEL, per attachment.
    cache: PathBuf,
}

/// One pod's attachment.
pub struct Attachment<'a> {
    pub sandbox: &'a str,
    pub netns: &'a Path,
    pub pod_name: &'a str,
    pub pod_namespace: &'a str,
    pub pod_uid: &'a str,
    pub port_mappings: &'a [PortMapping],
}

impl Network {
    /// The first `.conflist`, `.conf` or `.json` in name order.
    pub fn load(conf_dir: &Path, bin_dirs: &[PathBuf], cache: &Path) -> Result<Network, Error> {
        let none = || Error::NotConfigured(conf_dir.to_owned());
        let mut files: Vec<PathBuf> = std::fs::read_dir(conf_dir)
            .map_err(|_| none())?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|kind| kind == "conflist" || kind == "conf" || kind == "json")
            })
            .collect();
        files.sort();
        let path = files.into_iter().next().ok_or_else(none)?;
        let broken = |message: String| Error::Configuration(path.clone(), message);
        let bytes = std::fs::read(&path).map_err(|error| broken(error.to_string()))?;
        let document: Map<String, Value> =
            serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        let text = |name: &str| {
            document
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let plugins = match document.get("plugins").and_then(Value::as_array) {
            Some(list) => list
                .iter()
                .filter_map(|plugin| plugin.as_object().cloned())
                .collect(),
            None => vec![document.clone()],
        };
        if plugins.is_empty() {
            return Err(broken("no plugins".into()));
        }
        Ok(Network {
            name: text("name").ok_or_else(|| broken("no name".into()))?,
            version: text("cniVersion").unwrap_or_else(|| "0.3.1".into()),
            plugins,
            bin_dirs: bin_dirs.to_vec(),
            cache: cache.to_owned(),
        })
    }

    /// Attaches the pod and returns its addresses. A failure is undone before it is returned.
    pub async fn add(&self, attachment: &Attachment<'_>) -> Result<Vec<IpAddr>, Error> {
        let mut previous: Option<Value> = None;
        for plugin in &self.plugins {
            let request = self.request(plugin, attachment, previous.as_ref());
            match self.invoke("ADD", plugin, attachment, &request).await {
                Ok(result) => previous = Some(result),
                Err(error) => {
                    let _ = self.del_with(attachment, previous).await;
                    return Err(error);
                }
            }
        }
        let result = previous.unwrap_or(Value::Null);
        let stored = json!({"network": self.name, "result": result, "portMappings": port_mappings(attachment)});
        let _ = std::fs::create_dir_all(&self.cache);
        if let Err(error) = std::fs::write(self.cached(attachment.sandbox), stored.to_string()) {
            tracing::warn!(%error, "cannot remember a CNI result");
        }
        Ok(addresses(&result))
    }

    /// Detaches the pod; detaching twice is fine.
    pub async fn del(&self, attachment: &Attachment<'_>) -> Result<(), Error> {
        let previous = std::fs::read(self.cached(attachment.sandbox))
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
            .map(|stored| stored["result"].clone());
        self.del_with(attachment, previous).await?;
        let _ = std::fs::remove_file(self.cached(attachment.sandbox));
        Ok(())
    }

    async fn del_with(
        &self,
        attachment: &Attachment<'_>,
        previous: Option<Value>,
    ) -> Result<(), Error> {
        let mut failure = None;
        for plugin in self.plugins.iter().rev() {
            let request = self.request(plugin, attachment, previous.as_ref());
            if let Err(error) = self.invoke("DEL", plugin, attachment, &request).await {
                failure = Some(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn cached(&self, sandbox: &str) -> PathBuf {
        self.cache.join(format!("{sandbox}.json"))
    }

    /// The plugin's part of the configuration with what the runtime adds.
    fn request(
        &self,
        plugin: &Map<String, Value>,
        attachment: &Attachment<'_>,
        previous: Option<&Value>,
    ) -> Value {
        let mut request = plugin.clone();
        request.insert("name".into(), self.name.as_str().into());
        request.insert("cniVersion".into(), self.version.as_str().into());
        if let Some(previous) = previous.filter(|previous| previous.is_object()) {
            request.insert("prevResult".into(), previous.clone());
        }
        let can = |capability: &str| {
            plugin
                .get("capabilities")
                .and_then(|capabilities| capabilities.get(capability))
                .and_then(Value::as_bool)
                .unwrap_or(false)
        };
        let mut runtime = Map::new();
        if can("portMappings") {
            let mappings = port_mappings(attachment);
            if !mappings.is_empty() {
                runtime.insert("portMappings".into(), mappings.into());
            }
        }
        request.remove("capabilities");
        if !runtime.is_empty() {
            request.insert("runtimeConfig".into(), runtime.into());
        }
        Value::Object(request)
    }

    async fn invoke(
        &self,
        command: &'static str,
        plugin: &Map<String, Value>,
        attachment: &Attachment<'_>,
        request: &Value,
    ) -> Result<Value, Error> {
        let kind = plugin
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let failed = |message: String| Error::Plugin {
            plugin: kind.to_owned(),
            command,
            message,
        };
        if kind.is_empty() || kind.contains('/') {
            return Err(failed("invalid plugin type".into()));
        }
        let executable = self
            .bin_dirs
            .iter()
            .map(|directory| directory.join(kind))
            .find(|path| path.is_file())
            .ok_or_else(|| Error::PluginMissing(kind.to_owned(), self.bin_dirs.clone()))?;
        let search =
            std::env::join_paths(&self.bin_dirs).map_err(|error| failed(error.to_string()))?;
        let arguments = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
            attachment.pod_namespace, attachment.pod_name, attachment.sandbox, attachment.pod_uid
        );
        let mut child = Command::new(executable)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", attachment.sandbox)
            .env("CNI_NETNS", attachment.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", arguments)
            .env("CNI_PATH", search)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A plugin that does not read its input tells why on its output.
            let _ = stdin.write_all(request.to_string().as_bytes()).await;
        }
        let output = child
            .wait_with_output()
            .await
            .map_err(|error| failed(error.to_string()))?;
        let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        if !output.status.success() {
            let told = answer.as_ref().and_then(|answer| {
                let message = answer.get("msg")?.as_str()?;
                let details = answer
                    .get("details")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                Some(if details.is_empty() {
                    message.to_owned()
                } else {
                    format!("{message}; {details}")
                })
            });
            let said = || {
                format!(
                    "{}: {}",
                    output.status,
                    String::from_utf8_lossy(&output.stderr).trim()
                )
            };
            return Err(failed(told.unwrap_or_else(said)));
        }
        if command == "ADD" {
            return answer.ok_or_else(|| failed("no result".into()));
        }
        Ok(Value::Null)
    }
}

fn port_mappings(attachment: &Attachment<'_>) -> Vec<Value> {
    attachment
        .port_mappings
        .iter()
        .filter(|mapping| mapping.host_port > 0)
        .map(|mapping| {
            let protocol = match mapping.protocol() {
                Protocol::Tcp => "tcp",
                Protocol::Udp => "udp",
                Protocol::Sctp => "sctp",
            };
            json!({
                "hostPort": mapping.host_port, "containerPort": mapping.container_port,
                "protocol": protocol, "hostIP": mapping.host_ip,
            })
        })
        .collect()
}

/// The pod's addresses, IPv4 first as the pod's primary one, else in the plugin's order.
fn addresses(result: &Value) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = result["ips"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|ip| ip["address"].as_str())
        .filter_map(|address| address.split('/').next()?.parse().ok())
        .collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_versions_are_read() {
        for result in [
            json!({"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.2.3/24", "interface": 1}]}),
            json!({"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}, {"address": "fd00::1/64"}]}),
        ] {
            assert_eq!(addresses(&result)[0], "10.1.2.3".parse::<IpAddr>().unwrap());
        }
        assert!(addresses(&Value::Null).is_empty());
    }

    #[test]
    fn the_first_configuration_counts() {
        let directory = tempfile::tempdir().unwrap();
        let load = || Network::load(directory.path(), &[], directory.path());
        assert!(matches!(load(), Err(Error::NotConfigured(_))));
        std::fs::write(
            directory.path().join("20-b.conf"),
            r#"{"name":"b","type":"bridge"}"#,
        )
        .unwrap();
        let list = r#"{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"ptp"}]}"#;
        std::fs::write(directory.path().join("10-a.conflist"), list).unwrap();
        let network = load().unwrap();
        assert_eq!(
            (network.name.as_str(), network.version.as_str()),
            ("a", "1.0.0")
        );
        std::fs::write(directory.path().join("00-broken.conf"), "{").unwrap();
        assert!(matches!(load(), Err(Error::Configuration(..))));
    }
}
