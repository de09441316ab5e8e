//! The `/etc/hosts` file the kubelet manages for a pod's containers, and the pod's host name.

use k8s_openapi::api::core::v1::Pod;

use crate::pod_spec;

const MAX_HOST_NAME: usize = 63;
const MAX_KERNEL_NAME: usize = 64;

/// The host name, and the domain when the pod has a subdomain.
pub fn host_name(pod: &Pod, domain: &str) -> (String, Option<String>) {
    let spec = pod_spec::spec(pod);
    let set = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    if let Some(name) = set(&spec.hostname_override) {
        return (name, None);
    }
    let name = set(&spec.hostname).or_else(|| pod.metadata.name.clone());
    let name = name.unwrap_or_default();
    let name: String = name.chars().take(MAX_HOST_NAME).collect();
    let name = name.trim_end_matches(['-', '.']).to_owned();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let host_domain =
        set(&spec.subdomain).map(|subdomain| format!("{subdomain}.{namespace}.svc.{domain}"));
    (name, host_domain)
}

/// A full name that the kernel would not accept as a host name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {0} is too long ({MAX_KERNEL_NAME} characters is the max, {length} characters requested)",
    length = .0.len()
)]
pub struct NameTooLong(String);

/// The host name that the kernel gets: with `setHostnameAsFQDN` it is the full name.
pub fn kernel_name(pod: &Pod, domain: &str) -> Result<String, NameTooLong> {
    let (name, host_domain) = host_name(pod, domain);
    let spec = pod.spec.as_ref();
    let full = spec.and_then(|spec| spec.set_hostname_as_fqdn) == Some(true);
    match host_domain.filter(|_| full) {
        None => Ok(name),
        Some(domain) => {
            let full = format!("{name}.{domain}");
            if full.len() > MAX_KERNEL_NAME {
                return Err(NameTooLong(full));
            }
            Ok(full)
        }
    }
}

/// The file's content. `host_file`: the node's own file, given for pods on the host's network.
pub fn content(
    pod: &Pod,
    ips: &[String],
    name: &str,
    domain: Option<&str>,
    host_file: Option<&str>,
) -> String {
    let mut text = match host_file {
        Some(host_file) => format!("# Kubernetes-managed hosts file (host network).\n{host_file}"),
        None => {
            let mut text = String::from(
                "# Kubernetes-managed hosts file.\n\
                 127.0.0.1\tlocalhost\n\
                 ::1\tlocalhost ip6-localhost ip6-loopback\n\
                 fe00::\tip6-localnet\n\
                 fe00::\tip6-mcastprefix\n\
                 fe00::1\tip6-allnodes\n\
                 fe00::2\tip6-allrouters\n",
            );
            for ip in ips {
                match domain {
                    Some(domain) => text.push_str(&format!("{ip}\t{name}.{domain}\t{name}\n")),
                    None => text.push_str(&format!("{ip}\t{name}\n")),
                }
            }
            text
        }
    };
    let aliases = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.host_aliases.as_deref())
        .unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for alias in aliases {
            let names = alias.hostnames.as_deref().unwrap_or_default();
            text.push_str(&format!("{}\t{}\n", alias.ip, names.join("\t")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_names_the_pod_and_its_aliases() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "shop"},
            "spec": {"containers": [], "subdomain": "web",
                "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["a", "b"]}]},
        }))
        .expect("a pod");
        let (name, domain) = host_name(&pod, "cluster.local");
        assert_eq!(domain.as_deref(), Some("web.shop.svc.cluster.local"));
        let text = content(
            &pod,
            &["10.0.0.3".to_owned()],
            &name,
            domain.as_deref(),
            None,
        );
        assert!(
            text.contains("10.0.0.3\tweb-1.web.shop.svc.cluster.local\tweb-1\n"),
            "{text}"
        );
        assert!(text.ends_with("192.0.2.7\ta\tb\n"));
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
    }

    #[test]
    fn a_full_host_name_must_fit_the_kernels_limit() {
        let name = |namespace: &str| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "web-1", "namespace": namespace},
                "spec": {"containers": [], "subdomain": "web", "setHostnameAsFQDN": true},
            }))
            .expect("a pod");
            kernel_name(&pod, "cluster.local")
        };
        assert_eq!(
            name("shop").as_deref(),
            Ok("web-1.web.shop.svc.cluster.local")
        );
        let why = name(&"n".repeat(40)).expect_err("too long").to_string();
        assert!(
            why.ends_with("is too long (64 characters is the max, 68 characters requested)"),
            "{why}"
        );
    }
}
