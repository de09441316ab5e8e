//! The action that a Job's `podFailurePolicy` has for a failed pod. Pure.

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyOnExitCodesRequirement};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// The failure counts towards the backoff limit.
    Count,
    Ignore,
    FailIndex,
    /// The Job fails, with this message.
    FailJob(String),
}

impl FailureAction {
    pub fn counts(&self) -> bool {
        *self != FailureAction::Ignore
    }
}

/// The first rule that matches decides; without one the failure counts.
pub fn action_for(job: &Job, pod: &Pod) -> FailureAction {
    let policy = job.spec.as_ref();
    let policy = policy.and_then(|spec| spec.pod_failure_policy.as_ref());
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    for (index, rule) in policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        let action = rule.action.as_str();
        let reason = if let Some(requirement) = &rule.on_exit_codes {
            matching_exit(pod, requirement).map(|(container, code)| {
                format!(
                    "Container {container} for pod {namespace}/{name} failed with exit code \
                     {code} matching {action} rule at index {index}"
                )
            })
        } else {
            let patterns = rule.on_pod_conditions.iter().flatten();
            let conditions = pod.status.iter();
            let conditions = conditions.flat_map(|status| status.conditions.iter().flatten());
            let mut conditions = conditions.filter(|condition| {
                patterns.clone().any(|pattern| {
                    let status = pattern.status.as_deref().unwrap_or("True");
                    pattern.type_ == condition.type_ && status == condition.status
                })
            });
            conditions.next().map(|condition| {
                let kind = &condition.type_;
                format!(
                    "Pod {namespace}/{name} has condition {kind} matching {action} rule at index \
                     {index}"
                )
            })
        };
        if let Some(reason) = reason {
            return match action {
                "Ignore" => FailureAction::Ignore,
                "FailIndex" => FailureAction::FailIndex,
                "FailJob" => FailureAction::FailJob(reason),
                _ => FailureAction::Count,
            };
        }
    }
    FailureAction::Count
}

/// The first container that failed with an exit code the rule speaks of.
fn matching_exit<'a>(
    pod: &'a Pod,
    requirement: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a str, i32)> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let containers = containers.chain(status.init_container_statuses.iter().flatten());
    let exit = |container: &'a ContainerStatus| {
        let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
        Some((container.name.as_str(), code))
    };
    containers
        .filter(|container| {
            let wanted = requirement.container_name.as_ref();
            wanted.is_none_or(|wanted| *wanted == container.name)
        })
        .filter_map(exit)
        .find(|(_, code)| {
            let listed = requirement.values.contains(code);
            *code != 0
                && match requirement.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    _ => false,
                }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(rules: serde_json::Value, exit_code: i32, condition: Option<&str>) -> FailureAction {
        let job: Job = serde_json::from_value(serde_json::json!({
            "spec": {"template": {}, "podFailurePolicy": {"rules": rules}},
        }))
        .unwrap();
        let conditions =
            condition.map(|kind| serde_json::json!([{"type": kind, "status": "True"}]));
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "ns", "name": "p"},
            "status": {"phase": "Failed", "conditions": conditions, "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": exit_code}},
            }]},
        }))
        .unwrap();
        action_for(&job, &pod)
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let rules = serde_json::json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes":
                {"containerName": "main", "operator": "In", "values": [3]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [7]}},
        ]);
        assert_eq!(
            judged(rules.clone(), 3, Some("DisruptionTarget")),
            FailureAction::Ignore
        );
        assert_eq!(
            judged(rules.clone(), 3, None),
            FailureAction::FailJob(
                "Container main for pod ns/p failed with exit code 3 matching FailJob rule at \
                 index 1"
                    .to_string()
            )
        );
        assert_eq!(judged(rules.clone(), 4, None), FailureAction::FailIndex);
        assert_eq!(judged(rules.clone(), 7, None), FailureAction::Count);
        // A container that ended well matches no rule.
        assert_eq!(judged(rules, 0, None), FailureAction::Count);
    }
}
