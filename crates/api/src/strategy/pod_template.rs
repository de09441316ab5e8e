//! PodTemplates.

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::resource::Strategy;
use crate::strategy::{pod, workload};

pub struct PodTemplate;

impl Strategy for PodTemplate {
    fn returns_deleted(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = object.at_mut(&["template", "spec"])
            && !spec.is_null()
        {
            pod::defaults::pod_spec(spec);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        let empty = Value::object();
        let template = object.get("template").unwrap_or(&empty);
        workload::pod_template(template, &Path::new("template"))
    }

    fn cells(&self, object: &Value, _: jiff::Timestamp) -> Vec<Value> {
        let containers = object.list_at(&["template", "spec", "containers"]);
        let [names, images] = workload::containers_cells(containers);
        vec![
            object.str_at(&["metadata", "name"]).into(),
            names,
            images,
            workload::labels_cell(object.at(&["template", "metadata", "labels"])),
        ]
    }
}
