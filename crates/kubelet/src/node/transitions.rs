//! What is told when the node's conditions change, when it is cordoned, and when the machine has been
//! rebooted. Pure.

use client::events::Severity;
use k8s_openapi::api::core::v1::NodeStatus;

/// Conditions with the words for `True` and for anything else.
const WORDS: [(&str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "NodeHasInsufficientMemory",
        "NodeHasSufficientMemory",
    ),
    (
        "DiskPressure",
        "NodeHasDiskPressure",
        "NodeHasNoDiskPressure",
    ),
    (
        "PIDPressure",
        "NodeHasInsufficientPID",
        "NodeHasSufficientPID",
    ),
    ("Ready", "NodeReady", "NodeNotReady"),
];

/// One event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
}

impl Told {
    fn status(name: &str, reason: &'static str) -> Told {
        Told {
            severity: Severity::Normal,
            reason,
            message: format!("Node {name} status is now: {reason}"),
        }
    }
}

/// What the change from `before` to `now` is worth telling.
pub fn between(name: &str, before: Option<&NodeStatus>, now: &NodeStatus) -> Vec<Told> {
    let condition = |status: &NodeStatus, type_: &str| {
        let mut conditions = status.conditions.iter().flatten();
        let found = conditions.find(|condition| condition.type_ == type_);
        found.map(|condition| condition.status.clone())
    };
    let boot = |status: &NodeStatus| status.node_info.as_ref().map(|info| info.boot_id.clone());
    let (old, new) = (before.and_then(boot), boot(now).unwrap_or_default());
    let rebooted = old.filter(|old| !old.is_empty() && *old != new);
    let rebooted = rebooted.map(|_| Told {
        severity: Severity::Warning,
        reason: "Rebooted",
        message: format!("Node {name} has been rebooted, boot id: {new}"),
    });
    let changed = WORDS.into_iter().filter_map(|(type_, yes, no)| {
        let status = condition(now, type_)?;
        let same = before.and_then(|before| condition(before, type_)).as_ref() == Some(&status);
        let reason = if status == "True" { yes } else { no };
        (!same).then(|| Told::status(name, reason))
    });
    rebooted.into_iter().chain(changed).collect()
}

/// The node takes pods again, or no longer.
pub fn cordon(name: &str, unschedulable: bool) -> Told {
    let reason = match unschedulable {
        true => "NodeNotSchedulable",
        false => "NodeSchedulable",
    };
    Told::status(name, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(boot: &str, ready: &str) -> NodeStatus {
        serde_json::from_value(serde_json::json!({
            "conditions": [{"type": "Ready", "status": ready},
                {"type": "DiskPressure", "status": "False"}],
            "nodeInfo": {"architecture": "", "bootID": boot, "containerRuntimeVersion": "",
                "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": ""},
        }))
        .expect("a status")
    }

    #[test]
    fn changes_are_told_once() {
        let reasons = |before: Option<&NodeStatus>, now: &NodeStatus| -> Vec<&str> {
            let told = between("n", before, now);
            told.into_iter().map(|told| told.reason).collect()
        };
        let first = status("1", "True");
        assert_eq!(
            reasons(None, &first),
            ["NodeHasNoDiskPressure", "NodeReady"]
        );
        assert!(reasons(Some(&first), &first).is_empty());
        let later = status("2", "False");
        assert_eq!(reasons(Some(&first), &later), ["Rebooted", "NodeNotReady"]);
        let told = between("n", Some(&first), &later);
        assert_eq!(told[0].message, "Node n has been rebooted, boot id: 2");
        assert_eq!(told[1].message, "Node n status is now: NodeNotReady");
        assert_eq!(cordon("n", true).reason, "NodeNotSchedulable");
    }
}
