//! One hook of a configuration, made ready to be matched and called.

use std::sync::Arc;
use std::time::Duration;

use api::Value;
use api::selector::LabelSelector;

use super::conditions::{self, Conditions};
use super::rule::{Attributes, Rule};
use crate::webhook_client::{Channel, Target, WebhookClient};

/// How long a hook may take that does not say.
const DEFAULT_SECONDS: u64 = 10;
/// How long any hook may take.
const MOST_SECONDS: u64 = 30;

/// A hook that is configured.
pub(crate) struct Hook {
    pub name: String,
    pub configuration: String,
    rules: Vec<Rule>,
    /// Whether it is called for other versions of what its rules name.
    pub matches_equivalent: bool,
    pub namespaces: Selector,
    pub objects: Selector,
    pub conditions: Option<Conditions>,
    /// Whether a request goes on when the hook cannot be called.
    pub fails_open: bool,
    pub is_reinvoked: bool,
    /// Whether it can be called for a dry run; `None` where it does not say.
    pub takes_dry_runs: Option<bool>,
    pub timeout: Duration,
    /// What it understands best of what is known here.
    pub review_version: Option<ReviewVersion>,
    /// The way to it, or why there is none.
    pub channel: Result<Arc<Channel>, String>,
}

/// A label selector, or why it is none.
pub(crate) type Selector = Result<LabelSelector, String>;

/// The version of `AdmissionReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl Hook {
    /// The hooks of a configuration, in its order.
    pub fn all_of(configuration: &Value, client: &WebhookClient) -> Vec<Arc<Hook>> {
        let name = configuration.str_at(&["metadata", "name"]);
        let hooks = configuration.list_at(&["webhooks"]).iter();
        let made = hooks.map(|hook| Arc::new(Hook::of_document(name, hook, client)));
        made.collect()
    }

    fn of_document(configuration: &str, hook: &Value, client: &WebhookClient) -> Hook {
        let config = hook.get("clientConfig").unwrap_or(&Value::Null);
        let channel = Target::of_client_config(config)
            .map_err(crate::webhook_client::Error::from)
            .and_then(|target| client.channel(target))
            .map_err(|problem| environment::chain(&problem).to_string());
        let seconds = hook.i64_at(&["timeoutSeconds"]);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let seconds = seconds.unwrap_or(DEFAULT_SECONDS).clamp(1, MOST_SECONDS);
        let mut versions = hook.list_at(&["admissionReviewVersions"]).iter();
        Hook {
            name: hook.str_at(&["name"]).to_string(),
            configuration: configuration.to_string(),
            rules: hook
                .list_at(&["rules"])
                .iter()
                .map(Rule::of_document)
                .collect(),
            matches_equivalent: hook.str_at(&["matchPolicy"]) == "Equivalent",
            namespaces: selector(hook, "namespaceSelector"),
            objects: selector(hook, "objectSelector"),
            conditions: conditions::compile(hook.list_at(&["matchConditions"])),
            fails_open: hook.str_at(&["failurePolicy"]) == "Ignore",
            is_reinvoked: hook.str_at(&["reinvocationPolicy"]) == "IfNeeded",
            takes_dry_runs: match hook.str_at(&["sideEffects"]) {
                "" => None,
                word => Some(matches!(word, "None" | "NoneOnDryRun")),
            },
            timeout: Duration::from_secs(seconds),
            review_version: versions.find_map(|version| match version.as_str()? {
                "v1" => Some(ReviewVersion::V1),
                "v1beta1" => Some(ReviewVersion::V1Beta1),
                _ => None,
            }),
            channel,
        }
    }

    /// Whether one of its rules is about this.
    pub fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(attributes))
    }

    /// Whether it is worth looking for equivalents of this.
    pub fn may_match_equivalent(&self, attributes: &Attributes<'_>) -> bool {
        let mut rules = self.rules.iter();
        self.matches_equivalent && rules.any(|rule| rule.may_match_equivalent(attributes))
    }

    /// The first of several equivalents that its rules are about; earlier rules count first.
    pub fn first_match(&self, equivalents: &[Attributes<'_>]) -> Option<usize> {
        let mut rules = self.rules.iter();
        rules.find_map(|rule| equivalents.iter().position(|one| rule.matches(one)))
    }

    /// The plurals that its rules name.
    pub fn plurals(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().flat_map(Rule::plurals)
    }

    /// Whether its rules are for all resources.
    pub fn is_of_all(&self) -> bool {
        self.rules.iter().any(Rule::is_of_all)
    }
}

/// Selectors are written with their default, which is everything.
pub(crate) fn selector(hook: &Value, field: &str) -> Selector {
    match hook.get(field) {
        None | Some(Value::Null) => Ok(LabelSelector::everything()),
        Some(document) => {
            LabelSelector::from_document(document).map_err(|problem| problem.to_string())
        }
    }
}
