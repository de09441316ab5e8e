//! PodDisruptionBudgets as preemption looks at them: which pods a budget protects, and which of a
//! node's pods cannot be preempted without violating one.

use std::sync::Arc;

use api::selector::LabelSelector;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use semantics::label_selector;

use crate::PodInfo;

/// A budget that allows a number of disruptions.
pub struct Budget {
    namespace: String,
    selector: LabelSelector,
    allowed: i32,
    /// Names of pods whose disruption is counted already.
    disrupted: Vec<String>,
}

impl Budget {
    /// `None` for a budget without a selector, which protects no pod.
    pub(crate) fn of(budget: &PodDisruptionBudget) -> Option<Budget> {
        let selector = label_selector::parse(Some(budget.spec.as_ref()?.selector.as_ref()?));
        let status = budget.status.as_ref();
        let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
        Some(Budget {
            namespace: budget.metadata.namespace.clone().unwrap_or_default(),
            selector,
            allowed: status
                .and_then(|status| status.disruptions_allowed)
                .unwrap_or(0),
            disrupted: disrupted
                .into_iter()
                .flat_map(|pods| pods.keys().cloned())
                .collect(),
        })
    }

    fn protects(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        labels.is_some_and(|labels| !labels.is_empty())
            && pod.metadata.namespace.as_deref().unwrap_or_default() == self.namespace
            && !self
                .disrupted
                .iter()
                .any(|name| Some(name) == pod.metadata.name.as_ref())
            && self
                .selector
                .matches(|name| labels?.get(name).map(String::as_str))
    }
}

/// The pods whose preemption would violate a budget, and the others, both in their order. A budget
/// allows the disruption of the pods that come first.
pub(crate) fn split_by_budgets(
    pods: Vec<Arc<PodInfo>>,
    budgets: &[Budget],
) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: Vec<i32> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.into_iter().partition(|pod| {
        let mut violates = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            if budget.protects(&pod.pod) {
                *left -= 1;
                violates |= *left < 0;
            }
        }
        violates
    })
}
