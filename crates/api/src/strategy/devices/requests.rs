//! Checks the names of requests in a ResourceClaim.

use super::{MOST_REQUESTS, each_of_set, itself, label};
use crate::document::Value;
use crate::field::{FieldError, Path};

/// Checks the list `requests` of an object that refers to some of a claim's `requests`.
pub fn request_names(
    object: &Value,
    requests: &[Value],
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    let list = object.list_at(&["requests"]);
    let at = path.child("requests");
    each_of_set(
        list,
        MOST_REQUESTS,
        itself,
        &at,
        errors,
        |one, at, errors| {
            request_name(one.as_str().unwrap_or_default(), requests, at, errors);
        },
    );
}

/// Checks the name of a request, or of one of its alternatives after a slash.
pub fn request_name(name: &str, requests: &[Value], path: &Path, errors: &mut Vec<FieldError>) {
    let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > 2 {
        errors.push(FieldError::invalid(path, name, detail));
        return;
    }
    for part in &parts {
        errors.extend(label(part, path));
    }
    let found = named(requests, parts[0]).is_some_and(|request| match parts.get(1) {
        None => true,
        Some(alternative) => named(request.list_at(&["firstAvailable"]), alternative).is_some(),
    });
    if !found {
        errors.push(FieldError::invalid(path, name, detail));
    }
}

fn named<'a>(list: &'a [Value], name: &str) -> Option<&'a Value> {
    list.iter().find(|one| one.str_at(&["name"]) == name)
}
