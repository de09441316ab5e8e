//! The scopes of a quota: which pods and claims it is about.

use crate::document::Value;
use crate::strategy::pod::qos;

/// One scope and what it demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub scope: String,
    pub operator: String,
    pub values: Vec<String>,
}

/// The scopes of `quota`, from both of the fields that have them.
pub fn requirements(quota: &Value) -> Vec<Requirement> {
    let plain = quota
        .list_at(&["spec", "scopes"])
        .iter()
        .map(|scope| Requirement {
            scope: scope.as_str().unwrap_or_default().to_string(),
            operator: "Exists".to_string(),
            values: Vec::new(),
        });
    let selected = quota
        .list_at(&["spec", "scopeSelector", "matchExpressions"])
        .iter();
    let selected = selected.map(|expression| Requirement {
        scope: expression.str_at(&["scopeName"]).to_string(),
        operator: expression.str_at(&["operator"]).to_string(),
        values: expression
            .list_at(&["values"])
            .iter()
            .filter_map(|value| value.as_str().map(str::to_string))
            .collect(),
    });
    plain.chain(selected).collect()
}

impl Requirement {
    pub fn matches_pod(&self, pod: &Value) -> bool {
        match self.scope.as_str() {
            "Terminating" => is_terminating(pod),
            "NotTerminating" => !is_terminating(pod),
            "BestEffort" => qos::class(pod) == "BestEffort",
            "NotBestEffort" => qos::class(pod) != "BestEffort",
            "PriorityClass" => self.selects(pod.str_at(&["spec", "priorityClassName"])),
            "CrossNamespacePodAffinity" => looks_elsewhere(pod),
            _ => false,
        }
    }

    /// A claim's attributes class may be one that is wanted or one that is in effect.
    pub fn matches_claim(&self, claim: &Value) -> bool {
        if self.scope != "VolumeAttributesClass" {
            return false;
        }
        let classes = [
            claim.str_at(&["spec", "volumeAttributesClassName"]),
            claim.str_at(&["status", "currentVolumeAttributesClassName"]),
            claim.str_at(&[
                "status",
                "modifyVolumeStatus",
                "targetVolumeAttributesClassName",
            ]),
        ];
        let mut given = classes
            .into_iter()
            .filter(|class| !class.is_empty())
            .peekable();
        match given.peek() {
            None => self.selects(""),
            Some(_) => given.any(|class| self.selects(class)),
        }
    }

    fn selects(&self, value: &str) -> bool {
        let listed = self.values.iter().any(|wanted| wanted == value);
        match self.operator.as_str() {
            "Exists" | "" => !value.is_empty(),
            "DoesNotExist" => value.is_empty(),
            "In" => !value.is_empty() && listed,
            "NotIn" => value.is_empty() || !listed,
            _ => false,
        }
    }
}

/// A pod that will end by itself.
pub fn is_terminating(pod: &Value) -> bool {
    let deadline = pod.i64_at(&["spec", "activeDeadlineSeconds"]);
    deadline.is_some_and(|seconds| seconds >= 0)
}

fn looks_elsewhere(pod: &Value) -> bool {
    let elsewhere = |term: &Value| {
        !term.list_at(&["namespaces"]).is_empty() || term.has(&["namespaceSelector"])
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let list = |name: &str| pod.list_at(&["spec", "affinity", kind, name]);
        list("requiredDuringSchedulingIgnoredDuringExecution")
            .iter()
            .any(elsewhere)
            || list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| weighted.get("podAffinityTerm").is_some_and(elsewhere))
    })
}
