//! CRI's resource numbers in the OCI specification's words.

use cri::v1::LinuxContainerResources;
use serde_json::{Map, Value, json};

use crate::cgroups::Hierarchies;

/// The `linux.resources` of a container. Zero means "not asked for" throughout.
pub fn to_oci(
    resources: &LinuxContainerResources,
    privileged: bool,
    hierarchies: &Hierarchies,
) -> Value {
    let mut result = Map::new();
    let mut cpu = Map::new();
    let mut set = |name: &str, value: i64| {
        if value != 0 {
            cpu.insert(name.into(), value.into());
        }
    };
    set("shares", resources.cpu_shares);
    set("quota", resources.cpu_quota);
    set("period", resources.cpu_period);
    for (name, value) in [
        ("cpus", &resources.cpuset_cpus),
        ("mems", &resources.cpuset_mems),
    ] {
        if !value.is_empty() {
            cpu.insert(name.into(), value.as_str().into());
        }
    }
    if !cpu.is_empty() {
        result.insert("cpu".into(), cpu.into());
    }
    if resources.memory_limit_in_bytes > 0 {
        let mut memory =
            Map::from_iter([("limit".to_owned(), resources.memory_limit_in_bytes.into())]);
        if resources.memory_swap_limit_in_bytes > 0 && has_swap_accounting(hierarchies) {
            memory.insert("swap".into(), resources.memory_swap_limit_in_bytes.into());
        }
        result.insert("memory".into(), memory.into());
    }
    if !resources.unified.is_empty() && hierarchies.legacy.is_empty() {
        result.insert("unified".into(), json!(resources.unified));
    }
    let huge: Vec<Value> = resources
        .hugepage_limits
        .iter()
        .filter(|limit| limit.limit > 0)
        .map(|limit| json!({"pageSize": limit.page_size, "limit": limit.limit}))
        .collect();
    if !huge.is_empty() {
        result.insert("hugepageLimits".into(), huge.into());
    }
    result.insert(
        "devices".into(),
        json!([{"allow": privileged, "access": "rwm"}]),
    );
    Value::Object(result)
}

fn has_swap_accounting(hierarchies: &Hierarchies) -> bool {
    match hierarchies.legacy_path("memory", "/") {
        Some(root) => root.join("memory.memsw.limit_in_bytes").exists(),
        None => true,
    }
}

/// The files to write for a change while the container runs: path in the group and value.
pub fn to_files(
    resources: &LinuxContainerResources,
    group: &str,
    hierarchies: &Hierarchies,
) -> Vec<(std::path::PathBuf, String)> {
    let mut files = Vec::new();
    let mut write =
        |controller: &str, old: &str, old_value: String, new: &str, new_value: String| {
            if let Some(directory) = hierarchies.legacy_path(controller, group) {
                files.push((directory.join(old), old_value));
            } else if let Some(directory) = hierarchies.unified_path(group) {
                files.push((directory.join(new), new_value));
            }
        };
    if resources.cpu_shares > 0 {
        let shares = resources.cpu_shares.clamp(2, 262_144);
        let weight = 1 + (shares - 2) * 9999 / 262_142;
        write(
            "cpu",
            "cpu.shares",
            shares.to_string(),
            "cpu.weight",
            weight.to_string(),
        );
    }
    let period = if resources.cpu_period > 0 {
        resources.cpu_period
    } else {
        100_000
    };
    if resources.cpu_quota != 0 {
        write(
            "cpu",
            "cpu.cfs_period_us",
            period.to_string(),
            "cpu.max",
            match resources.cpu_quota {
                quota if quota > 0 => format!("{quota} {period}"),
                _ => format!("max {period}"),
            },
        );
        if hierarchies.legacy_path("cpu", group).is_some() {
            let quota = resources.cpu_quota.max(-1).to_string();
            write("cpu", "cpu.cfs_quota_us", quota, "", String::new());
        }
    }
    if resources.memory_limit_in_bytes > 0 {
        let limit = resources.memory_limit_in_bytes.to_string();
        write(
            "memory",
            "memory.limit_in_bytes",
            limit.clone(),
            "memory.max",
            limit,
        );
    }
    for (name, value) in [
        ("cpuset.cpus", &resources.cpuset_cpus),
        ("cpuset.mems", &resources.cpuset_mems),
    ] {
        if !value.is_empty() {
            write("cpuset", name, value.clone(), name, value.clone());
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_appears() {
        let none = to_oci(
            &LinuxContainerResources::default(),
            false,
            &Hierarchies::default(),
        );
        assert_eq!(
            none,
            json!({"devices": [{"allow": false, "access": "rwm"}]})
        );
        let some = LinuxContainerResources {
            cpu_shares: 512,
            memory_limit_in_bytes: 1 << 20,
            ..Default::default()
        };
        let some = to_oci(&some, true, &Hierarchies::default());
        assert_eq!(some["cpu"], json!({"shares": 512}));
        assert_eq!(some["memory"], json!({"limit": 1 << 20}));
    }
}
