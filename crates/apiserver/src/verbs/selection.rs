//! Which objects a list, watch or collection delete is about: namespace, labels, fields.

use api::selector::{FieldSelector, LabelSelector};
use api::{Resource, Status};

use crate::cache::{CachedObject, Requirement};
use crate::context::Context;

pub(crate) struct Selection {
    /// Keys begin with this: `namespace/`, or "".
    pub prefix: String,
    labels: LabelSelector,
    fields: FieldSelector,
    selective: bool,
}

impl Selection {
    pub fn of(context: &Context, resource: &Resource) -> Result<Selection, Status> {
        let query = &context.query;
        let labels = LabelSelector::parse(query.get("labelSelector")).map_err(|problem| {
            Status::bad_request(format!(
                "unable to parse requirement: {}",
                problem
                    .0
                    .trim_start_matches("unable to parse requirement: ")
            ))
        })?;
        let mut field_text = query.get("fieldSelector").to_string();
        if !context.info.name.is_empty() {
            // A watch of one object by its path.
            field_text = format!("metadata.name={}", context.info.name);
        }
        let fields = FieldSelector::parse(&field_text)
            .map_err(|problem| Status::bad_request(problem.to_string()))?;
        let fields = fields
            .renamed(|field| api::conversion::selectable_field(resource, field))
            .map_err(|problem| Status::bad_request(problem.to_string()))?;
        let strategy = resource.strategy();
        let nothing = api::Value::object();
        let supported = strategy.selectable_fields(&nothing);
        let custom = resource.definition.custom();
        let declared = custom.map_or(&[][..], |custom| &custom.selectable_fields);
        let is_supported = |field: &str| {
            supported.iter().any(|(name, _)| *name == field)
                || declared.iter().any(|name| **name == *field)
        };
        let of_metadata = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        let only_metadata = custom.is_none() && supported.iter().all(|(name, _)| of_metadata(name));
        if let Some(field) = fields.unsupported(is_supported)
            && !(only_metadata && of_metadata(field))
        {
            return Err(Status::bad_request(match only_metadata {
                true => format!(
                    "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
                false => strategy.unsupported_field(field, &resource.api_version()),
            }));
        }
        let prefix = match (resource.namespaced, context.info.namespace.as_str()) {
            (true, namespace) if !namespace.is_empty() => format!("{namespace}/"),
            _ => String::new(),
        };
        let selective = !labels.is_everything() || !fields.is_everything();
        Ok(Selection {
            prefix,
            labels,
            fields,
            selective,
        })
    }

    pub fn matches(&self, entry: &CachedObject) -> bool {
        entry.key.starts_with(&self.prefix)
            && (!self.selective
                || self.labels.matches(|name| entry.label(name))
                    && self.fields.matches(|name| entry.field(name)))
    }

    /// The one name that is asked for, if only one is.
    pub fn exact_name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// Whether anything but the namespace is asked for.
    pub fn is_selective(&self) -> bool {
        self.selective
    }

    /// What an index can use.
    pub fn requirement(&self) -> Requirement {
        Requirement::of(
            ["metadata.name", "spec.nodeName"]
                .into_iter()
                .filter_map(|field| Some((field, self.fields.exact(field)?))),
        )
    }
}
