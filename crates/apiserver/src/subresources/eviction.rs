//! pods/eviction: a deletion that disruption budgets may refuse. A budget is charged by a
//! conditional update before the pod goes.

use std::sync::Arc;

use api::selector::LabelSelector;
use api::{Cause, Details, Reason, Resource, Status, Value};
use http::Response;

use crate::admission::{self, Admitted};
use crate::body::Body;
use crate::context::Context;
use crate::decode;
use crate::registry::{self, DeleteOptions, Target, settle_namespace, update_past_rules};
use crate::response;
use crate::storage::seconds_text;

/// Evictions that a budget's controller has not yet seen.
const MOST_UNSEEN: usize = 2000;
/// Attempts when others write the pod in between.
const ATTEMPTS: usize = 20;
const RETRY_SECONDS: u32 = 10;
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

pub(super) async fn create(
    context: &Context,
    resource: &Arc<Resource>,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let mut eviction = decode::of_kind(context, "policy", "v1", "Eviction", body)?;
    let info = &context.info;
    settle_namespace(resource, &info.namespace, &mut eviction)?;
    let given = eviction.str_at(&["metadata", "name"]);
    if given != info.name {
        return Err(Status::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let mut admitted = Admitted::new(context, resource, "eviction", &mut eviction);
    admission::mutate(&mut admitted).await?;
    admission::validate(&admitted).await?;
    let options = match eviction.get("deleteOptions") {
        Some(options) => DeleteOptions::parse(options, context.dry_run)?,
        None => DeleteOptions::parse(&Value::object(), context.dry_run)?,
    };
    evict(context, resource, &options).await?;
    let success = api::document!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    response::encoded(201, &success, context.output.encoding)
}

/// How a pod may go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Passage {
    /// As it is; `exactly` this version when becoming ready in between would matter.
    Free { exactly: bool },
    /// Only if this budget can be charged.
    Charged(String),
}

async fn evict(
    context: &Context,
    resource: &Arc<Resource>,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let info = &context.info;
    let mut attempts = 0;
    loop {
        let entry = context
            .server
            .objects
            .get(resource, &info.namespace, &info.name)
            .await?;
        let pod = entry.object_with_version()?;
        let passage = passage(context, &pod)?;
        let mut exactly = None;
        match &passage {
            Passage::Free { exactly: true } => exactly = Some(entry.version()),
            Passage::Free { exactly: false } => {}
            Passage::Charged(budget) => charge(context, budget, options.dry_run).await?,
        }
        let own = options.resource_version.is_none();
        match mark_and_delete(context, resource, options, exactly).await {
            Err(status) if status.reason == Reason::Conflict && own => {
                attempts += 1;
                if attempts < ATTEMPTS && passage == (Passage::Free { exactly: true }) {
                    continue;
                }
                return Err(status);
            }
            result => return result,
        }
    }
}

/// Says in the pod's status why it goes, then deletes it.
async fn mark_and_delete(
    context: &Context,
    resource: &Arc<Resource>,
    options: &DeleteOptions,
    exactly: Option<String>,
) -> Result<(), Status> {
    let info = &context.info;
    let mut options = options.clone();
    let demanded = options.resource_version.clone().or(exactly);
    if !options.dry_run {
        let target = Target::internal(resource, &info.namespace, &info.name, "");
        let now = seconds_text(context.server.environment.now());
        let uid = options.uid.clone();
        let entry = update_past_rules(context, &target, demanded.is_some(), |pod| {
            let found = pod.str_at(&["metadata", "uid"]);
            if let Some(uid) = &uid
                && uid != found
            {
                return Err(Status::conflict("", "Pod", &info.name, format_args!(
                    "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been deleted and then recreated"
                )));
            }
            let version = pod.str_at(&["metadata", "resourceVersion"]);
            if let Some(demanded) = &demanded
                && demanded != version
            {
                return Err(Status::conflict("", "Pod", &info.name, format_args!(
                    "the ResourceVersion in the precondition ({demanded}) does not match the ResourceVersion in record ({version}). The object might have been modified"
                )));
            }
            Ok(marked(pod, &now))
        })
        .await?;
        if demanded.is_some() {
            options.resource_version = Some(entry.version());
        }
    }
    let name = (info.namespace.as_str(), info.name.as_str());
    registry::delete_admitted(context, resource, name, &options)
        .await
        .map(drop)
}

fn marked(pod: &Value, now: &str) -> Value {
    const KIND: &str = "DisruptionTarget";
    let mut conditions = pod.list_at(&["status", "conditions"]).to_vec();
    let before = conditions
        .iter()
        .position(|condition| condition.str_at(&["type"]) == KIND);
    let since = match before {
        Some(index) if conditions[index].str_at(&["status"]) == "True" => conditions[index]
            .str_at(&["lastTransitionTime"])
            .to_string(),
        _ => now.to_string(),
    };
    let condition = api::document!({
        "type": KIND, "status": "True", "lastProbeTime": null, "lastTransitionTime": since,
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    match before {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
    let mut marked = pod.clone();
    marked.set(&["status", "conditions"], conditions);
    marked
}

fn passage(context: &Context, pod: &Value) -> Result<Passage, Status> {
    let deleting = pod.has(&["metadata", "deletionTimestamp"]);
    match pod.str_at(&["status", "phase"]) {
        "Succeeded" | "Failed" => return Ok(Passage::Free { exactly: false }),
        _ if deleting => return Ok(Passage::Free { exactly: false }),
        "Pending" => return Ok(Passage::Free { exactly: true }),
        _ => {}
    }
    let mut budgets = budgets_of(context, pod)?;
    let budget = match (budgets.pop(), budgets.is_empty()) {
        (None, _) => return Ok(Passage::Free { exactly: false }),
        (Some(budget), true) => budget,
        (Some(_), false) => {
            return Err(Status::new(
                Reason::InternalError,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if !is_ready(pod) && lets_unready_go(&budget) {
        return Ok(Passage::Free { exactly: true });
    }
    Ok(Passage::Charged(
        budget.str_at(&["metadata", "name"]).to_string(),
    ))
}

fn budgets_of(context: &Context, pod: &Value) -> Result<Vec<Value>, Status> {
    let cache = &context.server.cache;
    let kind = cache.named("policy", "poddisruptionbudgets");
    let prefix = format!("{}/", context.info.namespace);
    let mut found = Vec::new();
    for entry in cache.snapshot(&kind).range(&prefix, "") {
        let budget = entry.object()?;
        let selector = budget
            .at(&["spec", "selector"])
            .map(LabelSelector::from_document);
        if let Some(Ok(selector)) = selector
            && selector.matches_object(pod)
        {
            found.push(budget);
        }
    }
    Ok(found)
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod.list_at(&["status", "conditions"]).iter();
    conditions.any(|condition| {
        condition.str_at(&["type"]) == "Ready" && condition.str_at(&["status"]) == "True"
    })
}

/// A pod that is not ready does not count; whether it may go depends on the budget's policy.
fn lets_unready_go(budget: &Value) -> bool {
    let number = |field: &str| budget.i64_at(&["status", field]).unwrap_or(0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        || healthy >= desired && desired > 0
}

async fn charge(context: &Context, name: &str, dry_run: bool) -> Result<(), Status> {
    let cache = &context.server.cache;
    let resource = &cache.resource("policy", "poddisruptionbudgets");
    let own = Context::internal(&context.server);
    let target = Target {
        dry_run,
        ..Target::internal(resource, &context.info.namespace, name, "status")
    };
    let now = seconds_text(context.server.environment.now());
    let pod = context.info.name.as_str();
    let changed = update_past_rules(&own, &target, false, |budget| charged(budget, pod, &now));
    changed.await.map(drop)
}

/// The budget with one disruption less, or why it allows none.
fn charged(budget: &Value, pod: &str, now: &str) -> Result<Value, Status> {
    let name = budget.str_at(&["metadata", "name"]);
    let number = |path: &[&str]| budget.i64_at(path).unwrap_or(0);
    let observed = number(&["status", "observedGeneration"]);
    if observed < number(&["metadata", "generation"]) {
        return Err(too_many(
            RETRY_SECONDS,
            format!("The disruption budget {name} is still being processed by the server."),
        ));
    }
    let forbidden = |why: &str| Status::forbidden("policy", "poddisruptionbudget", name, why);
    let allowed = number(&["status", "disruptionsAllowed"]);
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    if budget.fields_at(&["status", "disruptedPods"]).count() > MOST_UNSEEN {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(too_many(0, exhausted(budget)));
    }
    let mut new = budget.clone();
    new.set(&["status", "disruptionsAllowed"], allowed - 1);
    new.set(&["status", "disruptedPods", pod], now);
    if allowed == 1 {
        let generation = number(&["metadata", "generation"]);
        no_more(&mut new, generation, now);
    }
    Ok(new)
}

const CONDITION: &str = "DisruptionAllowed";

/// Tells in the budget's conditions that it is used up.
fn no_more(budget: &mut Value, generation: i64, now: &str) {
    let condition = api::document!({
        "type": CONDITION, "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now, "observedGeneration": generation,
    });
    let mut conditions = budget.list_at(&["status", "conditions"]).to_vec();
    conditions.retain(|one| one.str_at(&["type"]) != CONDITION);
    conditions.push(condition);
    budget.set(&["status", "conditions"], conditions);
}

fn exhausted(budget: &Value) -> String {
    let name = budget.str_at(&["metadata", "name"]);
    let number = |field: &str| budget.i64_at(&["status", field]).unwrap_or(0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    let mut conditions = budget.list_at(&["status", "conditions"]).iter();
    let told = conditions.find(|one| {
        one.str_at(&["type"]) == CONDITION
            && one.str_at(&["status"]) == "False"
            && !one.str_at(&["message"]).is_empty()
    });
    let (reason, message) = told.map_or(("", ""), |one| {
        (one.str_at(&["reason"]), one.str_at(&["message"]))
    });
    if reason == "SyncFailed" {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        );
    }
    if healthy <= desired {
        return format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        );
    }
    match message {
        "" => format!("The disruption budget {name} does not allow evicting pods currently"),
        _ => format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        ),
    }
}

fn too_many(retry_after_seconds: u32, message: String) -> Status {
    Status::new(Reason::TooManyRequests, VIOLATES).with_details(Details {
        causes: vec![Cause {
            reason: "DisruptionBudget",
            message,
            field: String::new(),
        }],
        retry_after_seconds,
        ..Details::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_charged_until_it_is_used_up() {
        let budget = api::document!({
            "metadata": {"name": "b", "generation": 1},
            "status": {
                "observedGeneration": 1, "disruptionsAllowed": 1,
                "currentHealthy": 3, "desiredHealthy": 2,
            },
        });
        let once = charged(&budget, "a", "2026-01-01T00:00:00Z").unwrap();
        assert_eq!(once.i64_at(&["status", "disruptionsAllowed"]), Some(0));
        assert!(once.has(&["status", "disruptedPods", "a"]));
        let refused = charged(&once, "c", "2026-01-01T00:00:00Z").unwrap_err();
        assert_eq!((refused.code(), refused.message.as_str()), (429, VIOLATES));
        let cause = &refused.details.unwrap().causes[0];
        assert_eq!(
            cause.message,
            "The disruption budget b does not allow evicting pods currently"
        );
        let mut newer = budget.clone();
        newer.set(&["metadata", "generation"], 2);
        let refused = charged(&newer, "a", "2026-01-01T00:00:00Z").unwrap_err();
        assert_eq!(refused.details.unwrap().retry_after_seconds, RETRY_SECONDS);
    }
}
