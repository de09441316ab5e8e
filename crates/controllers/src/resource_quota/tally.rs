//! What the objects of a namespace use of one quota, object by object, so that a change of one is
//! counted without looking at the others.

use std::collections::BTreeMap;
use std::time::Duration;

use api::quota::Evaluator;
use api::resources::{Amounts, add};
use k8s_openapi::api::core::v1::ResourceQuotaSpec;
use tokio::time::Instant;

/// An object of a kind that is counted by what it uses: the kind, and its name.
pub type Counted = (Evaluator, String);

pub struct Tally {
    /// What was counted for; with another spec everything is counted again.
    spec: Option<ResourceQuotaSpec>,
    counted_at: Instant,
    /// What each object uses; those that use nothing are not here.
    used: BTreeMap<String, Amounts>,
    total: Amounts,
    /// Objects that have changed since.
    changed: BTreeMap<String, Counted>,
}

impl Tally {
    /// Nothing is counted yet; `zeros` are the amounts that the quota limits.
    pub fn new(spec: Option<ResourceQuotaSpec>, zeros: Amounts) -> Tally {
        Tally {
            spec,
            counted_at: Instant::now(),
            used: BTreeMap::new(),
            total: zeros,
            changed: BTreeMap::new(),
        }
    }

    /// Whether it still describes a quota with this spec, and is recent enough to be used.
    pub fn is_current(&self, spec: Option<&ResourceQuotaSpec>, longest: Duration) -> bool {
        self.spec.as_ref() == spec && self.counted_at.elapsed() < longest
    }

    /// The object has come, changed or gone.
    pub fn mark(&mut self, evaluator: Evaluator, name: &str) {
        let counted = (evaluator, name.to_owned());
        self.changed.insert(key(evaluator, name), counted);
    }

    /// The objects that were marked.
    pub fn take_marked(&mut self) -> Vec<Counted> {
        std::mem::take(&mut self.changed).into_values().collect()
    }

    /// The object uses this now; nothing if it is gone or does not count.
    pub fn set(&mut self, evaluator: Evaluator, name: &str, usage: Amounts) {
        let key = key(evaluator, name);
        for (name, amount) in self.used.remove(&key).unwrap_or_default() {
            if let Some(total) = self.total.get_mut(&name) {
                *total = *total - amount;
            }
        }
        add(&mut self.total, &usage);
        if !usage.is_empty() {
            self.used.insert(key, usage);
        }
    }

    pub fn total(&self) -> Amounts {
        self.total.clone()
    }
}

fn key(evaluator: Evaluator, name: &str) -> String {
    format!("{evaluator:?}\n{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::resources::{amounts, to_document};

    fn cpu(text: &str) -> Amounts {
        amounts(&api::document!({"a": {"requests.cpu": text}}), &["a"])
    }

    #[tokio::test(start_paused = true)]
    async fn the_total_follows_each_object() {
        let mut tally = Tally::new(None, cpu("0"));
        let told = |tally: &Tally| to_document(&tally.total()).to_string();
        tally.set(Evaluator::Pods, "a", cpu("100m"));
        tally.set(Evaluator::Pods, "b", cpu("200m"));
        // Another kind of the same name is another object.
        tally.set(Evaluator::Claims, "a", cpu("1"));
        assert_eq!(told(&tally), r#"{"requests.cpu":"1300m"}"#);
        tally.set(Evaluator::Pods, "a", cpu("150m"));
        tally.set(Evaluator::Claims, "a", Amounts::new());
        assert_eq!(told(&tally), r#"{"requests.cpu":"350m"}"#);
        tally.set(Evaluator::Pods, "a", Amounts::new());
        tally.set(Evaluator::Pods, "b", Amounts::new());
        assert_eq!(told(&tally), r#"{"requests.cpu":"0"}"#);
        assert!(tally.used.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tally_is_renewed_when_the_spec_changes_or_time_passes() {
        let mut tally = Tally::new(None, Amounts::new());
        tally.mark(Evaluator::Pods, "a");
        tally.mark(Evaluator::Pods, "a");
        assert_eq!(tally.take_marked().len(), 1);
        assert!(tally.take_marked().is_empty());
        let other = ResourceQuotaSpec::default();
        let longest = Duration::from_secs(9);
        assert!(tally.is_current(None, longest));
        assert!(!tally.is_current(Some(&other), longest));
        tokio::time::advance(longest).await;
        assert!(!tally.is_current(None, longest));
    }
}
