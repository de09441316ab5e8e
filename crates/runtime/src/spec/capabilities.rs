//! Which capabilities a container gets: the usual set, what is added and dropped, or everything.

use std::collections::BTreeSet;

use cri::v1::Capability;

/// The capabilities of a container that asks for none.
const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// Every capability, by its number.
const ALL: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

#[derive(Debug, thiserror::Error)]
#[error("unknown capability {0:?}")]
pub struct Unknown(String);

/// The set for a container, each as `CAP_…`. `held` is what this process itself may hand on.
pub fn choose(
    request: Option<&Capability>,
    privileged: bool,
    held: u64,
) -> Result<BTreeSet<String>, Unknown> {
    let available = |name: &&str| {
        ALL.iter()
            .position(|known| known == name)
            .is_some_and(|n| held >> n & 1 == 1)
    };
    let every = || ALL.iter().copied().filter(available);
    let mut chosen: BTreeSet<&str> = if privileged {
        every().collect()
    } else {
        DEFAULT.iter().copied().filter(available).collect()
    };
    if let (Some(request), false) = (request, privileged) {
        let added = names(&request.add_capabilities)?;
        let dropped = names(&request.drop_capabilities)?;
        // ALL first, then the single ones, so that `drop ALL, add X` means X alone.
        if added.contains("ALL") {
            chosen = every().collect();
        }
        if dropped.contains("ALL") {
            chosen.clear();
        }
        chosen.extend(added.iter().filter(|name| available(name)));
        for name in &dropped {
            chosen.remove(name);
        }
    }
    Ok(chosen
        .into_iter()
        .map(|name| format!("CAP_{name}"))
        .collect())
}

fn names(requested: &[String]) -> Result<BTreeSet<&'static str>, Unknown> {
    requested
        .iter()
        .map(|name| {
            let upper = name.to_ascii_uppercase();
            let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
            if bare == "ALL" {
                return Ok("ALL");
            }
            ALL.iter()
                .find(|known| **known == bare)
                .copied()
                .ok_or_else(|| Unknown(name.clone()))
        })
        .collect()
}

/// The capabilities this process may hand on, as a bit set.
pub fn held() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("CapBnd:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}

/// Whether resource limits may be raised and scores lowered.
pub fn has_sys_resource(held: u64) -> bool {
    held >> 24 & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(add: &[&str], drop: &[&str], expected: &[&str]) {
        let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let request = Capability {
            add_capabilities: text(add),
            drop_capabilities: text(drop),
            ..Capability::default()
        };
        let chosen = choose(Some(&request), false, u64::MAX).unwrap();
        assert_eq!(chosen.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn capabilities_are_added_and_dropped() {
        check(&["NET_ADMIN"], &["ALL"], &["CAP_NET_ADMIN"]);
        check(&[], &["ALL"], &[]);
        let drop_most: Vec<&str> = DEFAULT[1..].to_vec();
        check(
            &["cap_sys_time"],
            &drop_most,
            &["CAP_CHOWN", "CAP_SYS_TIME"],
        );
    }

    #[test]
    fn unknown_capabilities_are_refused() {
        let request = Capability {
            add_capabilities: vec!["FLY".into()],
            ..Capability::default()
        };
        assert!(choose(Some(&request), false, u64::MAX).is_err());
        assert_eq!(choose(None, true, u64::MAX).unwrap().len(), 41);
        assert_eq!(choose(None, true, 1).unwrap().len(), 1);
    }
}
