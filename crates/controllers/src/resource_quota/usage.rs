//! What a quota counts, and how much of it there is. Pure; the rules for each kind are `api`'s,
//! shared with admission.

use std::collections::BTreeSet;

use api::Value;
use api::quantity::{Format, Quantity};
use api::quota::Evaluator;
use api::resources::Amounts;
use jiff::Timestamp;

/// A kind that a quota counts.
#[derive(Debug, PartialEq, Eq)]
pub enum Counted {
    Pods,
    Services,
    Claims,
    /// By number alone: the amounts' names, and the kind as `plural.group`.
    Others {
        names: Vec<String>,
        resource: String,
    },
}

/// What some kinds' numbers were called before `count/`.
const OLD_NAMES: [&str; 4] = [
    "configmaps",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
];

pub fn counted(quota: &Value) -> Vec<Counted> {
    let names: Vec<String> = hard_names(quota);
    let any = |evaluator: Evaluator| names.iter().any(|name| evaluator.counts(name));
    let mut all = Vec::new();
    for (evaluator, counted) in [
        (Evaluator::Pods, Counted::Pods),
        (Evaluator::Services, Counted::Services),
        (Evaluator::Claims, Counted::Claims),
    ] {
        if any(evaluator) {
            all.push(counted);
        }
    }
    for name in &names {
        let known = [Evaluator::Pods, Evaluator::Services, Evaluator::Claims]
            .iter()
            .any(|evaluator| evaluator.counts(name));
        let resource = match name.strip_prefix("count/") {
            Some(resource) => resource,
            None if OLD_NAMES.contains(&name.as_str()) => name,
            None => continue,
        };
        if !known {
            all.push(Counted::Others {
                names: vec![name.clone()],
                resource: resource.to_string(),
            });
        }
    }
    all
}

/// Zero for everything that the quota limits and that objects use.
pub fn zeros(quota: &Value) -> Amounts {
    let kinds = [Evaluator::Pods, Evaluator::Services, Evaluator::Claims];
    let names = hard_names(quota).into_iter();
    names
        .filter(|name| kinds.iter().any(|evaluator| evaluator.counts(name)))
        .map(|name| (name, number(0)))
        .collect()
}

/// What an object uses of the quota; nothing if the quota is not about it.
pub fn of_object(quota: &Value, evaluator: Evaluator, object: &Value, now: Timestamp) -> Amounts {
    if !evaluator.matches(quota, object) {
        return Amounts::new();
    }
    let names: BTreeSet<String> = hard_names(quota).into_iter().collect();
    let mut usage = evaluator.usage(object, now);
    usage.retain(|name, _| evaluator.counts(name) && names.contains(name));
    usage
}

/// Kinds that are only counted have no scopes to match.
pub fn of_number(quota: &Value, names: &[String], count: usize) -> Amounts {
    let scoped = !api::quota::requirements(quota).is_empty();
    let count = if scoped { 0 } else { count as i64 };
    names
        .iter()
        .map(|name| (name.clone(), number(count)))
        .collect()
}

fn hard_names(quota: &Value) -> Vec<String> {
    let hard = quota.fields_at(&["spec", "hard"]);
    hard.into_iter().map(|(name, _)| name.to_string()).collect()
}

fn number(units: i64) -> Quantity {
    Quantity::from_units(units, Format::DecimalSi)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(amounts: &Amounts) -> String {
        api::resources::to_document(amounts).to_string()
    }

    #[test]
    fn a_quota_counts_what_it_names() {
        let quota = api::document!({"spec": {"hard": {
            "pods": "5", "requests.cpu": "1", "count/widgets.example.com": "2", "configmaps": "3",
        }}});
        let other = |name: &str, resource: &str| Counted::Others {
            names: vec![name.to_string()],
            resource: resource.to_string(),
        };
        assert_eq!(
            counted(&quota),
            [
                Counted::Pods,
                other("configmaps", "configmaps"),
                other("count/widgets.example.com", "widgets.example.com")
            ]
        );
    }

    #[test]
    fn usage_is_summed_over_what_matches() {
        let quota = api::document!({"spec": {
            "hard": {"pods": "5", "requests.cpu": "1", "limits.cpu": "2"},
            "scopes": ["NotBestEffort"],
        }});
        let pod = |cpu: &str| {
            api::document!({"spec": {"containers": [
                {"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
        };
        let best_effort = api::document!({"spec": {"containers": [{"name": "c"}]}});
        let pods = [pod("100m"), pod("200m"), best_effort];
        let now = Timestamp::UNIX_EPOCH;
        let mut used = zeros(&quota);
        for pod in &pods {
            let usage = of_object(&quota, Evaluator::Pods, pod, now);
            api::resources::add(&mut used, &usage);
        }
        assert_eq!(
            text(&used),
            r#"{"limits.cpu":"0","pods":"2","requests.cpu":"300m"}"#
        );
        let names = ["count/widgets".to_string()];
        assert_eq!(
            text(&of_number(&quota, &names, 7)),
            r#"{"count/widgets":"0"}"#
        );
    }
}
