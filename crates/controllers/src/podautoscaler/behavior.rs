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

/// A decision and why, as the conditions AbleToScale and ScalingLimited say it.
#[derive(Debug, PartialEq)]
pub struct Decision {
    pub replicas: i32,
    pub stabilized: Option<(&'static str, &'static str)>,
    pub limited: bool,
    pub limit: (&'static str, &'static str),
}

impl Memory {
    /// The first recommendation is what is there.
    pub fn begin(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((now, current));
        }
    }

    pub fn note_change(&mut self, from: i32, to: i32, now: Timestamp) {
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
        let behavior = spec.behavior.clone().unwrap_or_default();
        let up = Rules::of(behavior.scale_up.as_ref(), true);
        let down = Rules::of(behavior.scale_down.as_ref(), false);
        let stable = self.stabilize(current, desired, &up, &down, now);
        let stabilized = (stable != desired).then_some(if desired >= current {
            (
                "ScaleUpStabilized",
                "recent recommendations were lower than current one, applying the lowest recent \
                 recommendation",
            )
        } else {
            (
                "ScaleDownStabilized",
                "recent recommendations were higher than current one, applying the highest \
                 recent recommendation",
            )
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
    ) -> (i32, (&'static str, &'static str)) {
        if desired > current {
            let reach = self.reach(current, up, true, now).max(current);
            let (allowed, reason) = if most > reach {
                let message =
                    "the desired replica count is increasing faster than the maximum scale rate";
                (reach, ("ScaleUpLimit", message))
            } else {
                let message = "the desired replica count is more than the maximum replica count";
                (most, ("TooManyReplicas", message))
            };
            if desired > allowed {
                return (allowed, reason);
            }
        } else if desired < current {
            let reach = self.reach(current, down, false, now).min(current);
            let (allowed, reason) = if least < reach {
                let message =
                    "the desired replica count is decreasing faster than the maximum scale rate";
                (reach, ("ScaleDownLimit", message))
            } else {
                let message = "the desired replica count is less than the minimum replica count";
                (least, ("TooFewReplicas", message))
            };
            if desired < allowed {
                return (allowed, reason);
            }
        }
        let message = "the desired count is within the acceptable range";
        (desired, ("DesiredWithinRange", message))
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
    fn growth_is_limited_to_doubling_or_four_and_to_the_maximum() {
        let spec = spec(serde_json::json!(null));
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
        let spec = spec(serde_json::json!(null));
        let mut memory = Memory::default();
        memory.begin(10, at(0));
        let early = memory.decide(&spec, 10, 3, at(60));
        assert_eq!(early.replicas, 10);
        assert_eq!(early.stabilized.unwrap().0, "ScaleDownStabilized");
        let late = memory.decide(&spec, 10, 3, at(301));
        assert_eq!(late.replicas, 3);
        assert_eq!(late.stabilized, None);
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
        memory.note_change(5, 8, at(0));
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
