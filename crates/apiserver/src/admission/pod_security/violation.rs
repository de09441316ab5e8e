//! What a level finds wrong: reasons and their details, and how several containers are told as one.

use api::Value;

#[derive(Debug, Default)]
pub(super) struct Violations(Vec<(String, String)>);

impl Violations {
    pub fn add(&mut self, reason: impl Into<String>, detail: impl Into<String>) {
        self.0.push((reason.into(), detail.into()));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reasons alone.
    pub fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().map(|(reason, _)| reason.as_str()).collect();
        reasons.join(", ")
    }

    pub fn detail(&self) -> String {
        let told: Vec<String> = self
            .0
            .iter()
            .map(|(reason, detail)| format!("{reason} ({detail})"))
            .collect();
        told.join(", ")
    }
}

/// All containers of a pod, in the order they are told.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| pod.list_at(&["spec", list]))
}

/// The names of the containers that `is_bad`.
pub(super) fn named(pod: &Value, mut is_bad: impl FnMut(&Value) -> bool) -> Vec<String> {
    containers(pod)
        .filter(|container| is_bad(container))
        .map(|container| container.str_at(&["name"]).to_string())
        .collect()
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn in_words(names: &[String]) -> String {
    format!("{} {}", plural("container", names.len()), quoted(names))
}

/// `pod`, `container "a"`, or both.
pub(super) fn setters(pod_itself: bool, names: &[String]) -> Option<String> {
    let mut setters = Vec::new();
    if pod_itself {
        setters.push("pod".to_string());
    }
    if !names.is_empty() {
        setters.push(in_words(names));
    }
    (!setters.is_empty()).then(|| setters.join(" and "))
}

pub(super) fn quoted<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    let names: Vec<String> = names
        .into_iter()
        .map(|name| format!("\"{}\"", name.as_ref()))
        .collect();
    names.join(", ")
}

pub(super) fn plural(word: &str, count: usize) -> String {
    match count {
        1 => word.to_string(),
        _ => format!("{word}s"),
    }
}

/// The verb for one or several.
pub(super) fn uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}
