//! Conversion of custom resources by a webhook: one `ConversionReview` for all objects of a request,
//! and nothing believed of its answer that was not checked.

use std::sync::Arc;
use std::time::Duration;

use api::field::{FieldError, Path};
use api::{Reason, Status, Value};
use bytes::Bytes;

use super::{Channel, Limits, Target, WebhookClient};

/// Upstream sets no limit. A hook that takes longer than any admission hook may is taken for dead.
const LONGEST: Duration = Duration::from_secs(30);
/// A list is converted as a whole, so an answer may be as large as a list is.
const LARGEST_ANSWER: usize = 64 << 20;

/// The conversion webhook of a kind.
#[derive(Clone)]
pub(crate) struct ConversionHook {
    channel: Arc<Channel>,
    /// The versions of `ConversionReview` that it understands, the preferred one first.
    review_versions: Vec<String>,
}

impl ConversionHook {
    /// Reads `spec.conversion.webhook` of a CustomResourceDefinition.
    pub fn of_document(client: &WebhookClient, webhook: &Value) -> Result<Self, super::Error> {
        let config = webhook.get("clientConfig").unwrap_or(&Value::Null);
        let versions = webhook.list_at(&["conversionReviewVersions"]).iter();
        let versions = versions.filter_map(Value::as_str).map(str::to_string);
        Ok(ConversionHook {
            channel: client.channel(Target::of_client_config(config)?)?,
            review_versions: versions.collect(),
        })
    }
}

/// Why a conversion failed, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("no supported conversion review versions")]
    NoVersion,
    #[error("conversion webhook for {kind} failed: {problem}")]
    Failed { kind: String, problem: String },
    #[error("conversion webhook for {kind} returned {found} objects, expected {expected}")]
    Count {
        kind: String,
        found: usize,
        expected: usize,
    },
    #[error("conversion webhook for {kind} returned invalid {what}: {problem}")]
    Object {
        kind: String,
        what: String,
        problem: String,
    },
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        // Upstream foresees no reason for them.
        Status::new(Reason::Unknown, refused.to_string())
    }
}

/// The objects in the version `desired_api_version` (`group/version`), in the same order. Those that
/// are in it already are not sent; nothing is sent where that is all of them. `uid` identifies the
/// question, and is random. A list is given as a whole, so that it is asked for only once.
pub(crate) async fn convert(
    hook: &ConversionHook,
    uid: &str,
    desired_api_version: &str,
    objects: Vec<Value>,
) -> Result<Vec<Value>, Status> {
    let is_other = |object: &Value| object.str_at(&["apiVersion"]) != desired_api_version;
    let sent: Vec<&Value> = objects.iter().filter(|object| is_other(object)).collect();
    let Some(first) = sent.first() else {
        return Ok(objects);
    };
    let kind = shown_kind(first);
    let known = |version: &&String| matches!(version.as_str(), "v1" | "v1beta1");
    let version = hook.review_versions.iter().find(known);
    let version = version.ok_or(Refused::NoVersion)?;
    let question = Question {
        version,
        uid,
        desired_api_version,
        kind: &kind,
        is_list: objects.len() > 1,
    };
    let body = question.body(&sent);
    let limits = Limits {
        time: LONGEST,
        bytes: LARGEST_ANSWER,
    };
    let answer = hook.channel.post(body, limits).await;
    let answer = answer.map_err(|problem| question.failed(problem.to_string()))?;
    let converted = question.converted(&answer, sent.len())?;
    let mut converted = converted.into_iter().enumerate();
    let mut result = Vec::with_capacity(objects.len());
    for original in objects {
        if !is_other(&original) {
            result.push(original);
            continue;
        }
        // There are as many as were sent.
        if let Some((index, object)) = converted.next() {
            result.push(question.checked(&original, object, index)?);
        }
    }
    Ok(result)
}

struct Question<'a> {
    version: &'a str,
    uid: &'a str,
    desired_api_version: &'a str,
    /// The kind of the first object, as errors name it.
    kind: &'a str,
    /// Upstream has other words for one object than for several.
    is_list: bool,
}

impl Question<'_> {
    fn body(&self, objects: &[&Value]) -> Bytes {
        let head = api::document!({
            "kind": "ConversionReview",
            "apiVersion": format!("apiextensions.k8s.io/{}", self.version),
        });
        let mut request = api::document!({
            "uid": self.uid, "desiredAPIVersion": self.desired_api_version,
        });
        let objects = objects.iter().map(|object| (*object).clone());
        request.set(&["objects"], objects.collect::<Vec<_>>());
        let mut review = head;
        review.set(&["request"], request);
        let empty =
            api::document!({"uid": "", "convertedObjects": null, "result": {"metadata": {}}});
        review.set(&["response"], empty);
        review.to_json().into()
    }

    fn failed(&self, problem: impl Into<String>) -> Refused {
        Refused::Failed {
            kind: self.kind.to_string(),
            problem: problem.into(),
        }
    }

    /// The objects of an answer that is one to this question.
    fn converted(&self, answer: &[u8], expected: usize) -> Result<Vec<Value>, Refused> {
        let review = api::schema::parse_json(answer).map_err(|problem| {
            self.failed(format!(
                "couldn't get version/kind; json parse error: {problem}"
            ))
        })?;
        // The older version's answers were never looked at this closely.
        let is_strict = self.version == "v1";
        let (api_version, kind) = (review.str_at(&["apiVersion"]), review.str_at(&["kind"]));
        if is_strict && (api_version, kind) != ("apiextensions.k8s.io/v1", "ConversionReview") {
            return Err(self.failed(format!(
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got {}",
                shown_kind(&review)
            )));
        }
        let response = review
            .get("response")
            .filter(|response| !response.is_null());
        let response = response.ok_or_else(|| self.failed("no response provided"))?;
        let uid = response.str_at(&["uid"]);
        if is_strict && uid != self.uid {
            return Err(self.failed(format!("expected response.uid={:?}, got {uid:?}", self.uid)));
        }
        let status = response.str_at(&["result", "status"]);
        if status != "Success" {
            return Err(self.failed(match response.str_at(&["result", "message"]) {
                "" => format!("response.result.status was '{status}', not 'Success'"),
                message => message.to_string(),
            }));
        }
        let converted = response.list_at(&["convertedObjects"]).to_vec();
        match converted.len() == expected {
            true => Ok(converted),
            false => Err(Refused::Count {
                kind: self.kind.to_string(),
                found: converted.len(),
                expected,
            }),
        }
    }

    /// A converted object that may take the place of the original: of the same kind and identity,
    /// with the original's metadata but for labels and annotations.
    fn checked(&self, original: &Value, converted: Value, index: usize) -> Result<Value, Refused> {
        let refused = |what: String, problem: String| Refused::Object {
            kind: self.kind.to_string(),
            what,
            problem,
        };
        let (shape, identity, metadata) = match self.is_list {
            true => {
                let what = format!("converted object at index {index}");
                let metadata = format!("metadata in object at index {index}");
                (what.clone(), what, metadata)
            }
            false => (
                format!("object at index {index}"),
                "object".to_string(),
                "metadata".to_string(),
            ),
        };
        let invalid = |problem: String| refused(shape.clone(), problem);
        if converted.as_object().is_none() {
            return Err(invalid("Object 'Kind' is missing".to_string()));
        }
        let found = converted.str_at(&["apiVersion"]);
        if found != self.desired_api_version {
            return Err(invalid(format!(
                "invalid groupVersion (expected {}, received {found})",
                self.desired_api_version
            )));
        }
        let text = |object: &Value, path: &[&str]| object.str_at(path).to_string();
        let kinds = (text(original, &["kind"]), text(&converted, &["kind"]));
        if kinds.0 != kinds.1 {
            return Err(invalid(format!(
                "invalid kind (expected {}, received {})",
                kinds.0, kinds.1
            )));
        }
        for (what, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
            let path = ["metadata", field];
            let (before, after) = (original.str_at(&path), converted.str_at(&path));
            if before != after {
                let problem = format!("must have the same {what}: {before} != {after}");
                return Err(refused(identity, problem));
            }
        }
        restore_metadata(original, converted).map_err(|problem| refused(metadata, problem))
    }
}

/// The converted object with the metadata of the original, except for labels and annotations.
fn restore_metadata(original: &Value, mut converted: Value) -> Result<Value, String> {
    let given = converted.remove(&["metadata"]);
    let given = given.ok_or("missing metadata in converted object")?;
    if given.as_object().is_none() {
        return Err("invalid metadata in converted object".to_string());
    }
    let mut metadata = original.get("metadata").cloned();
    let metadata = metadata.get_or_insert_with(Value::object);
    for (field, shown) in [("labels", "labels"), ("annotations", "annotation")] {
        let Some(texts) = given.get(field).filter(|texts| !texts.is_null()) else {
            metadata.remove(&[field]);
            continue;
        };
        let fields = texts.as_object();
        let fields =
            fields.ok_or_else(|| format!("invalid metadata.{field} in converted object"))?;
        if let Some((key, _)) = fields.iter().find(|(_, value)| value.as_str().is_none()) {
            return Err(format!(
                "metadata.{field}[{key}] must be a string in converted object"
            ));
        }
        if metadata.get(field) != Some(texts) {
            let path = Path::new("metadata").child(shown);
            let errors: Vec<FieldError> = match field {
                "labels" => api::metadata::labels(Some(texts), &path),
                _ => api::metadata::annotations(Some(texts), &path),
            };
            if !errors.is_empty() {
                return Err(aggregate(&errors));
            }
        }
        metadata.set(&[field], texts.clone());
    }
    let metadata = std::mem::take(metadata);
    converted.set(&["metadata"], metadata);
    Ok(converted)
}

/// Several errors as Go joins them.
fn aggregate(errors: &[FieldError]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// `group/version, Kind=Kind`.
fn shown_kind(object: &Value) -> String {
    let (group, version) = api::resource::split_api_version(object.str_at(&["apiVersion"]));
    format!("{group}/{version}, Kind={}", object.str_at(&["kind"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question<'static> = Question {
        version: "v1",
        uid: "u",
        desired_api_version: "example.com/v2",
        kind: "example.com/v1, Kind=Widget",
        is_list: true,
    };

    fn review(response: Value) -> Vec<u8> {
        api::document!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": response,
        })
        .to_json()
    }

    fn widget(version: &str, labels: Value) -> Value {
        api::document!({
            "apiVersion": format!("example.com/{version}"), "kind": "Widget",
            "metadata": {"name": "a", "namespace": "n", "uid": "1", "generation": 3, "labels": labels},
        })
    }

    #[track_caller]
    fn refused(answer: &[u8]) -> String {
        QUESTION.converted(answer, 1).unwrap_err().to_string()
    }

    #[test]
    fn an_answer_to_another_question_is_refused() {
        let prefix = "conversion webhook for example.com/v1, Kind=Widget failed: ";
        let answer = review(api::document!({"uid": "other", "result": {"status": "Success"}}));
        assert_eq!(
            refused(&answer),
            format!("{prefix}expected response.uid=\"u\", got \"other\"")
        );
        let answer = api::document!({"kind": "Pod", "apiVersion": "v1"}).to_json();
        assert_eq!(
            refused(&answer),
            format!(
                "{prefix}expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=Pod"
            )
        );
        assert_eq!(
            refused(&review(Value::Null)),
            format!("{prefix}no response provided")
        );
        let answer = review(api::document!({"uid": "u", "result": {"status": "Failed"}}));
        assert_eq!(
            refused(&answer),
            format!("{prefix}response.result.status was 'Failed', not 'Success'")
        );
        let failed = api::document!({"uid": "u", "result": {"status": "Failed", "message": "no"}});
        assert_eq!(refused(&review(failed)), format!("{prefix}no"));
        let none = api::document!({"uid": "u", "result": {"status": "Success"}});
        assert_eq!(
            refused(&review(none)),
            "conversion webhook for example.com/v1, Kind=Widget returned 0 objects, expected 1"
        );
    }

    #[test]
    fn a_conversion_changes_no_metadata_but_labels_and_annotations() {
        let original = widget("v1", api::document!({"a": "1"}));
        let mut converted = widget("v2", api::document!({"b": "2"}));
        converted.remove(&["metadata", "generation"]);
        converted.set(&["metadata", "finalizers"], api::document!(["x/y"]));
        let checked = QUESTION.checked(&original, converted, 0).unwrap();
        assert_eq!(checked, widget("v2", api::document!({"b": "2"})));
    }

    #[test]
    fn a_converted_object_must_keep_its_name_uid_and_kind() {
        let original = widget("v1", api::document!({}));
        for (path, value, told) in [
            (
                &["metadata", "name"][..],
                "b",
                "must have the same name: a != b",
            ),
            (&["metadata", "uid"], "2", "must have the same UID: 1 != 2"),
            (
                &["kind"],
                "Gadget",
                "invalid kind (expected Widget, received Gadget)",
            ),
            (
                &["apiVersion"],
                "example.com/v3",
                "invalid groupVersion (expected example.com/v2, received example.com/v3)",
            ),
        ] {
            let mut converted = widget("v2", api::document!({}));
            converted.set(path, value);
            let refused = QUESTION.checked(&original, converted, 4).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!(
                    "conversion webhook for example.com/v1, Kind=Widget returned invalid converted object at index 4: {told}"
                )
            );
        }
        let mut converted = widget("v2", api::document!({}));
        converted.set(&["metadata", "labels", "a b"], "x");
        let refused = QUESTION.checked(&original, converted, 0).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("metadata.labels: Invalid value: \"a b\""),
            "{refused}"
        );
        let mut converted = widget("v2", api::document!({}));
        converted.remove(&["metadata", "name"]);
        let refused = QUESTION.checked(&original, converted, 0).unwrap_err();
        assert!(
            refused
                .to_string()
                .ends_with("must have the same name: a != "),
            "{refused}"
        );
    }
}
