//! What objects use of a ResourceQuota, and whether a quota concerns an object. Shared by the
//! admission that charges a quota and the controller that recounts it. Pure.

pub mod claims;
mod pods;
pub mod scopes;
mod services;

use crate::document::Value;
use crate::quantity::{Format, Quantity};
use crate::resource::Resource;
use crate::resources::{Amounts, amounts};

pub use scopes::{Requirement, requirements};

/// How objects of one kind are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindEvaluator<'a> {
    Pods,
    Services,
    Claims,
    /// Only their number, under `count/<resource>` and perhaps an older alias.
    Objects(&'a Resource),
}

/// The evaluator of a kind that is counted in a way of its own.
pub type Evaluator = KindEvaluator<'static>;

impl<'a> KindEvaluator<'a> {
    /// Every namespaced kind can be counted, events excepted.
    pub fn of(resource: &'a Resource) -> Option<KindEvaluator<'a>> {
        match (&*resource.group, &*resource.plural) {
            _ if !resource.namespaced || !resource.has_verb("list") => None,
            ("" | "events.k8s.io", "events") => None,
            ("", "pods") => Some(KindEvaluator::Pods),
            ("", "services") => Some(KindEvaluator::Services),
            ("", "persistentvolumeclaims") => Some(KindEvaluator::Claims),
            _ => Some(KindEvaluator::Objects(resource)),
        }
    }

    /// Whether an amount of this name is for objects of this kind.
    pub fn counts(self, name: &str) -> bool {
        match self {
            KindEvaluator::Pods => pods::counts(name),
            KindEvaluator::Services => services::counts(name),
            KindEvaluator::Claims => claims::counts(name),
            KindEvaluator::Objects(resource) => {
                object_count(resource) == name || alias(resource) == Some(name)
            }
        }
    }

    /// What `object` uses.
    pub fn usage(self, object: &Value, now: jiff::Timestamp) -> Amounts {
        match self {
            KindEvaluator::Pods => pods::usage(object, now),
            KindEvaluator::Services => services::usage(object),
            KindEvaluator::Claims => claims::usage(object),
            KindEvaluator::Objects(resource) => {
                let names = [
                    Some(object_count(resource)),
                    alias(resource).map(str::to_string),
                ];
                names
                    .into_iter()
                    .flatten()
                    .map(|name| (name, number(1)))
                    .collect()
            }
        }
    }

    /// Whether the quota concerns the object: one of its amounts is for the kind, and all of its
    /// scopes match.
    pub fn matches(self, quota: &Value, object: &Value) -> bool {
        let hard = quota.fields_at(&["spec", "hard"]);
        let any = hard.into_iter().any(|(name, _)| self.counts(name));
        any && requirements(quota).iter().all(|scope| match self {
            KindEvaluator::Pods => scope.matches_pod(object),
            KindEvaluator::Claims => scope.matches_claim(object),
            _ => false,
        })
    }

    /// What a pod must say about each of its containers when a quota has these amounts.
    pub fn missing(self, required: &[&str], object: &Value) -> Option<String> {
        match self {
            KindEvaluator::Pods => pods::missing(required, object),
            _ => None,
        }
    }
}

/// `count/deployments.apps`.
fn object_count(resource: &Resource) -> String {
    format!("count/{}", resource.qualified())
}

/// What some kinds' numbers were called before `count/`.
fn alias(resource: &Resource) -> Option<&'static str> {
    const OLD: [&str; 4] = [
        "configmaps",
        "resourcequotas",
        "replicationcontrollers",
        "secrets",
    ];
    let core = resource.group.is_empty();
    OLD.into_iter()
        .find(|name| core && *name == resource.plural)
}

fn number(units: i64) -> Quantity {
    Quantity::from_units(units, Format::DecimalSi)
}

/// The quota's limits as its status has them; those are what is enforced.
pub fn hard(quota: &Value) -> Amounts {
    amounts(quota, &["status", "hard"])
}

pub fn used(quota: &Value) -> Amounts {
    amounts(quota, &["status", "used"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    fn check(plural: &str, object: Value, expected: &str) {
        let resource = catalogue::built_in()
            .find("", "v1", plural)
            .expect("a kind");
        let evaluator = KindEvaluator::of(resource).expect("a counted kind");
        let usage = evaluator.usage(&object, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(crate::resources::to_document(&usage).to_string(), expected);
    }

    #[test]
    fn each_kind_is_counted_its_own_way() {
        let pod = crate::document!({"spec": {"containers": [
            {"resources": {"requests": {"cpu": "100m", "example.com/gpu": "2"}, "limits": {"memory": "1Gi"}}},
        ]}});
        check(
            "pods",
            pod,
            r#"{"count/pods":"1","cpu":"100m","limits.memory":"1Gi","pods":"1","requests.cpu":"100m","requests.example.com/gpu":"2"}"#,
        );
        let service = crate::document!({"spec": {"type": "LoadBalancer", "ports": [{}, {}]}});
        check(
            "services",
            service,
            r#"{"count/services":"1","services":"1","services.loadbalancers":"1","services.nodeports":"2"}"#,
        );
        check(
            "configmaps",
            Value::object(),
            r#"{"configmaps":"1","count/configmaps":"1"}"#,
        );
        let finished = crate::document!({"status": {"phase": "Succeeded"}});
        check("pods", finished, r#"{"count/pods":"1"}"#);
    }

    #[test]
    fn a_quota_concerns_what_its_amounts_and_scopes_name() {
        let pods = Evaluator::Pods;
        let quota =
            |scope: &str| crate::document!({"spec": {"hard": {"pods": "1"}, "scopes": [scope]}});
        let plain = crate::document!({"spec": {"containers": [{}]}});
        assert!(pods.matches(&quota("BestEffort"), &plain));
        assert!(!pods.matches(&quota("NotBestEffort"), &plain));
        assert!(pods.matches(&quota("NotTerminating"), &plain));
        assert!(!Evaluator::Services.matches(&quota("BestEffort"), &plain));
    }
}
