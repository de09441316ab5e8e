//! CRI's resource limits in the form of the OCI specification.

use cri::v1::LinuxContainerResources;
use dbus::systemd::{INFINITY, Limits};
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
        if has_swap_accounting(hierarchies) {
            memory.insert("swap".into(), swap_limit(resources).into());
        }
        result.insert("memory".into(), memory.into());
    }
    if !resources.unified.is_empty() && hierarchies.legacy.is_empty() {
        result.insert("unified".into(), json!(resources.unified));
    }
    // One of none is a limit too.
    let counted = counts_huge_pages(hierarchies);
    let huge: Vec<Value> = resources
        .hugepage_limits
        .iter()
        .filter(|_| counted)
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

/// The `linux.resources` of a bundle as properties of a systemd unit.
pub fn to_systemd(resources: &Value) -> Limits {
    let (memory, cpu) = (&resources["memory"], &resources["cpu"]);
    let number = |value: &Value| value.as_i64().filter(|number| *number != 0);
    // A negative number is no limit.
    let bytes = |number: i64| u64::try_from(number).unwrap_or(INFINITY);
    let list = |value: &Value| value.as_str().map(str::to_owned);
    let limit = number(&memory["limit"]);
    Limits {
        memory: limit.map(bytes),
        // OCI counts memory and swap together.
        swap: match (number(&memory["swap"]), limit) {
            (Some(both), Some(limit)) if both >= limit && limit > 0 => Some(bytes(both - limit)),
            (Some(both), _) if both < 0 => Some(INFINITY),
            _ => None,
        },
        cpu_weight: number(&cpu["shares"]).map(|shares| cpu_weight(shares.cast_unsigned())),
        cpu_quota: number(&cpu["quota"]),
        cpu_period: number(&cpu["period"]).map(i64::cast_unsigned),
        processes: number(&resources["pids"]["limit"]).map(bytes),
        cpus: list(&cpu["cpus"]),
        memory_nodes: list(&cpu["mems"]),
    }
}

/// v1's shares in v2's weights, as runc, crun and libcontainer turn them: least, default and most of
/// the one are those of the other. (The kubelet's pods have another way.)
fn cpu_weight(shares: u64) -> u64 {
    match shares {
        0..=2 => 1,
        262_144.. => 10_000,
        shares => {
            let log = (shares as f64).log2();
            let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
            (10f64.powf(exponent).ceil() as u64).clamp(1, 10_000)
        }
    }
}

/// The limit of memory and swap together. Without a request there is no swap beyond the memory limit.
fn swap_limit(resources: &LinuxContainerResources) -> i64 {
    match resources.memory_swap_limit_in_bytes {
        0 => resources.memory_limit_in_bytes,
        limit => limit,
    }
}

fn counts_huge_pages(hierarchies: &Hierarchies) -> bool {
    match &hierarchies.unified {
        Some(root) if hierarchies.legacy.is_empty() => {
            let controllers = std::fs::read_to_string(root.join("cgroup.controllers"));
            controllers.is_ok_and(|all| all.split_whitespace().any(|name| name == "hugetlb"))
        }
        _ => hierarchies.legacy_path("hugetlb", "/").is_some(),
    }
}

fn has_swap_accounting(hierarchies: &Hierarchies) -> bool {
    match hierarchies.legacy_path("memory", "/") {
        Some(root) => root.join("memory.memsw.limit_in_bytes").exists(),
        // A kernel that swaps counts it, too.
        None => std::path::Path::new("/proc/swaps").exists(),
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
        write(
            "cpu",
            "cpu.shares",
            shares.to_string(),
            "cpu.weight",
            cpu_weight(shares.cast_unsigned()).to_string(),
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
        let both = swap_limit(resources);
        // v1 counts memory and swap together and never lets the one limit pass the other; v2 counts
        // swap by itself.
        let swap = (both - resources.memory_limit_in_bytes).max(0).to_string();
        let together = hierarchies
            .legacy_path("memory", group)
            .map(|directory| directory.join("memory.memsw.limit_in_bytes"))
            .filter(|file| file.exists());
        let before = together
            .as_ref()
            .and_then(|file| std::fs::read_to_string(file).ok())
            .and_then(|text| text.trim().parse::<u64>().ok());
        let swap_alone = hierarchies.legacy.is_empty()
            && hierarchies
                .unified_path(group)
                .is_some_and(|directory| directory.join("memory.swap.max").exists());
        let grows = before.is_some_and(|before| both.cast_unsigned() > before);
        let with_swap = |write: &mut dyn FnMut(&str, &str, String, &str, String)| {
            if together.is_some() || swap_alone {
                write(
                    "memory",
                    "memory.memsw.limit_in_bytes",
                    both.to_string(),
                    "memory.swap.max",
                    swap.clone(),
                );
            }
        };
        if grows {
            with_swap(&mut write);
        }
        write(
            "memory",
            "memory.limit_in_bytes",
            limit.clone(),
            "memory.max",
            limit,
        );
        if !grows {
            with_swap(&mut write);
        }
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
    // What only v2 has, by the names of its files; none of them leads elsewhere.
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
    fn changed_limits_are_written_to_the_mounted_hierarchy() {
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
    fn cpu_shares_become_the_same_weights_as_in_other_runtimes() {
        for (shares, weight) in [
            (0, 1),
            (2, 1),
            (256, 35),
            (512, 59),
            (1024, 100),
            (1 << 18, 10_000),
        ] {
            assert_eq!(cpu_weight(shares), weight, "{shares}");
        }
    }

    #[test]
    fn limits_of_a_bundle_become_systemd_properties() {
        let resources = json!({
            "memory": {"limit": 100, "swap": 150},
            "cpu": {"shares": 1024, "quota": -1, "period": 50_000, "cpus": "1"},
            "pids": {"limit": -1},
        });
        assert_eq!(
            to_systemd(&resources),
            Limits {
                memory: Some(100),
                swap: Some(50),
                cpu_weight: Some(100),
                cpu_quota: Some(-1),
                cpu_period: Some(50_000),
                processes: Some(INFINITY),
                cpus: Some("1".to_owned()),
                memory_nodes: None,
            }
        );
        assert_eq!(to_systemd(&json!({})), Limits::default());
    }

    #[test]
    fn limits_that_are_not_requested_are_left_out() {
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
        assert_eq!(some["memory"]["limit"], 1 << 20);
        // Where swap is counted, there is none beyond the limit unless it was asked for.
        let swap = &some["memory"]["swap"];
        assert!(swap.is_null() || *swap == 1 << 20, "{swap}");
    }
}
