//! How fast and how far a recommendation is followed: `spec.behavior`. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerSpec,
};

/// Recommendations and changes of one autoscaler, as far back as its windows reach.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    recommendations: Vec<(Timestamp, i32)>,
    ups: Vec<(Timestamp, i32)>,
    downs: Vec<(Timestamp, i32)>,
}

/// The longest window and period there can be.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
const DOWN_WINDOW_SECONDS: i32 = 300;

/// A reason and its message, in upstream's words.
pub type Said = (&'static str, &'static str);

const STABILIZED_UP: Said = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const STABILIZED_DOWN: Said = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent \
     recommendation",
);
const TOO_FAST_UP: Said = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const TOO_FAST_DOWN: Said = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const TOO_MANY: Said = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FEW: Said = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const WITHIN_RANGE: Said = (
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);

/// A decision and why, as the conditions AbleToScale and ScalingLimited say it.
#[derive(Debug, PartialEq)]
pub struct Decision {
    pub replicas: i32,
    pub stabilized: Option<Said>,
    pub limited: bool,
    pub limit: Said,
}

impl Memory {
    /// The first recommendation is what is there.
    pub fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    /// Only policies look back at changes, so that without behavior none is kept.
    pub fn note_change(
        &mut self,
        spec: &HorizontalPodAutoscalerSpec,
        from: i32,
        to: i32,
        now: Timestamp,
    ) {
        if spec.behavior.is_none() {
            return;
        }
        if to > from {
            self.ups.push((now, to - from));
        } else {
            self.downs.push((now, from - to));
        }
        for changes in [&mut self.ups, &mut self.downs] {
            changes.retain(|(at, _)| at.duration_until(now) <= LONGEST);
        }
    }

    pub fn decide(
        &mut self,
        spec: &HorizontalPodAutoscalerSpec,
        current: i32,
        desired: i32,
        now: Timestamp,
    ) -> Decision {
        let Some(behavior) = &spec.behavior else {
            return self.decide_plainly(spec, current, desired, now);
        };
        let up = Rules::of(behavior.scale_up.as_ref(), true);
        let down = Rules::of(behavior.scale_down.as_ref(), false);
        let stable = self.stabilize(current, desired, &up, &down, now);
        let stabilized = (stable != desired).then_some(if desired >= current {
            STABILIZED_UP
        } else {
            STABILIZED_DOWN
        });
        let least = spec.min_replicas.unwrap_or(1);
        let (replicas, limit) =
            self.limit(current, stable, least, spec.max_replicas, &up, &down, now);
        Decision {
            replicas,
            stabilized,
            limited: replicas != stable,
            limit,
        }
    }

    /// Without behavior there are no policies: at most twice as many pods, or four, at a time, and
    /// never fewer than was recommended within five minutes.
    fn decide_plainly(
        &mut self,
        spec: &HorizontalPodAutoscalerSpec,
        current: i32,
        desired: i32,
        now: Timestamp,
    ) -> Decision {
        let window = SignedDuration::from_secs(DOWN_WINDOW_SECONDS.into());
        self.recommendations
            .retain(|(at, _)| at.duration_until(now) <= window);
        let recent = self.recommendations.iter().map(|(_, replicas)| *replicas);
        let stable = recent.max().map_or(desired, |most| most.max(desired));
        self.recommendations.push((now, desired));
        let least = spec.min_replicas.unwrap_or(1);
        let reach = current.saturating_mul(2).max(4);
        let (replicas, limit) = if stable < least {
            (least, TOO_FEW)
        } else if spec.max_replicas > reach && stable > reach {
            (reach, TOO_FAST_UP)
        } else if stable > spec.max_replicas {
            (spec.max_replicas, TOO_MANY)
        } else {
            (stable, WITHIN_RANGE)
        };
        Decision {
            replicas,
            stabilized: (stable != desired).then_some(STABILIZED_DOWN),
            limited: replicas != stable,
            limit,
        }
    }

    fn stabilize(
        &mut self,
        current: i32,
        desired: i32,
        up: &Rules,
        down: &Rules,
        now: Timestamp,
    ) -> i32 {
        let within = |at: &Timestamp, window: i32| {
            at.duration_until(now) < SignedDuration::from_secs(window.into())
        };
        let (mut lowest, mut highest) = (desired, desired);
        for (at, recommendation) in &self.recommendations {
            if within(at, up.window) {
                lowest = lowest.min(*recommendation);
            }
            if within(at, down.window) {
                highest = highest.max(*recommendation);
            }
        }
        let longest = up.window.max(down.window).max(1);
        self.recommendations.retain(|(at, _)| within(at, longest));
        self.recommendations.push((now, desired));
        current.max(lowest).min(highest)
    }

    #[expect(clippy::too_many_arguments, reason = "the bounds of one decision")]
    fn limit(
        &self,
        current: i32,
        desired: i32,
        least: i32,
        most: i32,
        up: &Rules,
        down: &Rules,
        now: Timestamp,
    ) -> (i32, Said) {
        if desired > current {
            let reach = self.reach(current, up, true, now).max(current);
            let (allowed, reason) = if most > reach {
                (reach, TOO_FAST_UP)
            } else {
                (most, TOO_MANY)
            };
            if desired > allowed {
                return (allowed, reason);
            }
        } else if desired < current {
            let reach = self.reach(current, down, false, now).min(current);
            let (allowed, reason) = if least < reach {
                (reach, TOO_FAST_DOWN)
            } else {
                (least, TOO_FEW)
            };
            if desired < allowed {
                return (allowed, reason);
            }
        }
        (desired, WITHIN_RANGE)
    }

    /// The farthest number the policies allow now.
    fn reach(&self, current: i32, rules: &Rules, upwards: bool, now: Timestamp) -> i32 {
        if rules.select == Select::Disabled {
            return current;
        }
        let changed = |changes: &[(Timestamp, i32)], seconds: i32| -> i32 {
            let period = SignedDuration::from_secs(seconds.into());
            let recent = changes
                .iter()
                .filter(|(at, _)| at.duration_until(now) < period);
            recent.map(|(_, change)| change).sum()
        };
        let proposals = rules.policies.iter().map(|policy| {
            let added = changed(&self.ups, policy.period_seconds);
            let removed = changed(&self.downs, policy.period_seconds);
            let start = current - added + removed;
            let share = f64::from(policy.value) / 100.0;
            match (policy.type_.as_str(), upwards) {
                ("Pods", true) => start.saturating_add(policy.value),
                ("Pods", false) => start.saturating_sub(policy.value),
                (_, true) => (f64::from(start) * (1.0 + share)).ceil() as i32,
                (_, false) => (f64::from(start) * (1.0 - share)) as i32,
            }
        });
        // The largest change upwards is the highest number, downwards the lowest.
        let reach = if (rules.select == Select::Max) == upwards {
            proposals.max()
        } else {
            proposals.min()
        };
        reach.unwrap_or(current)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Select {
    Max,
    Min,
    Disabled,
}

struct Rules {
    window: i32,
    policies: Vec<HPAScalingPolicy>,
    select: Select,
}

impl Rules {
    /// What is not given is as the API documents it.
    fn of(given: Option<&HPAScalingRules>, upwards: bool) -> Rules {
        let policy = |kind: &str, value| HPAScalingPolicy {
            type_: kind.to_owned(),
            value,
            period_seconds: 15,
        };
        let mut policies = given
            .and_then(|rules| rules.policies.clone())
            .unwrap_or_default();
        if policies.is_empty() {
            policies.push(policy("Percent", 100));
            if upwards {
                policies.push(policy("Pods", 4));
            }
        }
        let window = given.and_then(|rules| rules.stabilization_window_seconds);
        let select = given.and_then(|rules| rules.select_policy.as_deref());
        Rules {
            window: window.unwrap_or(if upwards { 0 } else { DOWN_WINDOW_SECONDS }),
            policies,
            select: match select {
                Some("Min") => Select::Min,
                Some("Disabled") => Select::Disabled,
                _ => Select::Max,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(behavior: serde_json::Value) -> HorizontalPodAutoscalerSpec {
        serde_json::from_value(serde_json::json!({
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 20, "behavior": behavior,
        }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn without_behavior_growth_is_limited_to_doubling_or_to_four() {
        let spec = spec(serde_json::json!(null));
        for (current, desired, expected, reason) in [
            (2, 3, 3, "DesiredWithinRange"),
            (1, 10, 4, "ScaleUpLimit"),
            (8, 18, 16, "ScaleUpLimit"),
            (15, 40, 20, "TooManyReplicas"),
            (5, 0, 2, "TooFewReplicas"),
        ] {
            let decision = Memory::default().decide(&spec, current, desired, at(0));
            assert_eq!((decision.replicas, decision.limit.0), (expected, reason));
            assert_eq!(decision.limited, reason != "DesiredWithinRange");
        }
    }

    #[test]
    fn with_behavior_the_default_policies_double_or_add_four() {
        let spec = spec(serde_json::json!({}));
        for (current, desired, expected, reason) in [
            (2, 3, 3, "DesiredWithinRange"),
            (2, 10, 6, "ScaleUpLimit"),
            (8, 18, 16, "ScaleUpLimit"),
            (15, 40, 20, "TooManyReplicas"),
        ] {
            let decision = Memory::default().decide(&spec, current, desired, at(0));
            assert_eq!((decision.replicas, decision.limit.0), (expected, reason));
        }
    }

    #[test]
    fn shrinking_waits_for_five_minutes_of_lower_recommendations() {
        for behavior in [serde_json::json!(null), serde_json::json!({})] {
            let spec = spec(behavior);
            let mut memory = Memory::default();
            memory.begin(10, at(0));
            let early = memory.decide(&spec, 10, 3, at(60));
            assert_eq!(early.replicas, 10);
            assert_eq!(early.stabilized.unwrap().0, "ScaleDownStabilized");
            let late = memory.decide(&spec, 10, 3, at(301));
            assert_eq!(late.replicas, 3);
            assert_eq!(late.stabilized, None);
        }
    }

    #[test]
    fn growing_waits_for_its_window_when_it_has_one() {
        let spec = spec(serde_json::json!({"scaleUp": {"stabilizationWindowSeconds": 60}}));
        let mut memory = Memory::default();
        memory.begin(3, at(0));
        let early = memory.decide(&spec, 3, 5, at(30));
        assert_eq!(early.replicas, 3);
        assert_eq!(early.stabilized.unwrap().0, "ScaleUpStabilized");
        assert_eq!(memory.decide(&spec, 3, 5, at(61)).replicas, 5);
    }

    #[test]
    fn shrinking_follows_the_policy_that_changes_most_or_least() {
        let policies = serde_json::json!([
            {"type": "Pods", "value": 2, "periodSeconds": 60},
            {"type": "Percent", "value": 50, "periodSeconds": 60},
        ]);
        for (select, expected) in [("Max", 5), ("Min", 9)] {
            let spec = spec(serde_json::json!({"scaleDown": {"selectPolicy": select,
                "stabilizationWindowSeconds": 0, "policies": policies}}));
            let decision = Memory::default().decide(&spec, 11, 2, at(0));
            assert_eq!(decision.replicas, expected, "{select}");
            assert_eq!(decision.limit.0, "ScaleDownLimit");
        }
    }

    #[test]
    fn policies_count_what_was_changed_in_their_period() {
        let spec = spec(
            serde_json::json!({"scaleUp": {"selectPolicy": "Min", "policies": [
                {"type": "Pods", "value": 3, "periodSeconds": 60},
                {"type": "Percent", "value": 100, "periodSeconds": 60},
            ]}}),
        );
        let mut memory = Memory::default();
        assert_eq!(memory.decide(&spec, 5, 20, at(0)).replicas, 8);
        memory.note_change(&spec, 5, 8, at(0));
        assert_eq!(memory.decide(&spec, 8, 20, at(30)).replicas, 8);
        assert_eq!(memory.decide(&spec, 8, 20, at(61)).replicas, 11);
    }

    #[test]
    fn a_disabled_direction_does_not_move() {
        let spec = spec(serde_json::json!({"scaleDown":
            {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}));
        assert_eq!(Memory::default().decide(&spec, 10, 2, at(0)).replicas, 10);
    }
}
