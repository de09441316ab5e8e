//! The rules between the options of lists and watches, all violations reported at once.

use api::field::{FieldError, Path};
use api::{Cause, Status};

use crate::query::Query;

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";

pub(crate) fn check_list(query: &Query) -> Result<(), Status> {
    let path = Path::new(MATCH);
    let mut errors = Vec::new();
    let forbidden = |why: &str| FieldError::forbidden(&path, why);
    let version = query.get("resourceVersion");
    let matching = query.get(MATCH);
    if !matching.is_empty() {
        if version.is_empty() {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if !query.get("continue").is_empty() {
            errors.push(forbidden(
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let supported = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported(&path, matching, &supported));
        }
        if matching == "Exact" && version == "0" {
            errors.push(forbidden(
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if !query.get(INITIAL).is_empty() {
        errors.push(FieldError::forbidden(
            &Path::new(INITIAL),
            "sendInitialEvents is forbidden for list",
        ));
    }
    answer(errors)
}

/// `watch_list` is the feature gate `WatchList`.
pub(crate) fn check_watch(query: &Query, watch_list: bool) -> Result<(), Status> {
    let path = Path::new(MATCH);
    let mut errors = Vec::new();
    if !watch_list && !query.get(INITIAL).is_empty() {
        let why =
            "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        errors.push(FieldError::forbidden(&Path::new(INITIAL), why));
    }
    let mut matching = query.get(MATCH);
    let mut initial = !query.get(INITIAL).is_empty();
    // A watch from anywhere begins with what there is, which counts as asked for.
    if !initial && matching.is_empty() && matches!(query.get("resourceVersion"), "" | "0") {
        (initial, matching) = (true, "NotOlderThan");
    }
    if initial && matching != "NotOlderThan" {
        errors.push(FieldError::forbidden(
            &path,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if !matching.is_empty() {
        if !initial {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if matching != "NotOlderThan" {
            let supported = ["NotOlderThan"];
            errors.push(FieldError::not_supported(&path, matching, &supported));
        }
        if !query.get("continue").is_empty() {
            errors.push(FieldError::forbidden(
                &path,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
    answer(errors)
}

fn answer(errors: Vec<FieldError>) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let causes = errors.into_iter().map(Cause::from).collect();
    Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, list: &[&str], watch: &[&str]) {
        let query = Query::parse(Some(query));
        let told = |result: Result<(), Status>| -> Vec<String> {
            let details = result.err().and_then(|status| status.details);
            let causes = details.map(|details| details.causes).unwrap_or_default();
            causes.into_iter().map(|cause| cause.message).collect()
        };
        assert_eq!(told(check_list(&query)), list);
        assert_eq!(told(check_watch(&query, true)), watch);
    }

    #[test]
    fn the_rules_are_upstreams() {
        check("", &[], &[]);
        let for_watch = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        check(
            "resourceVersion=5&resourceVersionMatch=NotOlderThan",
            &[],
            &[for_watch],
        );
        check(
            "resourceVersion=0&resourceVersionMatch=Exact",
            &["Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""],
            &[
                for_watch,
                "Unsupported value: \"Exact\": supported values: \"NotOlderThan\"",
            ],
        );
        check(
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            &[
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
                "Forbidden: sendInitialEvents is forbidden for list",
            ],
            &[],
        );
        check(
            "sendInitialEvents=false",
            &["Forbidden: sendInitialEvents is forbidden for list"],
            &["Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"],
        );
    }
}
