//! `DeleteOptions`, checked.

use api::field::{FieldError, Path};
use api::{Cause, Status, Value};

#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub grace_seconds: Option<i64>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<String>,
    pub dry_run: bool,
    /// Whether only an object that cannot be read is to be deleted, unread.
    pub ignores_read_error: bool,
}

impl DeleteOptions {
    pub const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

    /// `document` is a `DeleteOptions` object; `dry_run` counts regardless of its content.
    pub fn parse(document: &Value, dry_run: bool) -> Result<DeleteOptions, Status> {
        let text = |path: &[&str]| match document.str_at(path) {
            "" => None,
            text => Some(text.to_string()),
        };
        let ignores = document.get(Self::IGNORE_READ_ERROR);
        let mut options = DeleteOptions {
            grace_seconds: document.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            propagation: text(&["propagationPolicy"]),
            dry_run,
            ignores_read_error: ignores.and_then(Value::as_bool) == Some(true),
        };
        let mut errors = Vec::new();
        let path = Path::new("propagationPolicy");
        let orphan = document.get("orphanDependents").and_then(Value::as_bool);
        let policy = options.propagation.clone().unwrap_or_default();
        if orphan.is_some() && !policy.is_empty() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(&path, policy.as_str(), detail));
        }
        if !matches!(policy.as_str(), "" | "Foreground" | "Background" | "Orphan") {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported(
                &path,
                policy.as_str(),
                &supported,
            ));
        }
        let asked = document.list_at(&["dryRun"]);
        if asked.iter().any(|item| item.as_str() != Some("All")) {
            let given = Value::Array(asked.to_vec());
            errors.push(FieldError::not_supported(
                &Path::new("dryRun"),
                given,
                &["All"],
            ));
        }
        options.dry_run |= !asked.is_empty();
        if options.ignores_read_error {
            let with = [
                (options.dry_run, "dryRun"),
                (!policy.is_empty(), "propagationPolicy"),
                (orphan.is_some(), "orphanDependents"),
                (options.grace_seconds.is_some(), "gracePeriodSeconds"),
                (document.has(&["preconditions"]), "preconditions"),
            ];
            for (_, other) in with.into_iter().filter(|(given, _)| *given) {
                let detail = format!("cannot be set together with .{other}");
                let path = Path::new(Self::IGNORE_READ_ERROR);
                errors.push(FieldError::invalid(&path, true, detail));
            }
        }
        if !errors.is_empty() {
            return Err(DeleteOptions::invalid(errors));
        }
        if let Some(orphan) = orphan {
            options.propagation = Some(if orphan { "Orphan" } else { "Background" }.to_string());
        }
        Ok(options)
    }

    /// As hooks see them.
    pub fn to_document(&self) -> Value {
        let mut document = Value::object();
        if let Some(seconds) = self.grace_seconds {
            document.set(&["gracePeriodSeconds"], seconds);
        }
        for (path, text) in [
            (&["preconditions", "uid"][..], &self.uid),
            (
                &["preconditions", "resourceVersion"],
                &self.resource_version,
            ),
            (&["propagationPolicy"], &self.propagation),
        ] {
            if let Some(text) = text {
                document.set(path, text.as_str());
            }
        }
        if self.dry_run {
            document.set(&["dryRun"], vec![Value::from("All")]);
        }
        document
    }

    /// The answer to options that are wrong.
    pub fn invalid(errors: Vec<FieldError>) -> Status {
        let causes = errors.into_iter().map(Cause::from).collect();
        Status::invalid("meta.k8s.io", "DeleteOptions", "", causes)
    }
}
