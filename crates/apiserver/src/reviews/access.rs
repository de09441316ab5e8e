//! SubjectAccessReview, its local form and that about oneself: what is wrong with the question, and
//! the authorizer's answer.

use std::collections::BTreeMap;

use api::field::{FieldError, Path};
use api::selector::{FieldSelector, LabelSelector};
use api::{Cause, Status, Value};

use super::strings;
use crate::authorization::{Attributes, Decision};
use crate::context::Context;
use crate::identity::Identity;

const GROUP: &str = "authorization.k8s.io";
const ON_RESOURCE: [&str; 2] = ["spec", "resourceAttributes"];
const ON_PATH: [&str; 2] = ["spec", "nonResourceAttributes"];

pub(super) fn of_self(context: &Context, review: &Value) -> Result<Value, Status> {
    let mut errors = wrong_attributes(review);
    errors.extend(wrong_selectors(review));
    errors.extend(wrong_metadata(review, "must be empty"));
    told(errors)?;
    Ok(answer(context, review, &context.identity))
}

pub(super) fn of_subject(context: &Context, review: &Value) -> Result<Value, Status> {
    let mut errors = wrong_subject(review);
    errors.extend(wrong_metadata(review, "must be empty"));
    told(errors)?;
    Ok(answer(context, review, &subject(review)))
}

pub(super) fn local(context: &Context, review: &mut Value) -> Result<Value, Status> {
    let namespace = context.info.namespace.as_str();
    let path = ["metadata", "namespace"];
    match review.str_at(&path) {
        "" => review.set(&path, namespace),
        given if given == namespace => {}
        _ => {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    let mut errors = wrong_subject(review);
    let mut rest = review.clone();
    rest.remove(&path);
    errors.extend(wrong_metadata(&rest, "must be empty except for namespace"));
    if let Some(asked) = review.at(&ON_RESOURCE) {
        let asked = asked.str_at(&["namespace"]);
        if asked != namespace {
            let path = Path::new("spec.resourceAttributes.namespace");
            errors.push(FieldError::invalid(
                &path,
                asked,
                "must match metadata.namespace",
            ));
        }
    }
    if let Some(asked) = review.at(&ON_PATH) {
        let path = Path::new("spec.nonResourceAttributes");
        let detail = "disallowed on this kind of request";
        errors.push(FieldError::invalid(&path, in_go(asked), detail));
    }
    told(errors)?;
    Ok(answer(context, review, &subject(review)))
}

/// Upstream has forgotten the kind by the time it reports these.
fn told(errors: Vec<FieldError>) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let causes = errors.into_iter().map(Cause::from).collect();
    Err(Status::invalid(GROUP, "", "", causes))
}

fn wrong_attributes(review: &Value) -> Vec<FieldError> {
    let spec = Path::new("spec");
    let given = |path: &[&str]| review.at(path).filter(|value| !value.is_null());
    match (given(&ON_RESOURCE), given(&ON_PATH)) {
        (Some(_), Some(asked)) => vec![FieldError::invalid(
            &spec.child("nonResourceAttributes"),
            in_go(asked),
            "cannot be specified in combination with resourceAttributes",
        )],
        (None, None) => vec![FieldError::invalid(
            &spec.child("resourceAttributes"),
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )],
        _ => Vec::new(),
    }
}

/// Attributes with the names they have inside upstream.
fn in_go(attributes: &Value) -> Value {
    api::document!({
        "Path": attributes.str_at(&["path"]), "Verb": attributes.str_at(&["verb"]),
    })
}

fn wrong_subject(review: &Value) -> Vec<FieldError> {
    let mut errors = wrong_attributes(review);
    let nobody = review.str_at(&["spec", "user"]).is_empty()
        && review.list_at(&["spec", "groups"]).is_empty();
    if nobody {
        errors.push(FieldError::invalid(
            &Path::new("spec").child("user"),
            "",
            "at least one of user or group must be specified",
        ));
    }
    errors.extend(wrong_selectors(review));
    errors
}

fn wrong_selectors(review: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(asked) = review.at(&ON_RESOURCE) else {
        return errors;
    };
    for field in ["fieldSelector", "labelSelector"] {
        let Some(selector) = asked.get(field).filter(|value| !value.is_null()) else {
            continue;
        };
        let path = Path::new("spec.resourceAttributes").child(field);
        let raw = selector.str_at(&["rawSelector"]);
        let listed = !selector.list_at(&["requirements"]).is_empty();
        if !raw.is_empty() && listed {
            let detail = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(&path.child("rawSelector"), raw, detail));
        }
        if raw.is_empty() && !listed {
            let detail =
                format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(&path.child("requirements"), detail));
        }
    }
    errors
}

fn wrong_metadata(review: &Value, detail: &str) -> Option<FieldError> {
    let mut metadata = review.get("metadata")?.clone();
    metadata.remove(&["managedFields"]);
    let set = metadata.fields_at(&[]).any(|(_, value)| !value.is_null());
    set.then(|| FieldError::invalid(&Path::new("metadata"), metadata.clone(), detail))
}

fn subject(review: &Value) -> Identity {
    let given = review.fields_at(&["spec", "extra"]);
    let extra: BTreeMap<String, Vec<String>> = given
        .map(|(name, values)| (name.to_string(), strings(Some(values))))
        .collect();
    Identity {
        user: review.str_at(&["spec", "user"]).to_string(),
        groups: strings(review.at(&["spec", "groups"])),
        uid: review.str_at(&["spec", "uid"]).to_string(),
        extra,
        issued: None,
    }
}

fn answer(context: &Context, review: &Value, identity: &Identity) -> Value {
    let (attributes, problem) = attributes(review);
    let decision = context.server.authorizer.allows(identity, &attributes);
    let (allowed, reason) = match decision {
        Decision::Allowed(reason) => (true, reason),
        Decision::NoOpinion(reason) => (false, reason),
    };
    let mut status = api::document!({"allowed": allowed});
    if !reason.is_empty() {
        status.set(&["reason"], reason);
    }
    if let Some(problem) = problem {
        status.set(&["evaluationError"], problem);
    }
    status
}

/// The question, and what of it could not be understood.
fn attributes(review: &Value) -> (Attributes, Option<String>) {
    let Some(asked) = review.at(&ON_RESOURCE) else {
        let text = |field: &str| review.str_at(&["spec", "nonResourceAttributes", field]);
        let attributes = Attributes {
            verb: text("verb").to_string(),
            path: text("path").to_string(),
            ..Attributes::default()
        };
        return (attributes, None);
    };
    let text = |name: &str| asked.str_at(&[name]).to_string();
    let mut problems = Vec::new();
    let (fields, wrong) = exact_fields(asked);
    if wrong {
        let how = if fields.is_empty() {
            "ignored"
        } else {
            "partially ignored"
        };
        problems.push(format!(
            "spec.resourceAttributes.fieldSelector {how} due to parse error"
        ));
    }
    let labels = asked.str_at(&["labelSelector", "rawSelector"]);
    if LabelSelector::parse(labels).is_err() {
        problems
            .push("spec.resourceAttributes.labelSelector ignored due to parse error".to_string());
    }
    let attributes = Attributes {
        verb: text("verb"),
        is_resource: true,
        group: text("group"),
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: String::new(),
        fields,
    };
    let problems = (!problems.is_empty()).then(|| problems.join("; "));
    (attributes, problems)
}

/// The fields demanded by equality, and whether something was not understood; that only widens the
/// question.
fn exact_fields(asked: &Value) -> (Vec<(String, String)>, bool) {
    let raw = asked.str_at(&["fieldSelector", "rawSelector"]);
    let requirements = asked.list_at(&["fieldSelector", "requirements"]);
    if requirements.is_empty() {
        let Ok(selector) = FieldSelector::parse(raw) else {
            return (Vec::new(), true);
        };
        let exact = selector.requirements().iter().filter(|one| !one.negated);
        let fields = exact.map(|one| (one.field.clone(), one.value.clone()));
        return (fields.collect(), false);
    }
    let (mut fields, mut wrong) = (Vec::new(), false);
    for requirement in requirements {
        let values = strings(requirement.get("values"));
        match (requirement.str_at(&["operator"]), values.as_slice()) {
            ("In", [value]) => {
                fields.push((requirement.str_at(&["key"]).to_string(), value.clone()));
            }
            ("NotIn", [_]) => {}
            _ => wrong = true,
        }
    }
    (fields, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_narrow_the_question() {
        let review = api::document!({"spec": {"resourceAttributes": {
            "verb": "list", "resource": "pods",
            "fieldSelector": {"requirements": [
                {"key": "spec.nodeName", "operator": "In", "values": ["n"]},
                {"key": "a", "operator": "Exists"},
            ]},
        }}});
        let (asked, problem) = attributes(&review);
        assert_eq!(
            asked.fields,
            [("spec.nodeName".to_string(), "n".to_string())]
        );
        assert_eq!(
            problem.unwrap(),
            "spec.resourceAttributes.fieldSelector partially ignored due to parse error"
        );
    }

    #[test]
    fn a_question_must_be_one() {
        let told = |review: Value| -> Vec<String> {
            wrong_subject(&review)
                .iter()
                .map(ToString::to_string)
                .collect()
        };
        assert_eq!(
            told(Value::object()),
            [
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified",
                "spec.user: Invalid value: \"\": at least one of user or group must be specified",
            ]
        );
    }
}
