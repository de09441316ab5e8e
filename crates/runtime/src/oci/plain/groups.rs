//! The container's v1 control groups: made in every hierarchy that limits something, given their
//! limits, joined.

use std::{
    borrow::Cow,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::document::{Resources, Rule};
use crate::{
    cgroups::{Hierarchies, LIMITING},
    oci::Error,
};

/// What every container may use, regardless of what it is denied: any node may be made, and the usual ones,
/// terminals and tunnels be used.
const ALLOWED: [&str; 12] = [
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 5:0 rwm",
    "c 1:9 rwm",
    "c 1:8 rwm",
    "c *:* m",
    "b *:* m",
    "c 5:1 rwm",
    "c 136:* rwm",
    "c 5:2 rwm",
    "c 10:200 rwm",
];

pub struct Groups<'a> {
    hierarchies: &'a Hierarchies,
    group: &'a str,
    directories: Vec<PathBuf>,
}

impl<'a> Groups<'a> {
    pub fn new(hierarchies: &'a Hierarchies, group: &'a str) -> Groups<'a> {
        let mut directories: Vec<PathBuf> = Vec::new();
        for controller in LIMITING {
            if let Some(directory) = hierarchies.legacy_path(controller, group)
                && !directories.contains(&directory)
            {
                directories.push(directory);
            }
        }
        Groups {
            hierarchies,
            group,
            directories,
        }
    }

    pub fn create(&self, resources: &Resources) -> Result<(), Error> {
        for directory in &self.directories {
            fs::create_dir_all(directory)
                .map_err(Error::system(directory.display().to_string()))?;
        }
        if let Some(directory) = self.hierarchies.legacy_path("cpuset", self.group) {
            self.inherit_cpus()
                .map_err(Error::system(directory.display().to_string()))?;
        }
        for (controller, file, value) in limits(resources) {
            let missing = || Error::Container(format!("there is no {controller} cgroup"));
            let directory = self.hierarchies.legacy_path(controller, self.group);
            write(&directory.ok_or_else(missing)?.join(&*file), &value)?;
        }
        if let Some(directory) = self.hierarchies.legacy_path("devices", self.group) {
            limit_devices(&directory, &resources.devices)?;
        }
        Ok(())
    }

    /// A new cpuset group has no processors and no memory nodes, and no process can join it like that.
    fn inherit_cpus(&self) -> io::Result<()> {
        let Some(mut above) = self.hierarchies.legacy_path("cpuset", "/") else {
            return Ok(());
        };
        let mut parts = self.group.split('/').filter(|part| !part.is_empty());
        parts.try_for_each(|part| {
            let below = above.join(part);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let own = below.join(file);
                if fs::read_to_string(&own)?.trim().is_empty() {
                    fs::write(own, fs::read(above.join(file))?)?;
                }
            }
            above = below;
            Ok(())
        })
    }

    /// Moves this process into them.
    pub fn join(&self) -> Result<(), Error> {
        for directory in &self.directories {
            write(&directory.join("cgroup.procs"), "0")?;
        }
        Ok(())
    }
}

/// Controller, file and value, in the order in which the kernel wants them.
fn limits(resources: &Resources) -> Vec<(&'static str, Cow<'static, str>, String)> {
    let mut limits: Vec<(_, Cow<'static, str>, _)> = Vec::new();
    if let Some(cpu) = &resources.cpu {
        for (controller, file, value) in [
            ("cpu", "cpu.shares", cpu.shares.map(|n| n.to_string())),
            (
                "cpu",
                "cpu.cfs_period_us",
                cpu.period.map(|n| n.to_string()),
            ),
            ("cpu", "cpu.cfs_quota_us", cpu.quota.map(|n| n.to_string())),
            ("cpuset", "cpuset.cpus", cpu.cpus.clone()),
            ("cpuset", "cpuset.mems", cpu.mems.clone()),
        ] {
            limits.extend(value.map(|value| (controller, file.into(), value)));
        }
    }
    if let Some(memory) = &resources.memory {
        for (file, value) in [
            ("memory.limit_in_bytes", memory.limit),
            ("memory.memsw.limit_in_bytes", memory.swap),
        ] {
            limits.extend(value.map(|value| ("memory", file.into(), value.to_string())));
        }
    }
    limits.extend(resources.hugepage_limits.iter().map(|pages| {
        let file = format!("hugetlb.{}.limit_in_bytes", pages.page_size);
        ("hugetlb", file.into(), pages.limit.to_string())
    }));
    limits
}

/// The rules in their order, then what everybody may. A container that was denied nothing needs no
/// more.
fn limit_devices(directory: &Path, rules: &[Rule]) -> Result<(), Error> {
    let allow = directory.join("devices.allow");
    let deny = directory.join("devices.deny");
    for rule in rules {
        let file = if rule.allow { &allow } else { &deny };
        write(file, &rule_text(rule))?;
    }
    for text in ALLOWED {
        write(&allow, text)?;
    }
    Ok(())
}

fn rule_text(rule: &Rule) -> String {
    let number = |number: Option<i64>| match number {
        Some(number) if number >= 0 => number.to_string(),
        _ => "*".to_owned(),
    };
    let kind = rule.kind.as_deref().unwrap_or("a");
    let access = match rule.access.as_str() {
        "" => "rwm",
        access => access,
    };
    format!(
        "{kind} {}:{} {access}",
        number(rule.major),
        number(rule.minor)
    )
}

/// Writes an existing file with one system call.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::system(format!("{text} to {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_in_the_kernels_order() {
        let resources: Resources = serde_json::from_value(serde_json::json!({
            "cpu": {"quota": 5000, "period": 10000, "shares": 7, "cpus": "0-1"},
            "memory": {"limit": 1048576, "swap": 2097152},
            "hugepageLimits": [{"pageSize": "2MB", "limit": 0}],
            "devices": [{"allow": false, "access": "rwm"},
                {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw"}],
        }))
        .unwrap();
        let limits = limits(&resources);
        let files: Vec<&str> = limits.iter().map(|(_, file, _)| &**file).collect();
        assert_eq!(
            files,
            [
                "cpu.shares",
                "cpu.cfs_period_us",
                "cpu.cfs_quota_us",
                "cpuset.cpus",
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                "hugetlb.2MB.limit_in_bytes",
            ]
        );
        let rules: Vec<String> = resources.devices.iter().map(rule_text).collect();
        assert_eq!(rules, ["a *:* rwm", "c 10:229 rw"]);
    }
}
