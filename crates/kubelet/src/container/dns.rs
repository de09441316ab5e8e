//! A pod's resolver configuration from its dnsPolicy and dnsConfig. Pure, but for the reading of
//! the host's resolv.conf, which the caller passes in.

use cri::v1::DnsConfig;
use k8s_openapi::api::core::v1::Pod;

use crate::pod_spec;

const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
/// Of one search path, and of all of them in a line.
const MAX_SEARCH: usize = 253;
const MAX_SEARCH_LINE: usize = 2048;

/// A pod's resolver configuration, and what had to be left out of it.
#[derive(Debug, Default, PartialEq)]
pub struct Formed {
    pub config: DnsConfig,
    /// The DNSConfigForming events.
    pub warnings: Vec<String>,
}

pub fn config(pod: &Pod, cluster_dns: &[String], domain: &str, host_resolv_conf: &str) -> Formed {
    let spec = pod_spec::spec(pod);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let policy = match spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "ClusterFirstWithHostNet" => "ClusterFirst",
        "ClusterFirst" if spec.host_network == Some(true) => "Default",
        policy => policy,
    };
    let host = parse(host_resolv_conf);
    let mut config = match policy {
        "None" => DnsConfig::default(),
        "ClusterFirst" if !cluster_dns.is_empty() => {
            let mut searches = vec![
                format!("{namespace}.svc.{domain}"),
                format!("svc.{domain}"),
                domain.to_owned(),
            ];
            searches.extend(host.searches);
            DnsConfig {
                servers: cluster_dns.to_vec(),
                searches,
                // The host's options are about the host's servers.
                options: vec!["ndots:5".to_owned()],
            }
        }
        _ => host,
    };
    if let Some(own) = &spec.dns_config {
        config
            .servers
            .extend(own.nameservers.iter().flatten().cloned());
        config
            .searches
            .extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            config
                .options
                .retain(|known| known.split(':').next() != Some(name));
            config.options.push(match &option.value {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name.clone(),
            });
        }
    }
    let mut seen = Vec::new();
    config
        .servers
        .retain(|server| first_time(&mut seen, server));
    seen.clear();
    config
        .searches
        .retain(|search| first_time(&mut seen, search));
    let mut warnings = Vec::new();
    if config.servers.len() > MAX_SERVERS {
        config.servers.truncate(MAX_SERVERS);
        warnings.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            config.servers.join(" ")
        ));
    }
    let asked = config.searches.len();
    config.searches.truncate(MAX_SEARCHES);
    config.searches.retain(|search| search.len() <= MAX_SEARCH);
    while config.searches.join(" ").len() > MAX_SEARCH_LINE {
        config.searches.pop();
    }
    if config.searches.len() < asked {
        warnings.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            config.searches.join(" ")
        ));
    }
    Formed { config, warnings }
}

fn first_time(seen: &mut Vec<String>, text: &str) -> bool {
    let new = !seen.iter().any(|known| known == text);
    if new {
        seen.push(text.to_owned());
    }
    new
}

fn parse(resolv_conf: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in resolv_conf.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                config.searches = words
                    .map(|word| word.trim_end_matches('.').to_owned())
                    .filter(|word| !word.is_empty())
                    .collect();
            }
            Some("options") => config.options = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOST: &str = "# host\nnameserver 192.0.2.1\nsearch corp.example.\noptions timeout:1\n";

    fn check(spec: serde_json::Value, servers: &[&str], searches: &[&str], options: &[&str]) {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"namespace": "shop"}, "spec": spec}))
                .expect("a pod");
        let config = config(&pod, &["10.96.0.10".to_owned()], "cluster.local", HOST).config;
        assert_eq!(config.servers, servers);
        assert_eq!(config.searches, searches);
        assert_eq!(config.options, options);
    }

    #[test]
    fn each_dns_policy_gives_its_configuration() {
        let cluster = [
            "shop.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
            "corp.example",
        ];
        let options = ["ndots:5"];
        check(json!({}), &["10.96.0.10"], &cluster, &options);
        check(
            json!({"dnsPolicy": "Default"}),
            &["192.0.2.1"],
            &["corp.example"],
            &["timeout:1"],
        );
        check(
            json!({"hostNetwork": true}),
            &["192.0.2.1"],
            &["corp.example"],
            &["timeout:1"],
        );
        check(
            json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
            &["10.96.0.10"],
            &cluster,
            &options,
        );
        check(
            json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.9"], "searches": ["a"],
                "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}}),
            &["192.0.2.9"],
            &["a"],
            &["ndots:2", "edns0"],
        );
    }

    #[test]
    fn too_many_name_servers_and_searches_are_left_out_with_a_warning() {
        let formed = |config: serde_json::Value| {
            let pod: Pod = serde_json::from_value(json!({"spec": {
                "containers": [], "dnsPolicy": "None", "dnsConfig": config}}))
            .expect("a pod");
            super::config(&pod, &[], "cluster.local", "")
        };
        let many = formed(json!({"nameservers": ["1", "2", "3", "4"]}));
        assert_eq!(
            many.warnings,
            [
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1 2 3"
            ]
        );
        let long = "x".repeat(254);
        let long = formed(json!({"searches": ["a", long, "b"]}));
        assert_eq!(
            long.warnings,
            [
                "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a b"
            ]
        );
        let wide: Vec<String> = (0..20)
            .map(|n| format!("{n:02}{}", "y".repeat(198)))
            .collect();
        let wide = formed(json!({ "searches": wide }));
        assert_eq!(wide.config.searches.len(), 10);
        assert_eq!(wide.warnings.len(), 1);
        assert!(formed(json!({"searches": ["a"]})).warnings.is_empty());
    }
}
