//! The kinds that admission is configured by: webhook configurations, and policies with their
//! bindings. What their expressions mean is [`expressions`]' to say.

mod binding;
mod expressions;
mod match_conditions;
mod match_resources;
mod mutating_policy;
mod parameters;
mod rules;
mod validating_policy;
mod webhooks;

#[cfg(test)]
mod expression_tests;
#[cfg(test)]
mod tests;

use crate::document::Value;

pub use binding::PolicyBinding;
pub use mutating_policy::MutatingAdmissionPolicy;
pub use validating_policy::ValidatingAdmissionPolicy;
pub use webhooks::WebhookConfiguration;

/// Names that are reserved for configurations in files of the server.
const STATIC_SUFFIX: &str = ".static.k8s.io";
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];

fn warn_of_static_suffix(object: &Value) -> Vec<String> {
    let name = object.str_at(&["metadata", "name"]);
    match name.ends_with(STATIC_SUFFIX) {
        true => vec![format!(
            "metadata.name: names ending with {STATIC_SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API"
        )],
        false => Vec::new(),
    }
}

/// The texts of a list.
fn texts<'a>(object: &'a Value, field: &str) -> Vec<&'a str> {
    let items = object.list_at(&[field]).iter();
    items
        .map(|item| item.as_str().unwrap_or_default())
        .collect()
}
