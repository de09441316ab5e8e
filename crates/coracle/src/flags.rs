//! Parsers of flag values: a wrong value is rejected while the flags are parsed, before anything is
//! changed. Also rejects flags that contradict an existing data directory.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use environment::go_duration;
use ipnet::Ipv4Net;

use crate::layout::Settings;

/// A flag has a value that it cannot have. The message says what is expected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(String);

pub fn invalid(message: &str) -> InvalidValue {
    InvalidValue(message.to_string())
}

/// A node's pod CIDR is a /24. The smallest range still has a gateway and some pods.
const POD_PREFIXES: std::ops::RangeInclusive<u8> = 8..=29;
/// The largest is upstream's. The smallest still has the tenth address, which is that of DNS.
const SERVICE_PREFIXES: std::ops::RangeInclusive<u8> = 12..=28;
/// A node's name is also the value of its label `kubernetes.io/hostname`.
const LONGEST_NODE_NAME: usize = 63;

/// The name of a Node.
pub fn node_name(text: &str) -> Result<String, InvalidValue> {
    if text.len() > LONGEST_NODE_NAME {
        return Err(InvalidValue(format!(
            "a node name must be no more than {LONGEST_NODE_NAME} characters"
        )));
    }
    match api::metadata::names::dns_subdomain(text).into_iter().next() {
        Some(problem) => Err(InvalidValue(problem)),
        None => Ok(text.to_string()),
    }
}

pub fn pod_range(text: &str) -> Result<String, InvalidValue> {
    range(text, POD_PREFIXES)
}

pub fn service_range(text: &str) -> Result<String, InvalidValue> {
    range(text, SERVICE_PREFIXES)
}

/// An address at which other machines reach this one.
pub fn node_address(text: &str) -> Result<IpAddr, InvalidValue> {
    let address: IpAddr = text
        .parse()
        .map_err(|_| invalid("expected an IP address, such as 192.0.2.10"))?;
    let kind = if address.is_loopback() {
        "loopback"
    } else if address.is_multicast() {
        "multicast"
    } else if address.is_unspecified() {
        "unspecified"
    } else {
        return Ok(address);
    };
    Err(InvalidValue(format!(
        "a node's address cannot be a {kind} address"
    )))
}

/// The path in `unix:///path` or `/path`.
pub fn socket_path(text: &str) -> Result<PathBuf, InvalidValue> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    match path.is_absolute() {
        true => Ok(path),
        false => Err(invalid(
            "expected the path of a socket, such as unix:///run/cri.sock",
        )),
    }
}

/// Rejects a flag whose value differs from the one the data directory was created with.
pub fn reject_change<T: Display + PartialEq>(
    flag: &str,
    given: Option<T>,
    stored: Option<T>,
) -> Result<()> {
    if given.is_none() || given == stored {
        return Ok(());
    }
    match stored {
        Some(stored) => {
            bail!("{flag} cannot be changed: this data directory was created with {stored}")
        }
        None => bail!("{flag} cannot be changed: this data directory was created without it"),
    }
}

/// Rejects flags that would change the identity of the node in a data directory.
pub fn reject_node_change(
    settings: &Settings,
    name: Option<&str>,
    address: Option<IpAddr>,
    runtime_endpoint: Option<&Path>,
) -> Result<()> {
    reject_change("--node-name", name, Some(settings.node_name.as_str()))?;
    reject_change("--node-ip", address, settings.node_address)?;
    reject_change(
        "--container-runtime-endpoint",
        runtime_endpoint.map(|socket| socket.display().to_string()),
        settings
            .runtime_endpoint
            .as_ref()
            .map(|socket| socket.display().to_string()),
    )
}

/// A filter of log lines.
pub fn log_filter(text: &str) -> Result<String, InvalidValue> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_string()),
        Err(problem) => Err(InvalidValue(format!(
            "expected a level or a list of targets with levels, such as info or \
             kubelet=debug,info: {problem}"
        ))),
    }
}

/// A duration as Go parses it (`1h30m`, `1.5s`, `500ms`, `-1s`), or a number of seconds. `None` means
/// a negative duration.
pub fn signed_duration(text: &str) -> Result<Option<Duration>, InvalidValue> {
    let parsed = match text.trim_start_matches(['-', '+']).parse::<u64>() {
        Ok(_) => go_duration::parse(&format!("{text}s")),
        Err(_) => go_duration::parse(text),
    };
    let nanoseconds = parsed.map_err(|_| {
        InvalidValue(format!(
            "\"{text}\" is not a duration such as 90s, 5m or 1h30m"
        ))
    })?;
    Ok(u64::try_from(nanoseconds).ok().map(Duration::from_nanos))
}

/// A duration that cannot be negative.
pub fn duration(text: &str) -> Result<Duration, InvalidValue> {
    signed_duration(text)?.ok_or_else(|| InvalidValue(format!("\"{text}\" is negative")))
}

/// Whether two IPv4 ranges have an address in common. A text that is no range has none.
pub fn overlap(one: &str, other: &str) -> bool {
    match (one.parse::<Ipv4Net>(), other.parse::<Ipv4Net>()) {
        (Ok(one), Ok(other)) => one.contains(&other) || other.contains(&one),
        _ => false,
    }
}

fn range(text: &str, prefixes: std::ops::RangeInclusive<u8>) -> Result<String, InvalidValue> {
    let parsed = text.parse::<Ipv4Net>().ok();
    // A number with leading zeros is decimal to some and octal to others.
    let range = parsed
        .filter(|range| range.to_string() == text)
        .ok_or_else(|| invalid("expected an IPv4 range, such as 10.244.0.0/16"))?;
    let prefix = range.prefix_len();
    if !prefixes.contains(&prefix) {
        return Err(InvalidValue(format!(
            "the prefix length must be between {} and {}",
            prefixes.start(),
            prefixes.end()
        )));
    }
    let start = range.network();
    if start != range.addr() {
        return Err(InvalidValue(format!(
            "the range begins at {start}: use {start}/{prefix}"
        )));
    }
    let last = range.broadcast();
    if start.octets()[0] == 0 || start.is_loopback() || last.octets()[0] >= 224 {
        return Err(invalid(
            "pods and Services cannot have addresses of this range",
        ));
    }
    Ok(format!("{start}/{prefix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_node_names_are_rejected() {
        for good in ["a", "node-1", "node-1.example.com", "1"] {
            assert_eq!(node_name(good), Ok(good.to_string()));
        }
        let long = "a".repeat(64);
        for bad in [
            "", "Node", "a_b", "a b", "-a", "a.", "a..b", "../a", "a/b", &long,
        ] {
            assert!(node_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn malformed_and_too_large_or_small_ranges_are_rejected() {
        assert_eq!(pod_range("10.244.0.0/16").unwrap(), "10.244.0.0/16");
        assert_eq!(service_range("10.96.0.0/12").unwrap(), "10.96.0.0/12");
        for bad in [
            "banana",
            "10.244.0.0",
            "10.244.0.0/",
            "10.244.0.0/33",
            "010.244.0.0/16",
            "10.244.0.0/-1",
            "10.244.0.0/30",
            "10.244.0.0/7",
            "fd00::/64",
            "300.0.0.0/16",
            "127.0.0.0/16",
            "0.0.0.0/8",
            "224.0.0.0/16",
        ] {
            assert!(pod_range(bad).is_err(), "{bad}");
        }
        assert!(service_range("10.0.0.0/11").is_err());
        assert!(service_range("10.0.0.0/29").is_err());
        let shifted = pod_range("10.244.1.0/16").unwrap_err().to_string();
        assert!(shifted.contains("use 10.244.0.0/16"), "{shifted}");
    }

    #[test]
    fn ranges_with_a_common_address_overlap() {
        assert!(overlap("10.96.0.0/12", "10.100.0.0/16"));
        assert!(overlap("10.100.0.0/16", "10.96.0.0/12"));
        assert!(!overlap("10.96.0.0/12", "10.244.0.0/16"));
        assert!(!overlap("banana", "10.244.0.0/16"));
    }

    #[test]
    fn durations_are_those_of_go_or_numbers_of_seconds() {
        let nanoseconds = |text| duration(text).map(|duration| duration.as_nanos()).ok();
        for (text, expected) in [
            ("0", 0),
            ("30", 30_000_000_000),
            ("+5s", 5_000_000_000),
            ("4m10.5s", 250_500_000_000),
        ] {
            assert_eq!(nanoseconds(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "m",
            "-",
            "--5",
            "1.5",
            "-1s",
            "-1",
            "9999999999999",
            "5S",
        ] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
        assert_eq!(signed_duration("-1s"), Ok(None));
        assert_eq!(signed_duration("-0s"), Ok(Some(Duration::ZERO)));
    }
}
