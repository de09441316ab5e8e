//! Refuses what the identity of a request may not do. The rules are [`crate::authorization`]'s.

use api::Status;
use api::selector::FieldSelector;

use crate::authorization::Attributes;
use crate::context::Context;
use crate::endpoints;
use crate::request::RequestInfo;

pub(super) fn authorize(context: &Context) -> Result<(), Status> {
    let attributes = || {
        endpoints::attributes(&context.info)
            .unwrap_or_else(|| selected(&context.info, context.query.get("fieldSelector")))
    };
    let authorizer = &context.server.authorizer;
    authorizer.check_request(&context.identity, attributes)
}

/// The question about a request, narrowed by its field selector where the verb honours one. The
/// selectors of watch paths do not count, as upstream has it.
fn selected(info: &RequestInfo, field_selector: &str) -> Attributes {
    let mut attributes = Attributes::of(info);
    let is_collection = matches!(info.verb, "list" | "watch" | "deletecollection");
    if !is_collection || !info.name.is_empty() || info.is_watch_path {
        return attributes;
    }
    let selector = FieldSelector::parse(field_selector).unwrap_or_default();
    let exact = selector.requirements().iter().filter(|one| !one.negated);
    attributes.fields = exact
        .map(|one| (one.field.clone(), one.value.clone()))
        .collect();
    // Asking for the one object of a name is allowed to those who may see that object.
    if let Some(name) = selector.exact("metadata.name")
        && info.verb != "deletecollection"
        && api::metadata::names::path_segment(name, false).is_empty()
    {
        attributes.name = name.to_string();
    }
    attributes
}
