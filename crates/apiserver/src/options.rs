//! The options of a write that come with its query: checked together, answered as one error.

use api::field::{FieldError, Path};
use api::{Cause, Status};

use crate::context::Context;
use crate::negotiate::content_type;

/// How a request says what is to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    /// Not a patch but a configuration: `apply` has it.
    Apply,
}

impl PatchType {
    pub fn of(media_type: &str) -> Option<PatchType> {
        match media_type {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::Strategic),
            "application/apply-patch+yaml" => Some(PatchType::Apply),
            _ => None,
        }
    }
}

/// Checks the options of the request and returns whether it is a dry run.
pub(crate) fn check(context: &Context) -> Result<bool, Status> {
    let (kind, patch) = match context.info.verb {
        "create" => ("CreateOptions", None),
        "update" => ("UpdateOptions", None),
        "patch" => match PatchType::of(content_type(&context.headers)) {
            Some(patch) => ("PatchOptions", Some(patch)),
            // The answer will be about the type.
            None => return Ok(false),
        },
        "delete" | "deletecollection" => ("DeleteOptions", None),
        _ => return Ok(false),
    };
    let mut causes: Vec<Cause> = Vec::new();
    if kind != "DeleteOptions" {
        causes.extend(about_manager(context, patch).into_iter().map(Cause::from));
    }
    let dry_run: Vec<&str> = context.query.all("dryRun").collect();
    let dry_run: Vec<&str> = dry_run
        .into_iter()
        .filter(|value| !value.is_empty())
        .collect();
    if dry_run.iter().any(|value| *value != "All") {
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: [{}]: supported values: \"All\"",
                dry_run
                    .iter()
                    .map(|value| format!("{value:?}"))
                    .collect::<Vec<_>>()
                    .join(",")
            ),
            field: "dryRun".to_string(),
        });
    }
    let validation = context.query.get("fieldValidation");
    if kind != "DeleteOptions" && !matches!(validation, "" | "Ignore" | "Strict" | "Warn") {
        let supported = ["", "Ignore", "Strict", "Warn"];
        let path = Path::new("fieldValidation");
        causes.push(FieldError::not_supported(&path, validation, &supported).into());
    }
    match causes.is_empty() {
        true => Ok(!dry_run.is_empty()),
        false => Err(Status::invalid("meta.k8s.io", kind, "", causes)),
    }
}

fn about_manager(context: &Context, patch: Option<PatchType>) -> Vec<FieldError> {
    let manager = context.query.get("fieldManager");
    let path = Path::new("fieldManager");
    let mut errors = Vec::new();
    match patch {
        Some(PatchType::Apply) if manager.is_empty() => {
            errors.push(FieldError::required(&path, "is required for apply patch"));
        }
        Some(PatchType::Json | PatchType::Merge | PatchType::Strategic)
            if context.query.all("force").next().is_some() =>
        {
            let detail = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden(&Path::new("force"), detail));
        }
        _ => {}
    }
    errors.extend(api::metadata::managed_fields::validate_manager(
        manager, &path,
    ));
    errors
}

/// Who writes: the name the request gives, or what its user agent begins with.
pub(crate) fn manager(context: &Context) -> String {
    let named = context.query.get("fieldManager");
    if !named.is_empty() {
        return named.to_string();
    }
    let agent = context.headers.get(http::header::USER_AGENT);
    let agent = agent.map_or("".into(), |agent| String::from_utf8_lossy(agent.as_bytes()));
    let mut prefix = String::new();
    for character in agent.split('/').next().unwrap_or_default().chars() {
        if !api::metadata::managed_fields::is_printable(character) {
            continue;
        }
        if prefix.len() + character.len_utf8() > api::metadata::managed_fields::LONGEST_MANAGER {
            break;
        }
        prefix.push(character);
    }
    prefix
}
