//! Label selectors of API objects in the form that matches.

use api::selector::LabelSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Document;

/// A missing selector matches nothing, as does one that cannot be read (the API server refuses it).
pub(crate) fn selector_of(document: Option<&Document>) -> LabelSelector {
    let read = || {
        let text = serde_json::to_vec(document?).ok()?;
        let document = api::Value::from_json(&text).ok()?;
        LabelSelector::from_document(&document).ok()
    };
    read().unwrap_or_else(LabelSelector::nothing)
}
