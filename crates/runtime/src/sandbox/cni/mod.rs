//! The CNI specification's runtime side, versions 0.3.1 to 1.1: a configuration list, its plugins
//! run in order for ADD and CHECK and in reverse for DEL, results passed on and remembered; STATUS
//! before the first pod, GC for attachments without a sandbox.

mod configuration;
mod invoke;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use cri::v1::{DnsConfig, PortMapping, Protocol};
use serde_json::{Map, Value, json};

use crate::{config::OwnPlugin, run_files};
use configuration::Configuration;
use invoke::{Call, Environment, invoke};

/// The pod's interface.
const INTERFACE: &str = "eth0";

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
    configuration: Configuration,
    bin_dirs: Vec<PathBuf>,
    /// What this cluster remembers for CHECK and DEL, per attachment.
    cache: PathBuf,
    timeout: Duration,
    own_plugin: Option<OwnPlugin>,
}

/// One pod's attachment.
pub struct Attachment<'a> {
    pub sandbox: &'a str,
    /// `None` once the namespace is gone: the plugins then release what they keep outside of it.
    pub netns: Option<&'a Path>,
    pub pod_name: &'a str,
    pub pod_namespace: &'a str,
    pub pod_uid: &'a str,
    pub port_mappings: &'a [PortMapping],
    pub annotations: &'a std::collections::HashMap<String, String>,
    pub dns: Option<&'a DnsConfig>,
    pub cgroup_parent: &'a str,
}

impl Network {
    pub fn load(conf_dir: &Path, bin_dirs: &[PathBuf], cache: &Path) -> Result<Network, Error> {
        Ok(Network {
            configuration: Configuration::load(conf_dir)?,
            bin_dirs: bin_dirs.to_vec(),
            cache: cache.to_owned(),
            timeout: invoke::PLUGIN_TIMEOUT,
            own_plugin: None,
        })
    }

    /// The plugin that needs no process.
    pub fn with_own_plugin(mut self, plugin: Option<OwnPlugin>) -> Network {
        self.own_plugin = plugin;
        self
    }

    /// How long one plugin may take.
    #[cfg(test)]
    pub fn with_timeout(mut self, timeout: Duration) -> Network {
        self.timeout = timeout;
        self
    }

    /// Attaches the pod and returns its addresses. A failure is undone before it is returned.
    pub async fn add(&self, attachment: &Attachment<'_>) -> Result<Vec<IpAddr>, Error> {
        let mut previous: Option<Value> = None;
        for plugin in &self.configuration.plugins {
            let request = self.request(plugin, &capabilities(attachment), previous.as_ref());
            let added = self.call("ADD", plugin, Some(attachment), &request).await;
            let added = added.and_then(|result| match result {
                Value::Object(_) => Ok(result),
                _ => Err(Error::Plugin {
                    plugin: kind(plugin).to_owned(),
                    command: "ADD",
                    message: "no result".into(),
                }),
            });
            match added {
                Ok(result) => previous = Some(result),
                Err(error) => {
                    let args = capabilities(attachment);
                    let _ = self.del_with(attachment, &args, previous).await;
                    return Err(error);
                }
            }
        }
        let result = previous.unwrap_or(Value::Null);
        let stored = json!({
            "network": self.configuration.name, "container": attachment.sandbox,
            "interface": INTERFACE, "result": result, "capabilities": capabilities(attachment),
        });
        let _ = run_files::create_directory(&self.cache);
        let cached = self.cached(attachment.sandbox);
        if let Err(error) = run_files::write_private(&cached, stored.to_string().as_bytes()) {
            tracing::warn!(%error, "a CNI result could not be cached");
        }
        Ok(addresses(&result))
    }

    /// Detaches the pod; detaching twice is fine.
    pub async fn del(&self, attachment: &Attachment<'_>) -> Result<(), Error> {
        let (args, previous) = match self.remembered(attachment.sandbox) {
            Some((args, previous)) => (args, Some(previous)),
            None => (capabilities(attachment), None),
        };
        self.del_with(attachment, &args, previous).await?;
        let _ = run_files::remove(&self.cached(attachment.sandbox));
        Ok(())
    }

    /// Whether the attachment is still as ADD made it. Networks before 0.4.0, and those that ask
    /// not to be checked, are taken to be.
    pub async fn check(&self, attachment: &Attachment<'_>) -> Result<(), Error> {
        if self.configuration.disable_check || !self.configuration.is_at_least("0.4.0") {
            return Ok(());
        }
        let Some((args, previous)) = self.remembered(attachment.sandbox) else {
            return Ok(());
        };
        for plugin in &self.configuration.plugins {
            let request = self.request(plugin, &args, Some(&previous));
            self.call("CHECK", plugin, Some(attachment), &request)
                .await?;
        }
        Ok(())
    }

    /// Whether pods could be attached now. Plugins before 1.1 cannot be asked and are taken to be
    /// ready once they are there.
    pub async fn status(&self) -> Result<(), Error> {
        if !self.configuration.is_at_least("1.1.0") {
            return Ok(());
        }
        for plugin in &self.configuration.plugins {
            let request = self.request(plugin, &Map::new(), None);
            self.call("STATUS", plugin, None, &request).await?;
        }
        Ok(())
    }

    /// Makes the plugins release what belongs to none of the `living` sandboxes. Before 1.1 that is done
    /// by DEL for every attachment in the cache.
    pub async fn collect(&self, living: &BTreeSet<String>) -> Result<(), Error> {
        if self.configuration.disable_gc {
            return Ok(());
        }
        let mut failure = None;
        for sandbox in self.remembered_sandboxes() {
            if living.contains(&sandbox) {
                continue;
            }
            let nothing = std::collections::HashMap::new();
            let forgotten = Attachment {
                sandbox: &sandbox,
                netns: None,
                pod_name: "",
                pod_namespace: "",
                pod_uid: "",
                port_mappings: &[],
                annotations: &nothing,
                dns: None,
                cgroup_parent: "",
            };
            if let Err(error) = self.del(&forgotten).await {
                failure = Some(error);
            }
        }
        if self.configuration.is_at_least("1.1.0") {
            let valid: Vec<Value> = living
                .iter()
                .map(|sandbox| json!({"containerID": sandbox, "ifname": INTERFACE}))
                .collect();
            for plugin in &self.configuration.plugins {
                let mut request = self.request(plugin, &Map::new(), None);
                request["cni.dev/valid-attachments"] = valid.clone().into();
                if let Err(error) = self.call("GC", plugin, None, &request).await {
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    async fn del_with(
        &self,
        attachment: &Attachment<'_>,
        args: &Map<String, Value>,
        previous: Option<Value>,
    ) -> Result<(), Error> {
        let mut failure = None;
        for plugin in self.configuration.plugins.iter().rev() {
            // Before 0.4.0 DEL knows no previous result.
            let previous = previous
                .as_ref()
                .filter(|_| self.configuration.is_at_least("0.4.0"));
            let request = self.request(plugin, args, previous);
            if let Err(error) = self.call("DEL", plugin, Some(attachment), &request).await {
                failure = Some(error);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn cached(&self, sandbox: &str) -> PathBuf {
        self.cache.join(format!("{sandbox}.json"))
    }

    /// The capabilities and the result of an earlier ADD.
    fn remembered(&self, sandbox: &str) -> Option<(Map<String, Value>, Value)> {
        let bytes = run_files::read(&self.cached(sandbox)).ok()?;
        let mut stored: Value = serde_json::from_slice(&bytes).ok()?;
        let args = match stored["capabilities"].take() {
            Value::Object(args) => args,
            _ => Map::new(),
        };
        Some((args, stored["result"].take()))
    }

    fn remembered_sandboxes(&self) -> Vec<String> {
        let mut sandboxes: Vec<String> = run_files::names(&self.cache)
            .iter()
            .filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()))
            .collect();
        sandboxes.sort();
        sandboxes
    }

    /// The plugin's part of the configuration with what the runtime adds.
    fn request(
        &self,
        plugin: &Map<String, Value>,
        args: &Map<String, Value>,
        previous: Option<&Value>,
    ) -> Value {
        let mut request = plugin.clone();
        request.insert("name".into(), self.configuration.name.as_str().into());
        request.insert(
            "cniVersion".into(),
            self.configuration.version.as_str().into(),
        );
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
        let runtime: Map<String, Value> = args
            .iter()
            .filter(|(name, _)| can(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        request.remove("capabilities");
        if !runtime.is_empty() {
            request.insert("runtimeConfig".into(), runtime.into());
        }
        Value::Object(request)
    }

    async fn call(
        &self,
        command: &'static str,
        plugin: &Map<String, Value>,
        attachment: Option<&Attachment<'_>>,
        request: &Value,
    ) -> Result<Value, Error> {
        let call = Call {
            command,
            plugin: kind(plugin),
            bin_dirs: &self.bin_dirs,
            attachment: attachment.map(|attachment| Environment {
                container: attachment.sandbox,
                netns: attachment.netns,
                arguments: arguments(attachment),
            }),
            timeout: self.timeout,
            own_plugin: self.own_plugin.as_ref(),
        };
        invoke(&call, request).await
    }
}

fn kind(plugin: &Map<String, Value>) -> &str {
    plugin
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn arguments(attachment: &Attachment<'_>) -> String {
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
        attachment.pod_namespace, attachment.pod_name, attachment.sandbox, attachment.pod_uid
    )
}

/// The arguments for plugins that declare a capability, by the names of CNI's conventions.
fn capabilities(attachment: &Attachment<'_>) -> Map<String, Value> {
    let mut args = Map::new();
    let mappings = port_mappings(attachment.port_mappings);
    if !mappings.is_empty() {
        args.insert("portMappings".into(), mappings.into());
    }
    let bandwidth = bandwidth(attachment.annotations);
    if !bandwidth.is_empty() {
        args.insert("bandwidth".into(), bandwidth.into());
    }
    if let Some(dns) = attachment.dns {
        args.insert(
            "dns".into(),
            json!({"servers": dns.servers, "searches": dns.searches, "options": dns.options}),
        );
    }
    if !attachment.cgroup_parent.is_empty() {
        args.insert("cgroupPath".into(), attachment.cgroup_parent.into());
    }
    let annotations: BTreeMap<&String, &String> = attachment.annotations.iter().collect();
    if !annotations.is_empty() {
        args.insert(
            "io.kubernetes.cri.pod-annotations".into(),
            json!(annotations),
        );
    }
    args
}

fn port_mappings(mappings: &[PortMapping]) -> Vec<Value> {
    mappings
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

/// Kubernetes' annotations, in bits per second; bursts are as large as a plugin can take.
fn bandwidth(annotations: &std::collections::HashMap<String, String>) -> Map<String, Value> {
    let mut limits = Map::new();
    for (annotation, rate, burst) in [
        (
            "kubernetes.io/ingress-bandwidth",
            "ingressRate",
            "ingressBurst",
        ),
        (
            "kubernetes.io/egress-bandwidth",
            "egressRate",
            "egressBurst",
        ),
    ] {
        if let Some(bits) = annotations
            .get(annotation)
            .and_then(|text| bits_per_second(text))
        {
            limits.insert(rate.into(), bits.into());
            limits.insert(burst.into(), i64::from(i32::MAX).into());
        }
    }
    limits
}

/// A quantity as Kubernetes writes it: `10M`, `1Gi`, `500k`, `1e6`.
fn bits_per_second(text: &str) -> Option<i64> {
    let split = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    let factor = match suffix {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "Ki" => 1024.0,
        "Mi" => 1024f64.powi(2),
        "Gi" => 1024f64.powi(3),
        "Ti" => 1024f64.powi(4),
        "Pi" => 1024f64.powi(5),
        exponent => 10f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let bits = number.parse::<f64>().ok()? * factor;
    (bits >= 1.0 && bits < i64::MAX as f64).then_some(bits as i64)
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
mod tests;
