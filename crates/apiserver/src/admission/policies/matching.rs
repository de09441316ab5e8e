//! Whether a policy or a binding is about a request, and about which version of its resource.

use std::sync::Arc;

use api::{Resource, Status};

use crate::admission::webhooks::{Objects, Request, is_in_selected_namespace, is_selected};
use crate::admission_hooks::Attributes;
use crate::admission_policies::{MatchResources, Rules};

/// The version of the resource that it is about; `None` if it is not about the request.
pub(super) async fn matched(
    request: &Request<'_>,
    resources: &MatchResources,
    objects: Objects<'_>,
) -> Result<Option<Arc<Resource>>, Status> {
    let by_rules = |rules: &Rules| by_rules(request, rules, resources.matches_equivalent);
    let found = match resources.rules.is_empty() {
        true => Some(request.requested.clone()),
        false => by_rules(&resources.rules),
    };
    let Some(resource) = found else {
        return Ok(None);
    };
    if by_rules(&resources.excluded).is_some() {
        return Ok(None);
    }
    // As upstream: a selector that does not match counts more than one that cannot be evaluated.
    let in_namespace = is_in_selected_namespace(request, &resources.namespaces, objects).await;
    let selected = is_selected(&resources.objects, objects);
    if matches!(in_namespace, Ok(false)) || matches!(selected, Ok(false)) {
        return Ok(None);
    }
    in_namespace?;
    selected?;
    Ok(Some(resource))
}

/// The version that rules are about: that of the request, or an equivalent one.
fn by_rules(
    request: &Request<'_>,
    rules: &Rules,
    matches_equivalent: bool,
) -> Option<Arc<Resource>> {
    let requested = request.attributes(request.requested);
    if rules.matches(&requested, &request.name) {
        return Some(request.requested.clone());
    }
    if !matches_equivalent || !rules.may_match_equivalent(&requested) {
        return None;
    }
    let equivalents = request.equivalents();
    let attributes: Vec<Attributes<'_>> = equivalents
        .iter()
        .map(|resource| request.attributes(resource))
        .collect();
    let found = rules.first_match(&attributes, &request.name)?;
    equivalents.get(found).cloned()
}
