//! Taints keep pods away that do not tolerate them; preferences among them only cost score.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use semantics::toleration::any_tolerates;

use crate::{
    NodeInfo, PodInfo, Snapshot,
    framework::{ClusterEvent, Filter, NodeScore, Plugin, Points, Scaling},
};

const REASON: &str = "node(s) had untolerated taint(s)";

pub struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn points(self: Arc<Self>) -> Points {
        Points {
            filter: Some(self.clone()),
            score: Some(self),
            ..Points::default()
        }
    }

    fn may_help(&self, event: &ClusterEvent<'_>, pod: &PodInfo) -> bool {
        match event {
            ClusterEvent::NodeAdded(node) => admits(node.taints(), pod),
            ClusterEvent::NodeChanged { old, new } => {
                let spec = old.spec.as_ref();
                let taints = spec.and_then(|spec| spec.taints.as_deref());
                !admits(taints.unwrap_or_default(), pod) && admits(new.taints(), pod)
            }
            _ => false,
        }
    }

    fn shape(&self, pod: &PodInfo, key: &mut String) -> bool {
        write_tolerations(pod, key);
        true
    }
}

/// For the shape of a pod: what it tolerates.
pub(crate) fn write_tolerations(pod: &PodInfo, key: &mut String) {
    for toleration in pod.tolerations() {
        let parts = [
            &toleration.key,
            &toleration.operator,
            &toleration.value,
            &toleration.effect,
        ];
        for part in parts {
            key.push_str(part.as_deref().unwrap_or_default());
            key.push('\t');
        }
    }
    key.push('\n');
}

impl Filter for TaintToleration {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Vec<String> {
        match admits(node.taints(), pod) {
            true => Vec::new(),
            false => vec![REASON.to_owned()],
        }
    }
}

impl NodeScore for TaintToleration {
    /// The number of taints the pod would rather not meet.
    fn score(&self, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let unwelcome = node.taints().iter().filter(|taint| {
            taint.effect == "PreferNoSchedule" && !any_tolerates(pod.tolerations(), taint)
        });
        unwelcome.count() as i64
    }

    fn scaling(&self) -> Scaling {
        Scaling::Reversed
    }
}

pub(crate) fn admits(taints: &[Taint], pod: &PodInfo) -> bool {
    taints
        .iter()
        .filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute")
        .all(|taint| any_tolerates(pod.tolerations(), taint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{node, pod};

    fn info(taints: &str) -> NodeInfo {
        let mut info = NodeInfo::new("n1");
        info.set_node(node("n1", &format!(r#"{{"taints":[{taints}]}}"#), "{}"));
        info
    }

    fn tolerating(tolerations: &str) -> std::sync::Arc<PodInfo> {
        let spec = format!(r#"{{"containers":[],"tolerations":[{tolerations}]}}"#);
        pod("web", &spec)
    }

    #[test]
    fn every_strict_taint_must_be_tolerated() {
        let check = |taints: &str, tolerations: &str, expected: bool| {
            let passes = TaintToleration.filter(&tolerating(tolerations), &info(taints));
            assert_eq!(
                passes.is_empty(),
                expected,
                "{taints} against {tolerations}"
            );
        };
        let taint = r#"{"key":"k","value":"v","effect":"NoSchedule"}"#;
        let evicting = r#"{"key":"k","value":"v","effect":"NoExecute"}"#;
        let mild = r#"{"key":"k","value":"v","effect":"PreferNoSchedule"}"#;
        let bare = r#"{"key":"k","effect":"NoSchedule"}"#;
        check("", "", true);
        check(taint, "", false);
        check(evicting, "", false);
        check(mild, "", true);
        check(taint, r#"{"operator":"Exists"}"#, true);
        check(taint, r#"{"key":"k","operator":"Exists"}"#, true);
        check(taint, r#"{"key":"other","operator":"Exists"}"#, false);
        check(taint, r#"{"key":"k","value":"v"}"#, true);
        check(taint, r#"{"key":"k","operator":"Equal","value":"v"}"#, true);
        check(taint, r#"{"key":"k","value":"w"}"#, false);
        check(bare, r#"{"key":"k"}"#, true);
        check(
            taint,
            r#"{"key":"k","operator":"Exists","effect":"NoExecute"}"#,
            false,
        );
        check(
            taint,
            r#"{"key":"k","operator":"Exists","effect":"NoSchedule"}"#,
            true,
        );
        let both = format!("{taint},{evicting}");
        check(
            &both,
            r#"{"key":"k","operator":"Exists","effect":"NoSchedule"}"#,
            false,
        );
        check(&both, r#"{"key":"k","operator":"Exists"}"#, true);
    }

    #[test]
    fn mild_taints_cost_score() {
        let mild =
            r#"{"key":"a","effect":"PreferNoSchedule"},{"key":"b","effect":"PreferNoSchedule"}"#;
        let snapshot = Snapshot::default();
        let score = |tolerations: &str| {
            TaintToleration.score(&tolerating(tolerations), &info(mild), &snapshot)
        };
        assert_eq!(score(""), 2);
        assert_eq!(score(r#"{"key":"a","operator":"Exists"}"#), 1);
        assert_eq!(
            score(r#"{"key":"a","operator":"Exists","effect":"NoSchedule"}"#),
            2
        );
        let scaled = [2, 1, 0].map(|score| TaintToleration.scaling().apply(score, 2));
        assert_eq!(scaled, [0, 50, 100]);
    }
}
