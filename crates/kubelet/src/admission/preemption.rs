//! Chooses the pods that are preempted so that a critical pod finds room. Pure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::Shortage;
use crate::{
    pod_spec::{is_critical, priority},
    resources::{self, QosClass},
};

/// The victims, least important first, or what would be missing even without all of them.
pub fn victims(
    critical: &Pod,
    shortages: &[Shortage],
    running: &[Arc<Pod>],
) -> Result<Vec<Arc<Pod>>, Vec<Shortage>> {
    let mut candidates: Vec<&Arc<Pod>> = running
        .iter()
        .filter(|pod| !is_critical(pod) || priority(pod) < priority(critical))
        .filter(|pod| pod.metadata.uid != critical.metadata.uid)
        .collect();
    candidates.sort_by_key(|pod| {
        let class = match resources::qos_class(pod) {
            QosClass::BestEffort => 0,
            QosClass::Burstable => 1,
            QosClass::Guaranteed => 2,
        };
        (class, priority(pod), pod.metadata.uid.clone())
    });
    let missing: Vec<Shortage> = shortages
        .iter()
        .map(|shortage| Shortage {
            resource: shortage.resource.clone(),
            amount: shortage.amount
                - candidates
                    .iter()
                    .map(|pod| frees(pod, shortage))
                    .sum::<i64>(),
        })
        .filter(|shortage| shortage.amount > 0)
        .collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    let mut chosen: Vec<Arc<Pod>> = Vec::new();
    for shortage in shortages {
        let freed: i64 = chosen.iter().map(|pod| frees(pod, shortage)).sum();
        let mut missing = shortage.amount - freed;
        for pod in &candidates {
            if missing <= 0 {
                break;
            }
            let is_chosen = chosen.iter().any(|one| Arc::ptr_eq(one, pod));
            let amount = frees(pod, shortage);
            if is_chosen || amount == 0 {
                continue;
            }
            missing -= amount;
            chosen.push((*pod).clone());
        }
    }
    // What a later, larger victim made needless may stay.
    let mut index = 0;
    while index < chosen.len() {
        let enough = shortages.iter().all(|shortage| {
            let freed: i64 = chosen
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .map(|(_, pod)| frees(pod, shortage))
                .sum();
            freed >= shortage.amount
        });
        if enough {
            chosen.remove(index);
        } else {
            index += 1;
        }
    }
    Ok(chosen)
}

fn frees(pod: &Pod, shortage: &Shortage) -> i64 {
    match shortage.resource.as_str() {
        "pods" => 1,
        resource => resources::pod_request(pod, resource),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod_spec::CRITICAL_PRIORITY;

    fn pod(uid: &str, priority: i32, cpu: &str) -> Arc<Pod> {
        let pod = serde_json::json!({
            "metadata": {"uid": uid},
            "spec": {"priority": priority, "containers": [
                {"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn the_fewest_and_least_important_leave() {
        let critical = pod("x", CRITICAL_PRIORITY, "1");
        let running = [pod("a", 0, "100m"), pod("b", 5, "900m"), pod("c", 9, "1")];
        let names = |amount: i64| -> Option<Vec<String>> {
            let shortage = Shortage {
                resource: "cpu".to_owned(),
                amount,
            };
            let victims = victims(&critical, &[shortage], &running).ok()?;
            Some(
                victims
                    .iter()
                    .filter_map(|pod| pod.metadata.uid.clone())
                    .collect(),
            )
        };
        assert_eq!(names(100), Some(vec!["a".to_owned()]));
        assert_eq!(
            names(900),
            Some(vec!["b".to_owned()]),
            "a alone was not enough"
        );
        assert_eq!(names(5000), None);
        let other = pod("y", CRITICAL_PRIORITY, "1");
        let shortage = Shortage {
            resource: "cpu".to_owned(),
            amount: 1,
        };
        assert_eq!(
            victims(&critical, std::slice::from_ref(&shortage), &[other]),
            Err(vec![shortage])
        );
    }
}
