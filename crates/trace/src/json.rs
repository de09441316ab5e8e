//! A timeline as JSON: what the API server answers and `coracle trace -o json` prints.

use serde::{Deserialize, Serialize};

use crate::{Error, Span, Timeline};

#[derive(Serialize, Deserialize)]
struct Document {
    /// `namespace/name`.
    pod: String,
    #[serde(default)]
    uid: String,
    hops: Vec<Span>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    explanation: Vec<String>,
}

pub fn to_json(timeline: &Timeline) -> serde_json::Value {
    serde_json::json!(Document {
        pod: format!("{}/{}", timeline.namespace, timeline.name),
        uid: timeline.uid.clone(),
        hops: timeline.spans.clone(),
        explanation: timeline.explanation.clone(),
    })
}

impl Timeline {
    /// Reads what [`to_json`] made.
    pub fn from_json(bytes: &[u8]) -> Result<Timeline, Error> {
        let document: Document = serde_json::from_slice(bytes)?;
        let (namespace, name) = document.pod.split_once('/').unwrap_or(("", &document.pod));
        Ok(Timeline {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: document.uid,
            spans: document.hops,
            explanation: document.explanation,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hop;

    #[test]
    fn the_json_form_of_a_span_is_stable() {
        let timeline = Timeline {
            uid: "u".into(),
            namespace: "ns".into(),
            name: "web".into(),
            spans: vec![Span {
                hop: Hop::Bind,
                name: "bind".into(),
                component: "scheduler".into(),
                start: 5,
                queue_us: 1,
                work_us: 2,
                bytes: 3,
                failure: None,
            }],
            explanation: vec!["because".into()],
        };
        let json = to_json(&timeline);
        let expected = serde_json::json!({"pod": "ns/web", "uid": "u", "hops": [{
            "hop": 8, "name": "bind", "component": "scheduler",
            "start": 5, "queue_us": 1, "work_us": 2, "bytes": 3,
        }], "explanation": ["because"]});
        assert_eq!(json, expected);
        let bytes = json.to_string().into_bytes();
        assert_eq!(Timeline::from_json(&bytes).expect("readable"), timeline);
        assert!(Timeline::from_json(b"{}").is_err());
    }
}
