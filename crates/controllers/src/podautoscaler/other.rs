//! How many pods metrics of the custom and external metrics APIs ask for.

use std::sync::Arc;

use api::quantity::Quantity;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::{
    ExternalMetricSource, ExternalMetricStatus, MetricIdentifier, MetricSpec, MetricStatus,
    MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource, PodsMetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::other_metrics;
use super::plan::{self, Observed, Target, Tolerance};

/// The target as it is now.
pub struct Scaled<'a> {
    pub namespace: &'a str,
    /// Of the target's pods.
    pub selector: &'a str,
    pub pods: &'a [Arc<Pod>],
    /// As the target's spec says.
    pub replicas: i32,
    /// As the target's status says.
    pub running: i32,
    pub tolerance: Tolerance,
    pub now: Timestamp,
}

/// A number of pods, what is shown of the metric, and its name.
pub type Proposed = (i32, MetricStatus, String);

/// Why a metric proposes nothing.
pub struct Failed {
    pub reason: &'static str,
    /// For the condition and the Event.
    pub cause: String,
    /// For the summary of all metrics.
    pub error: String,
}

fn failed(reason: &'static str, cause: String) -> Failed {
    Failed {
        reason,
        error: cause.clone(),
        cause,
    }
}

/// What a metric of these APIs proposes; `None` for one of another API.
pub async fn propose(
    client: &kube::Client,
    metric: &MetricSpec,
    scaled: &Scaled<'_>,
) -> Option<Result<Proposed, Failed>> {
    match (&metric.pods, &metric.object, &metric.external) {
        (Some(source), _, _) if metric.type_ == "Pods" => {
            Some(of_pods(client, source, scaled).await)
        }
        (_, Some(source), _) if metric.type_ == "Object" => {
            Some(of_object(client, source, scaled).await)
        }
        (_, _, Some(source)) if metric.type_ == "External" => {
            Some(external(client, source, scaled).await)
        }
        _ => None,
    }
}

async fn of_pods(
    client: &kube::Client,
    source: &PodsMetricSource,
    scaled: &Scaled<'_>,
) -> Result<Proposed, Failed> {
    let fails = |cause: String| failed("FailedGetPodsMetric", cause);
    let MetricIdentifier { name, selector } = &source.metric;
    let measures = other_metrics::of_pods(
        client,
        scaled.namespace,
        scaled.selector,
        name,
        selector.as_ref(),
    );
    let measures = measures
        .await
        .map_err(|cause| fails(format!("unable to get metric {name}: {cause}")))?;
    let wanted = milli(source.target.average_value.as_ref());
    let observed = Observed {
        current: scaled.replicas,
        pods: scaled.pods,
        measures,
        resource: "",
        container: None,
        now: scaled.now,
    };
    let proposal = plan::propose(observed, Target::Average(wanted), scaled.tolerance);
    let proposal = proposal.map_err(|cause| fails(cause.to_string()))?;
    let status = MetricStatus {
        type_: "Pods".to_owned(),
        pods: Some(PodsMetricStatus {
            metric: source.metric.clone(),
            current: average(proposal.average),
        }),
        ..MetricStatus::default()
    };
    Ok((proposal.replicas, status, format!("pods metric {name}")))
}

async fn of_object(
    client: &kube::Client,
    source: &ObjectMetricSource,
    scaled: &Scaled<'_>,
) -> Result<Proposed, Failed> {
    const REASON: &str = "FailedGetObjectMetric";
    let MetricIdentifier { name, selector } = &source.metric;
    let object = &source.described_object;
    let fetch = async || {
        let usage =
            other_metrics::of_object(client, scaled.namespace, object, name, selector.as_ref());
        usage.await.map_err(|cause| {
            // In this order in upstream too.
            let (kind, namespace) = (&object.kind, scaled.namespace);
            format!(
                "unable to get metric {name}: {kind} on {namespace} {}/{cause}",
                object.name
            )
        })
    };
    let status = |current: MetricValueStatus| MetricStatus {
        type_: "Object".to_owned(),
        object: Some(ObjectMetricStatus {
            current,
            described_object: object.clone(),
            metric: source.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    match (
        source.target.type_.as_str(),
        &source.target.value,
        &source.target.average_value,
    ) {
        ("Value", Some(wanted), _) => {
            let usage = fetch().await.map_err(|cause| failed(REASON, cause))?;
            let ratio = usage as f64 / milli(Some(wanted)) as f64;
            let replicas = by_ratio(scaled, ratio).map_err(|cause| failed(REASON, cause))?;
            let shown = status(value(usage));
            Ok((replicas, shown, format!("{} metric {name}", object.kind)))
        }
        ("AverageValue", _, Some(wanted)) => {
            let usage = fetch().await.map_err(|cause| Failed {
                reason: REASON,
                error: format!("failed to get {name} object metric: {cause}"),
                cause,
            })?;
            let (replicas, each) = per_pod(scaled, usage, milli(Some(wanted)));
            let name = format!("external metric {name}({})", in_go(selector.as_ref()));
            Ok((replicas, status(average(each)), name))
        }
        _ => {
            let message = "invalid object metric source: neither a value target nor an average \
                           value target was set";
            Err(failed(REASON, message.to_owned()))
        }
    }
}

async fn external(
    client: &kube::Client,
    source: &ExternalMetricSource,
    scaled: &Scaled<'_>,
) -> Result<Proposed, Failed> {
    const REASON: &str = "FailedGetExternalMetric";
    let MetricIdentifier { name, selector } = &source.metric;
    let shown_selector = in_go(selector.as_ref());
    let fetch = async || {
        let values = other_metrics::external(client, scaled.namespace, name, selector.as_ref());
        let values = values.await.map_err(|cause| {
            let namespace = scaled.namespace;
            format!("unable to get external metric {namespace}/{name}/{shown_selector}: {cause}")
        })?;
        let total = values.into_iter().fold(0i64, i64::saturating_add);
        Ok::<i64, String>(total)
    };
    let status = |current: MetricValueStatus| MetricStatus {
        type_: "External".to_owned(),
        external: Some(ExternalMetricStatus {
            current,
            metric: source.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    let about = format!("external metric {name}({shown_selector})");
    match (&source.target.average_value, &source.target.value) {
        (Some(wanted), _) => {
            let usage = fetch().await.map_err(|cause| Failed {
                reason: REASON,
                error: format!("failed to get {name} external metric: {cause}"),
                cause,
            })?;
            let (replicas, each) = per_pod(scaled, usage, milli(Some(wanted)));
            Ok((replicas, status(average(each)), about))
        }
        (_, Some(wanted)) => {
            let fails = |cause: String| Failed {
                reason: REASON,
                error: format!("failed to get external metric {name}: {cause}"),
                cause,
            };
            let usage = fetch().await.map_err(fails)?;
            let ratio = usage as f64 / milli(Some(wanted)) as f64;
            let replicas = by_ratio(scaled, ratio).map_err(fails)?;
            Ok((replicas, status(value(usage)), about))
        }
        _ => {
            let message = "invalid external metric source: neither a value target nor an average \
                           value target was set";
            Err(failed(REASON, message.to_owned()))
        }
    }
}

/// The number of pods when the ready ones have this many times what they should have.
fn by_ratio(scaled: &Scaled<'_>, ratio: f64) -> Result<i32, String> {
    if scaled.replicas == 0 {
        return Ok(ratio.ceil() as i32);
    }
    if scaled.tolerance.covers(ratio) {
        return Ok(scaled.replicas);
    }
    if scaled.pods.is_empty() {
        return Err(
            "unable to calculate ready pods: no pods returned by selector while calculating \
             replica count"
                .to_owned(),
        );
    }
    let is_counted =
        |pod: &&Arc<Pod>| semantics::pod::phase(pod) == "Running" && semantics::pod::is_ready(pod);
    let ready = scaled.pods.iter().filter(is_counted).count();
    Ok((ratio * ready as f64).ceil() as i32)
}

/// The number of pods when each should have its share, and the share that each has.
fn per_pod(scaled: &Scaled<'_>, usage: i64, wanted: i64) -> (i32, i64) {
    let running = f64::from(scaled.running);
    let ratio = usage as f64 / (wanted as f64 * running);
    let replicas = match scaled.tolerance.covers(ratio) {
        true => scaled.running,
        false => (usage as f64 / wanted as f64).ceil() as i32,
    };
    (replicas, (usage as f64 / running).ceil() as i64)
}

fn milli(quantity: Option<&Text>) -> i64 {
    quantity.map_or(0, |quantity| plan::milli(&quantity.0))
}

fn text(milli: i64) -> Option<Text> {
    Some(Text(Quantity::from_milli(milli).to_string()))
}

fn average(milli: i64) -> MetricValueStatus {
    MetricValueStatus {
        average_value: text(milli),
        ..MetricValueStatus::default()
    }
}

fn value(milli: i64) -> MetricValueStatus {
    MetricValueStatus {
        value: text(milli),
        ..MetricValueStatus::default()
    }
}

/// A selector as Go prints it, which is part of messages.
fn in_go(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels
        .map(|(key, value)| format!("{key}: {value},"))
        .collect();
    let expressions = selector.match_expressions.iter().flatten();
    let expressions: String = expressions
        .map(|one| {
            let values = one.values.clone().unwrap_or_default().join(" ");
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
                one.key, one.operator
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ready: &str) -> Arc<Pod> {
        let pod = serde_json::json!({
            "metadata": {"name": name},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn scaled<'a>(pods: &'a [Arc<Pod>], replicas: i32) -> Scaled<'a> {
        Scaled {
            namespace: "n",
            selector: "app=web",
            pods,
            replicas,
            running: replicas,
            tolerance: Tolerance { down: 0.1, up: 0.1 },
            now: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_value_is_shared_by_the_ready_pods() {
        let pods = [pod("a", "True"), pod("b", "True"), pod("c", "False")];
        let scaled = scaled(&pods, 3);
        assert_eq!(by_ratio(&scaled, 1.05), Ok(3));
        assert_eq!(by_ratio(&scaled, 2.0), Ok(4));
        assert_eq!(by_ratio(&scaled, 0.4), Ok(1));
        assert!(by_ratio(&super::tests::scaled(&[], 3), 2.0).is_err());
    }

    #[test]
    fn an_average_value_is_what_each_pod_should_have() {
        let scaled = scaled(&[], 3);
        assert_eq!(per_pod(&scaled, 9000, 1000), (9, 3000));
        assert_eq!(per_pod(&scaled, 3100, 1000), (3, 1034));
    }

    #[test]
    fn a_selector_is_printed_as_go_prints_it() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "c", "operator": "In", "values": ["x", "y"]}],
        }))
        .unwrap();
        assert_eq!(
            in_go(Some(&selector)),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:c,Operator:In,Values:[x y],},},}"
        );
        assert_eq!(in_go(None), "nil");
    }
}
