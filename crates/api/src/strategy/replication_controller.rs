//! ReplicationControllers.

use crate::age::object_age;
use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::{NameRule, Rules};
use crate::resource::{Dependents, Strategy, generic};
use crate::strategy::{replica_set, workload};

pub struct ReplicationController;

impl Strategy for ReplicationController {
    fn name_rule(&self) -> NameRule {
        NameRule::LongName
    }

    fn metadata_rules(&self) -> Rules {
        Rules {
            generate_name: false,
            ..Rules::new(self.namespaced(), self.name_rule())
        }
    }

    fn has_status(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        let labels = object.at(&["spec", "template", "metadata", "labels"]);
        if let Some(labels) = labels.filter(|labels| !labels.is_null()).cloned() {
            for path in [["spec", "selector"], ["metadata", "labels"]] {
                if object.fields_at(&path).count() == 0 {
                    object.set(&path, labels.clone());
                }
            }
        }
        object.set_default(&["spec", "replicas"], 1);
        workload::default_template(object);
    }

    fn prepare_create_content(&self, object: &mut Value) {
        object.set(&["status", "replicas"], 0);
        workload::drop_closed(object, None);
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, _: &str) {
        workload::drop_closed(new, Some(old));
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let path = Path::new("spec");
        let mut errors = Vec::new();
        errors.extend(workload::not_negative(object, "spec", "minReadySeconds"));
        let mut selector = Value::object();
        if let Some(labels) = object.at(&["spec", "selector"]) {
            selector.set(&["matchLabels"], labels.clone());
        }
        let empty = workload::is_empty_selector(&selector);
        if empty {
            errors.push(FieldError::required(&path.child("selector"), ""));
        }
        errors.extend(workload::not_negative(object, "spec", "replicas"));
        let at = path.child("template");
        let template = object.at(&["spec", "template"]);
        let Some(template) = template.filter(|template| !template.is_null()) else {
            errors.push(FieldError::required(&at, ""));
            return errors;
        };
        // Compared as they are: what no label can be matches nothing.
        let has = |(name, value): (&str, &Value)| {
            template.at(&["metadata", "labels", name]) == Some(value)
        };
        if !object.fields_at(&["spec", "selector"]).all(has) {
            errors.extend(workload::unmatched_by_nothing(template, &at));
        }
        errors.extend(workload::pod_template(template, &at));
        let kind = "ReplicationController";
        errors.extend(workload::always_restarting(template, &at, kind));
        errors
    }

    fn validate_update_content(
        &self,
        new: &Value,
        _: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "status" => replica_set::status(new),
            _ => self.validate_content(new),
        }
    }

    fn dependents(&self) -> Dependents {
        Dependents::Orphaned
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, true);
        let replicas = object.i64_at(&["status", "replicas"]).unwrap_or(0);
        fields.push(("status.replicas", replicas.to_string()));
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let number = |path: &[&str]| Value::from(object.i64_at(path).unwrap_or(0));
        let [containers, images] = workload::container_cells(object);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            number(&["spec", "replicas"]),
            number(&["status", "replicas"]),
            number(&["status", "readyReplicas"]),
            object_age(object, now).into(),
            containers,
            images,
            workload::labels_cell(object.at(&["spec", "selector"])),
        ]
    }
}
