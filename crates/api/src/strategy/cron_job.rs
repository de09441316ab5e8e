//! CronJobs.

use crate::age::{age, object_age};
use crate::cron;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::resource::Strategy;
use crate::strategy::{job, workload};

pub struct CronJob;

/// The name of a Job is that of its CronJob with 11 more characters for the time.
const LONGEST_NAME: usize = 52;

impl Strategy for CronJob {
    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        object.set_default(&["spec", "concurrencyPolicy"], "Allow");
        object.set_default(&["spec", "suspend"], false);
        object.set_default(&["spec", "successfulJobsHistoryLimit"], 3);
        object.set_default(&["spec", "failedJobsHistoryLimit"], 1);
        if let Some(spec) = object.at_mut(&["spec", "jobTemplate", "spec"])
            && !spec.is_null()
        {
            job::default_spec(spec);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = spec(object, None);
        let name = object.str_at(&["metadata", "name"]);
        if name.len() > LONGEST_NAME {
            let at = Path::new("metadata").child("name");
            let detail = "must be no more than 52 characters";
            errors.push(FieldError::invalid(&at, name, detail));
        }
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "" => spec(new, Some(old)),
            _ => Vec::new(),
        }
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let last = match object.str_at(&["status", "lastScheduleTime"]) {
            "" => "<none>".to_string(),
            time => age(time, now),
        };
        let zone = object.at(&["spec", "timeZone"]).and_then(Value::as_str);
        let zone = zone.unwrap_or("<none>");
        let suspend = match object.at(&["spec", "suspend"]).and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        let template = ["spec", "jobTemplate", "spec", "template", "spec"];
        let containers = object.at(&template).unwrap_or(&Value::Null);
        let [names, images] = workload::containers_cells(containers.list_at(&["containers"]));
        let selector = object.at(&["spec", "jobTemplate", "spec", "selector"]);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object.str_at(&["spec", "schedule"]).into(),
            zone.into(),
            suspend.into(),
            (object.list_at(&["status", "active"]).len() as i64).into(),
            last.into(),
            object_age(object, now).into(),
            names,
            images,
            workload::label_selector_cell(selector.unwrap_or(&Value::Null)),
        ]
    }
}

fn spec(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    schedule(object, old, &path.child("schedule"), &mut errors);
    let deadline = "startingDeadlineSeconds";
    errors.extend(workload::not_negative(object, "spec", deadline));
    let at = ["spec", "timeZone"];
    if old.is_none_or(|old| old.at(&at) != object.at(&at))
        && let Some(zone) = object.at(&at).and_then(Value::as_str)
    {
        errors.extend(time_zone(zone, &path.child("timeZone")));
    }
    let policy = object.str_at(&["spec", "concurrencyPolicy"]);
    let supported = ["Allow", "Forbid", "Replace"];
    if !supported.contains(&policy) {
        let at = path.child("concurrencyPolicy");
        errors.push(match policy {
            "" => FieldError::required(&at, ""),
            _ => FieldError::not_supported(&at, policy, &supported),
        });
    }
    let empty = Value::object();
    let template = object
        .at(&["spec", "jobTemplate", "spec"])
        .unwrap_or(&empty);
    let at = path.child("jobTemplate").child("spec");
    errors.extend(job::validate_template(template, &at));
    if let Some(selector) = template.get("selector").filter(|value| !value.is_null()) {
        let detail = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(
            &at.child("selector"),
            selector.clone(),
            detail,
        ));
    }
    if template.bool_at(&["manualSelector"]) {
        let at = at.child("manualSelector");
        errors.push(FieldError::not_supported(&at, true, &["nil", "false"]));
    }
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.extend(workload::not_negative(object, "spec", name));
    }
    errors
}

fn schedule(object: &Value, old: Option<&Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let at = ["spec", "schedule"];
    let text = object.str_at(&at);
    if text.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if let Err(problem) = cron::Schedule::parse(text, None) {
        errors.push(FieldError::invalid(path, text, problem.to_string()));
    }
    let zoned_before = old.is_some_and(|old| old.str_at(&at).contains("TZ"));
    let detail = match (text.contains("TZ"), zoned_before) {
        (true, true) if object.has(&["spec", "timeZone"]) => {
            "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        }
        (true, false) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        _ => return,
    };
    errors.push(FieldError::invalid(path, text, detail));
}

fn time_zone(zone: &str, path: &Path) -> Vec<FieldError> {
    if zone.is_empty() {
        let detail = "timeZone must be nil or non-empty string";
        return vec![FieldError::invalid(path, zone, detail)];
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte);
    let valid = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(allowed)
    };
    if !zone.split('/').all(valid) {
        let detail = format!("unknown time zone {zone}");
        return vec![FieldError::invalid(path, zone, detail)];
    }
    let mut errors = Vec::new();
    if zone.eq_ignore_ascii_case("Local") {
        let detail =
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(FieldError::invalid(path, zone, detail));
    }
    if let Err(problem) = cron::find_zone(zone) {
        errors.push(FieldError::invalid(path, zone, problem.to_string()));
    }
    errors
}
