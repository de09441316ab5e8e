//! HorizontalPodAutoscalers, as `autoscaling/v2` has them; other versions convert.

mod cells;
mod metrics;

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{all_invalid, names};
use crate::quantity::Quantity;
use crate::resource::Strategy;
use crate::strategy::workload;

pub struct HorizontalPodAutoscaler;

const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

impl Strategy for HorizontalPodAutoscaler {
    fn has_status(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object.set_default(&["spec", "minReplicas"], 1);
        if object.list_at(&["spec", "metrics"]).is_empty() {
            let cpu = crate::document!({
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 80},
                },
            });
            object.set(&["spec", "metrics"], vec![cpu]);
        }
        for metric in object.list_at_mut(&["spec", "metrics"]) {
            metrics::canonical(metric);
        }
        if object.has(&["spec", "behavior"]) {
            let pods = crate::document!({"type": "Pods", "value": 4, "periodSeconds": 15});
            let percent = crate::document!({"type": "Percent", "value": 100, "periodSeconds": 15});
            let up = ["spec", "behavior", "scaleUp"];
            object.set_default(
                &[up.as_slice(), &["stabilizationWindowSeconds"]].concat(),
                0,
            );
            rules(object, &up, vec![pods, percent.clone()]);
            rules(object, &["spec", "behavior", "scaleDown"], vec![percent]);
        }
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "desiredReplicas"], 0);
        object.set(&["status", "currentMetrics"], Value::Null);
    }

    fn prepare_update_content(&self, new: &mut Value, _: &Value, _: &str) {
        if !new.has(&["status", "currentMetrics"]) {
            new.set(&["status", "currentMetrics"], Value::Null);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        spec(object, None)
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        if subresource != "status" {
            return spec(new, Some(old));
        }
        let names = ["currentReplicas", "desiredReplicas"];
        let errors = names
            .iter()
            .filter_map(|name| workload::not_negative(new, "status", name));
        errors.collect()
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let target = |name: &str| object.str_at(&["spec", "scaleTargetRef", name]);
        let least = match object.i64_at(&["spec", "minReplicas"]) {
            Some(least) => least.to_string(),
            None => "<unset>".to_string(),
        };
        vec![
            object.str_at(&["metadata", "name"]).into(),
            format!("{}/{}", target("kind"), target("name")).into(),
            cells::targets(object).into(),
            least.into(),
            object.i64_at(&["spec", "maxReplicas"]).unwrap_or(0).into(),
            object
                .i64_at(&["status", "currentReplicas"])
                .unwrap_or(0)
                .into(),
            object_age(object, now).into(),
        ]
    }
}

fn rules(object: &mut Value, path: &[&str], policies: Vec<Value>) {
    let at = [path, &["selectPolicy"]].concat();
    if !object.has(&at) {
        object.set(&at, "Max");
    }
    let at = [path, &["policies"]].concat();
    if !object.has(&at) {
        object.set(&at, policies);
    }
}

fn spec(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let least = object.i64_at(&["spec", "minReplicas"]);
    let most = object.i64_at(&["spec", "maxReplicas"]).unwrap_or(0);
    let was_zero = old.is_some_and(|old| old.i64_at(&["spec", "minReplicas"]) == Some(0));
    let bound = if was_zero { 0 } else { 1 };
    if let Some(least) = least.filter(|least| *least < bound) {
        let detail = format!("must be greater than or equal to {bound}");
        errors.push(FieldError::invalid(
            &path.child("minReplicas"),
            least,
            detail,
        ));
    }
    let at = path.child("maxReplicas");
    if most == 0 {
        errors.push(FieldError::required(&at, "must be set and greater than 0"));
    } else if most < 0 {
        let detail = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(&at, most, detail));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(&at, most, detail));
    }
    let empty = Value::object();
    let at = ["spec", "scaleTargetRef"];
    let target = object.at(&at).unwrap_or(&empty);
    let same = old.and_then(|old| old.at(&at)).is_some_and(|old| {
        ["apiVersion", "kind"]
            .iter()
            .all(|name| old.str_at(&[name]) == target.str_at(&[name]))
    });
    let version = match same {
        true => ApiVersion::Any,
        false if target.str_at(&["kind"]) == "ReplicationController" => ApiVersion::Valid,
        false => ApiVersion::WithGroup,
    };
    reference(target, version, &path.child("scaleTargetRef"), &mut errors);
    metrics::validate(object, old, &path.child("metrics"), &mut errors);
    for name in ["scaleUp", "scaleDown"] {
        if let Some(rules) = object
            .at(&["spec", "behavior", name])
            .filter(|value| !value.is_null())
        {
            scaling_rules(rules, &path.child("behavior").child(name), &mut errors);
        }
    }
    errors
}

/// The requirement on an `apiVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApiVersion {
    Any,
    Valid,
    WithGroup,
}

impl ApiVersion {
    fn wrong(self, text: &str) -> Option<String> {
        let slashes = text.matches('/').count();
        match self {
            ApiVersion::Any => None,
            _ if slashes > 1 => Some(format!("unexpected GroupVersion string: {text}")),
            ApiVersion::WithGroup if slashes == 0 || text.starts_with('/') => {
                Some("apiVersion must specify API group".to_string())
            }
            _ => None,
        }
    }
}

fn reference(target: &Value, version: ApiVersion, path: &Path, errors: &mut Vec<FieldError>) {
    for name in ["kind", "name"] {
        let text = target.str_at(&[name]);
        let at = path.child(name);
        match text {
            "" => errors.push(FieldError::required(&at, "")),
            _ => errors.extend(all_invalid(&at, text, names::path_segment(text, false))),
        }
    }
    let text = target.str_at(&["apiVersion"]);
    if let Some(wrong) = version.wrong(text) {
        errors.push(FieldError::invalid(&path.child("apiVersion"), text, wrong));
    }
}

fn scaling_rules(rules: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(window) = rules.i64_at(&["stabilizationWindowSeconds"]) {
        let at = path.child("stabilizationWindowSeconds");
        if window < 0 {
            let detail = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(&at, window, detail));
        }
        if window > LONGEST_WINDOW {
            let detail = format!("must be less than or equal to {LONGEST_WINDOW}");
            errors.push(FieldError::invalid(&at, window, detail));
        }
    }
    let supported = ["Disabled", "Max", "Min"];
    if let Some(policy) = rules.get("selectPolicy").and_then(Value::as_str)
        && !supported.contains(&policy)
    {
        let at = path.child("selectPolicy");
        errors.push(FieldError::not_supported(&at, policy, &supported));
    }
    let policies = rules.list_at(&["policies"]);
    let policies_path = path.child("policies");
    if policies.is_empty() {
        let detail = "must specify at least one Policy";
        errors.push(FieldError::required(&policies_path, detail));
    }
    for (index, policy) in policies.iter().enumerate() {
        let at = policies_path.index(index);
        let kind = policy.str_at(&["type"]);
        if !matches!(kind, "Pods" | "Percent") {
            let supported = ["Percent", "Pods"];
            errors.push(FieldError::not_supported(
                &at.child("type"),
                kind,
                &supported,
            ));
        }
        for name in ["value", "periodSeconds"] {
            let number = policy.i64_at(&[name]).unwrap_or(0);
            if number <= 0 {
                let detail = "must be greater than zero";
                errors.push(FieldError::invalid(&at.child(name), number, detail));
            }
            if name == "periodSeconds" && number > LONGEST_PERIOD {
                let detail = format!("must be less than or equal to {LONGEST_PERIOD}");
                errors.push(FieldError::invalid(&at.child(name), number, detail));
            }
        }
    }
    let tolerance = rules.str_at(&["tolerance"]);
    if Quantity::parse(tolerance).is_ok_and(|tolerance| tolerance.is_negative()) {
        let at = path.child("tolerance");
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&at, tolerance, detail));
    }
}
