//! The conditions and metrics in an autoscaler's status. Pure.

use api::quantity::{Format, Quantity};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
    MetricSpec, MetricStatus, MetricValueStatus, ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::Proposal;

pub struct Conditions {
    pub list: Vec<HorizontalPodAutoscalerCondition>,
    now: Timestamp,
}

impl Conditions {
    pub fn of(status: &HorizontalPodAutoscalerStatus, now: Timestamp) -> Conditions {
        Conditions {
            list: status.conditions.clone().unwrap_or_default(),
            now,
        }
    }

    /// Its time changes only when it becomes true or false.
    pub fn set(&mut self, name: &str, state: bool, reason: &str, message: &str) {
        let state = if state { "True" } else { "False" };
        let position = self.list.iter().position(|one| one.type_ == name);
        let before = position.map(|position| &self.list[position]);
        let since = match before {
            Some(before) if before.status == state => before.last_transition_time.clone(),
            _ => Some(Time(self.now)),
        };
        let made = HorizontalPodAutoscalerCondition {
            type_: name.to_owned(),
            status: state.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: since,
        };
        match position {
            Some(position) => self.list[position] = made,
            None => self.list.push(made),
        }
    }
}

pub fn of_metric(metric: &MetricSpec, proposal: &Proposal) -> MetricStatus {
    let resource = metric.resource.as_ref().map(|source| &source.name);
    let contained = metric.container_resource.as_ref();
    let resource = resource.or_else(|| contained.map(|source| &source.name));
    let resource = resource.map_or("", String::as_str);
    let current = MetricValueStatus {
        average_utilization: proposal.utilization,
        average_value: Some(Text(average(resource, proposal.average))),
        value: None,
    };
    let resource = metric.resource.as_ref().map(|source| ResourceMetricStatus {
        name: source.name.clone(),
        current: current.clone(),
    });
    let container = metric.container_resource.as_ref();
    let container_resource = container.map(|source| ContainerResourceMetricStatus {
        name: source.name.clone(),
        container: source.container.clone(),
        current: current.clone(),
    });
    MetricStatus {
        type_: metric.type_.clone(),
        resource,
        container_resource,
        ..MetricStatus::default()
    }
}

/// Thousandths as text: memory counts in powers of two.
fn average(resource: &str, milli: i64) -> String {
    let average = match resource {
        "memory" if milli % 1000 == 0 => Quantity::from_units(milli / 1000, Format::BinarySi),
        _ => Quantity::from_milli(milli),
    };
    average.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_in_powers_of_two() {
        assert_eq!(average("memory", (100 << 20) * 1000), "100Mi");
        assert_eq!(average("cpu", 250), "250m");
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_state_stays() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Conditions::of(&HorizontalPodAutoscalerStatus::default(), at(1));
        conditions.set("AbleToScale", true, "SucceededGetScale", "");
        conditions.now = at(2);
        conditions.set("AbleToScale", true, "SucceededRescale", "");
        assert_eq!(conditions.list[0].last_transition_time, Some(Time(at(1))));
        conditions.set("AbleToScale", false, "FailedGetScale", "");
        assert_eq!(conditions.list[0].last_transition_time, Some(Time(at(2))));
        assert_eq!(conditions.list.len(), 1);
    }
}
