//! What a recount writes, and when. Pure.
//!
//! Admission charges a quota before the object is written, and our caches show the object later
//! still: a recount in between would give back what was just taken, and let in one object too
//! many. So counts go up at once, but down only when the quota has been still for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use api::quantity::Quantity as Amount;
use api::resources::Amounts;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// How long nobody must have charged a quota before its counts are lowered: by then every object
/// that was charged is in our caches.
const STILL: Duration = Duration::from_secs(1);
/// How long lowering is put off at most where objects never stop coming.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

pub type Counts = BTreeMap<String, Quantity>;

/// What to do with a recount.
#[derive(Debug, PartialEq)]
pub struct Plan {
    /// What `status.used` is to be.
    pub used: Counts,
    /// Lower counts remain to be written, after this long.
    pub again: Option<Duration>,
}

/// `still` is for how long the quota has not changed, `waited` for how long lowering has been put
/// off already.
pub fn plan(
    hard: &Counts,
    before: &Counts,
    counted: Amounts,
    still: Duration,
    waited: Duration,
) -> Plan {
    let may_lower = still >= STILL || waited >= LONGEST_DELAY;
    let mut plan = Plan {
        used: before.clone(),
        again: None,
    };
    for (name, amount) in counted {
        let known = before
            .get(&name)
            .and_then(|known| Amount::parse(&known.0).ok());
        match known {
            Some(known) if known == amount => {}
            Some(known) if known > amount && !may_lower => {
                plan.again = Some(STILL.saturating_sub(still).min(LONGEST_DELAY - waited));
            }
            _ => {
                plan.used.insert(name, Quantity(amount.to_string()));
            }
        }
    }
    plan.used.retain(|name, _| hard.contains_key(name));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pods: &str) -> Counts {
        BTreeMap::from([("pods".to_owned(), Quantity(pods.to_owned()))])
    }

    fn planned(before: &str, counted: &str, still_ms: u64, waited_s: u64) -> (String, Option<u64>) {
        let counted = Amounts::from([("pods".to_owned(), Amount::parse(counted).unwrap())]);
        let plan = plan(
            &counts("9"),
            &counts(before),
            counted,
            Duration::from_millis(still_ms),
            Duration::from_secs(waited_s),
        );
        let again = plan.again.map(|again| again.as_millis() as u64);
        (plan.used["pods"].0.clone(), again)
    }

    #[test]
    fn counts_rise_at_once_and_fall_when_the_quota_is_still() {
        assert_eq!(planned("1", "2", 0, 0), ("2".to_owned(), None));
        assert_eq!(planned("2", "2", 0, 0), ("2".to_owned(), None));
        assert_eq!(planned("2", "1", 0, 0), ("2".to_owned(), Some(1000)));
        assert_eq!(planned("2", "1", 400, 0), ("2".to_owned(), Some(600)));
        assert_eq!(planned("2", "1", 1000, 0), ("1".to_owned(), None));
        assert_eq!(planned("2", "1", 0, 10), ("1".to_owned(), None));
    }

    #[test]
    fn resources_without_a_limit_are_removed_from_the_status() {
        let none = Counts::new();
        let plan = plan(
            &none,
            &counts("2"),
            Amounts::new(),
            Duration::ZERO,
            Duration::ZERO,
        );
        assert_eq!(plan.used, none);
    }
}
