//! The rules of custom resources, which are the same for all kinds: their schemas say the rest.

use std::sync::Arc;

use api::custom::{JsonPath, Judged, PrinterColumn, ScalePaths, Schema};
use api::field::Path;
use api::metadata::{self, NameRule, names};
use api::resource::SchemaHandle;
use api::{FieldError, Strategy, Value};

pub(crate) struct CustomStrategy {
    pub namespaced: bool,
    pub kind: String,
    pub api_version: String,
    pub has_status: bool,
    pub scale: Option<ScalePaths>,
    pub schema: SchemaHandle,
    pub columns: Vec<PrinterColumn>,
    pub selectable: Arc<[SelectableField]>,
}

/// A field that field selectors may name.
pub(crate) struct SelectableField {
    pub name: Arc<str>,
    pub path: JsonPath,
}

impl CustomStrategy {
    fn schema(&self) -> Option<&Schema> {
        self.schema.get()
    }

    /// A wrong kind or version makes all other checks meaningless.
    fn check_type(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (field, expected) in [("kind", &self.kind), ("apiVersion", &self.api_version)] {
            let found = object.str_at(&[field]);
            if found != expected {
                let path = Path::new(field);
                errors.push(FieldError::invalid(
                    &path,
                    found,
                    format!("must be {expected}"),
                ));
            }
        }
        errors
    }

    fn judge(&self, judged: Judged<'_>, told: &mut Vec<String>) -> Vec<FieldError> {
        match self.schema() {
            Some(schema) => {
                let findings = schema.judge(judged);
                told.extend(findings.warnings);
                findings.errors
            }
            None => judged.errors,
        }
    }
}

impl Strategy for CustomStrategy {
    /// What a finalizer should be called is said in a warning.
    fn metadata_rules(&self) -> metadata::Rules {
        metadata::Rules {
            known_finalizers: false,
            ..metadata::Rules::new(self.namespaced(), self.name_rule())
        }
    }

    fn namespaced(&self) -> bool {
        self.namespaced
    }

    fn has_status(&self) -> bool {
        self.has_status
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allow_unconditional_update(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        if let Some(schema) = self.schema() {
            schema.default(object);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        if self.has_status {
            object.remove(&["status"]);
        }
        object.set(&["metadata", "generation"], 1);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        metadata::carry_over(new, old);
        if subresource == "status" {
            let status = new.remove(&["status"]);
            let owners = new.remove(&["metadata", "managedFields"]);
            let version = new.remove(&["metadata", "resourceVersion"]);
            *new = old.clone();
            for (path, value) in [
                (&["status"][..], status),
                (&["metadata", "managedFields"], owners),
                (&["metadata", "resourceVersion"], version),
            ] {
                match value {
                    Some(value) => new.set(path, value),
                    None => drop(new.remove(path)),
                }
            }
            return;
        }
        if self.has_status {
            match old.get("status") {
                Some(status) => new.set(&["status"], status.clone()),
                None => drop(new.remove(&["status"])),
            }
        }
        let content = |object: &Value| {
            let fields = object
                .as_object()
                .into_iter()
                .flat_map(|object| object.iter());
            let fields = fields.filter(|(name, _)| *name != "metadata");
            fields
                .map(|(name, value)| (name.to_string(), value.clone()))
                .collect::<Vec<_>>()
        };
        let generation = old.at(&["metadata", "generation"]).and_then(Value::as_i64);
        let generation = generation.unwrap_or(0);
        let changed = i64::from(content(new) != content(old));
        new.set(&["metadata", "generation"], generation + changed);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = self.check_type(object);
        if !errors.is_empty() {
            return errors;
        }
        errors.extend(metadata::validate(object, self.metadata_rules()));
        let judged = Judged {
            object,
            old: None,
            status_only: false,
            scale: self.scale.as_ref(),
            expressions: Some(api::expressions::RULES),
            errors,
        };
        self.judge(judged, &mut Vec::new())
    }

    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        self.judge_update(new, old, subresource, &mut Vec::new())
    }

    fn judge_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
        told: &mut Vec<String>,
    ) -> Vec<FieldError> {
        let anything = metadata::Rules {
            name: NameRule::PathSegment,
            generate_name: true,
            ..self.metadata_rules()
        };
        let mut errors = metadata::validate(new, anything);
        errors.extend(metadata::validate_update(new, old));
        let wrong = self.check_type(new);
        if !wrong.is_empty() {
            errors.extend(wrong);
            return errors;
        }
        errors.extend(metadata::validate_update(new, old));
        let judged = Judged {
            object: new,
            old: Some(old),
            status_only: subresource == "status",
            scale: self.scale.as_ref(),
            expressions: Some(api::expressions::RULES),
            errors,
        };
        self.judge(judged, told)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, _subresource: &str) -> Vec<String> {
        let finalizers = |object: &Value| {
            let list = object.list_at(&["metadata", "finalizers"]).iter();
            list.filter_map(Value::as_str)
                .map(str::to_string)
                .collect::<std::collections::BTreeSet<String>>()
        };
        let known = old.map(finalizers).unwrap_or_default();
        let added = finalizers(new).into_iter();
        let added = added.filter(|finalizer| !known.contains(finalizer));
        added
            .flat_map(|finalizer| finalizer_warnings(&finalizer))
            .collect()
    }

    fn added_fields(&self, object: &Value) -> Vec<(Arc<str>, String)> {
        let value = |field: &SelectableField| match field.path.first(object) {
            Ok(Some(Value::String(text))) => text.clone(),
            Ok(Some(Value::Null) | None) | Err(_) => String::new(),
            Ok(Some(other)) => other.to_string(),
        };
        let fields = self.selectable.iter();
        fields
            .map(|field| (field.name.clone(), value(field)))
            .collect()
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let mut cells = vec![object.str_at(&["metadata", "name"]).into()];
        let columns = self.columns.iter();
        cells.extend(columns.map(|column| column.cell(object, now)));
        cells
    }
}

/// What upstream has to say about the name of a finalizer.
fn finalizer_warnings(finalizer: &str) -> Vec<String> {
    const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let told = |problem: String| format!("metadata.finalizers: {finalizer:?}: {problem}");
    let mut warnings: Vec<String> = names::qualified_name(finalizer)
        .into_iter()
        .map(|problem| told(problem.to_string()))
        .collect();
    if !finalizer.contains('/') && !STANDARD.contains(&finalizer) {
        let path = if finalizer.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        warnings.push(told(format!(
            "prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        )));
    }
    warnings
}
