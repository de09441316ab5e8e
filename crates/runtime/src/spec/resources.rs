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
            } else if let Some(directory) = hierarchies
                .unified_path(group)
                .filter(|path| hierarchies.legacy.is_empty() || path.join(new).exists())
            {
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
    for limit in &resources.hugepage_limits {
        write(
            "hugetlb",
            &format!("hugetlb.{}.limit_in_bytes", limit.page_size),
            limit.limit.to_string(),
            &format!("hugetlb.{}.max", limit.page_size),
            limit.limit.to_string(),
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
    // Whatever v2 alone can say, by the names of its files; none of them leads elsewhere.
    if hierarchies.legacy.is_empty()
        && let Some(directory) = hierarchies.unified_path(group)
    {
        let ordered: std::collections::BTreeMap<_, _> = resources.unified.iter().collect();
        files.extend(
            ordered
                .into_iter()
                .filter(|(name, _)| !name.contains('/'))
                .map(|(name, value)| (directory.join(name), value.clone())),
        );
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_files_of_the_hierarchy_at_hand() {
        let limits = LinuxContainerResources {
            cpu_quota: 50_000,
            memory_limit_in_bytes: 1 << 20,
            hugepage_limits: vec![cri::v1::HugepageLimit {
                page_size: "2MB".into(),
                limit: 4 << 20,
            }],
            unified: [
                ("memory.high".to_owned(), "900000".to_owned()),
                ("../../memory.max".to_owned(), "1".to_owned()),
            ]
            .into(),
            ..Default::default()
        };
        let names = |hierarchies: &Hierarchies| -> Vec<String> {
            to_files(&limits, "/pod/c", hierarchies)
                .into_iter()
                .map(|(path, value)| format!("{} {value}", path.display()))
                .collect()
        };
        let unified = Hierarchies {
            unified: Some("/cg".into()),
            ..Hierarchies::default()
        };
        assert_eq!(
            names(&unified),
            [
                "/cg/pod/c/cpu.max 50000 100000",
                "/cg/pod/c/memory.max 1048576",
                "/cg/pod/c/hugetlb.2MB.max 4194304",
                "/cg/pod/c/memory.high 900000",
            ]
        );
        let legacy = Hierarchies {
            legacy: vec![
                (vec!["cpu".into()], "/cg/cpu".into()),
                (vec!["memory".into()], "/cg/memory".into()),
                (vec!["hugetlb".into()], "/cg/hugetlb".into()),
            ],
            unified: None,
        };
        assert_eq!(
            names(&legacy),
            [
                "/cg/cpu/pod/c/cpu.cfs_period_us 100000",
                "/cg/cpu/pod/c/cpu.cfs_quota_us 50000",
                "/cg/memory/pod/c/memory.limit_in_bytes 1048576",
                "/cg/hugetlb/pod/c/hugetlb.2MB.limit_in_bytes 4194304",
            ]
        );
    }

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
