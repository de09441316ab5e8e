//! ResourceQuota: what a namespace may hold in all. A request is charged before the object is
//! written, by conditional updates of each quota's status, and what was charged for a write that
//! then failed is given back. What objects use is `api::quota`'s to say.

use std::collections::BTreeSet;

use api::quota::{self, KindEvaluator};
use api::resources::{Amounts, add, to_document};
use api::{Status, Value};
use futures::future::BoxFuture;

use super::Target;
use super::past_rules::update_past_rules;
use crate::admission::{Admitted, Operation};
use crate::context::Context;

/// What a request took from the quotas of its namespace.
#[derive(Default)]
pub(super) struct Charge {
    namespace: String,
    taken: Vec<(String, Amounts)>,
}

impl Charge {
    /// For a write that did not happen. A quota that cannot be reached is recounted by its
    /// controller.
    pub async fn give_back(self, context: &Context) {
        for (name, amounts) in self.taken {
            let result = store(context, &self.namespace, &name, move |quota| {
                let mut used = quota::used(quota);
                for (name, amount) in &amounts {
                    if let Some(before) = used.get_mut(name) {
                        *before = *before - *amount;
                    }
                }
                Ok(used)
            });
            if let Err(problem) = result.await {
                tracing::debug!(%problem, quota = name, "a charge could not be given back");
            }
        }
    }
}

pub(super) async fn charge(admitted: &Admitted<'_>) -> Result<Charge, Status> {
    let Some(evaluator) = KindEvaluator::of(admitted.resource).filter(|_| concerns(admitted))
    else {
        return Ok(Charge::default());
    };
    let namespace = admitted.namespace();
    let quotas = admitted.all("", "resourcequotas", &namespace);
    let mut wanted = Vec::new();
    for entry in &quotas {
        let quota = entry.object()?;
        if let Some(delta) = delta(admitted, evaluator, &quota)? {
            with(&quota, &delta, admitted.subresource).map_err(|why| admitted.forbidden(why))?;
            wanted.push((entry.name().to_string(), delta));
        }
    }
    let mut charge = Charge {
        namespace: namespace.clone(),
        taken: Vec::new(),
    };
    if admitted.context.dry_run {
        return Ok(charge);
    }
    for (name, delta) in wanted {
        let refusal = |why: String| admitted.forbidden(why);
        let charged = store(admitted.context, &namespace, &name, |quota| {
            with(quota, &delta, admitted.subresource).map_err(refusal)
        });
        match charged.await {
            Ok(()) => charge.taken.push((name, delta)),
            // It was deleted in the meantime: there is nothing to hold to.
            Err(status) if status.reason == api::Reason::NotFound => {}
            Err(status) => {
                charge.give_back(admitted.context).await;
                return Err(status);
            }
        }
    }
    Ok(charge)
}

fn concerns(admitted: &Admitted<'_>) -> bool {
    let pod = admitted.is("", "Pod");
    match (admitted.subresource, admitted.operation) {
        ("", Operation::Create) => true,
        ("", Operation::Update) if pod => {
            let terminating = quota::scopes::is_terminating;
            let before = admitted.old.is_some_and(terminating);
            before != terminating(admitted.object)
        }
        ("", Operation::Update) => {
            admitted.is("", "Service") || admitted.is("", "PersistentVolumeClaim")
        }
        ("resize", Operation::Update) => pod,
        ("status", Operation::Update) => admitted.is("", "PersistentVolumeClaim"),
        _ => false,
    }
}

/// What this request adds to `quota`, or `None` when it adds nothing.
fn delta(
    admitted: &Admitted<'_>,
    evaluator: KindEvaluator<'_>,
    quota: &Value,
) -> Result<Option<Amounts>, Status> {
    if !evaluator.matches(quota, admitted.object) {
        return Ok(None);
    }
    let name = quota.str_at(&["metadata", "name"]);
    let hard = quota::hard(quota);
    let restricted: Vec<&str> = hard
        .keys()
        .map(String::as_str)
        .filter(|name| evaluator.counts(name))
        .collect();
    if let Some(missing) = evaluator.missing(&restricted, admitted.object) {
        return Err(admitted.forbidden(format_args!("failed quota: {name}: {missing}")));
    }
    let used = quota::used(quota);
    if restricted.iter().any(|name| !used.contains_key(*name)) {
        return Err(admitted.forbidden(format_args!(
            "status unknown for quota: {name}, resources: {}",
            restricted.join(",")
        )));
    }
    let now = admitted.context.server.environment.now();
    let mut usage = evaluator.usage(admitted.object, now);
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, amount)| amount.is_negative())
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        return Err(admitted.forbidden(format_args!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        )));
    }
    if let Some(old) = admitted.old
        && evaluator.matches(quota, old)
    {
        for (name, before) in evaluator.usage(old, now) {
            if let Some(amount) = usage.get_mut(&name) {
                *amount = *amount - before;
            }
        }
    }
    usage.retain(|name, amount| {
        !amount.is_zero() && !amount.is_negative() && hard.contains_key(name)
    });
    Ok(Some(usage).filter(|usage| !usage.is_empty()))
}

/// The quota's use with `delta`, or why that is too much.
fn with(quota: &Value, delta: &Amounts, subresource: &str) -> Result<Amounts, String> {
    let (hard, used) = (quota::hard(quota), quota::used(quota));
    let mut total = used.clone();
    add(&mut total, delta);
    let exceeded: BTreeSet<&str> = delta
        .keys()
        .filter(|name| match (total.get(*name), hard.get(*name)) {
            (Some(total), Some(hard)) => total > hard,
            _ => false,
        })
        .map(String::as_str)
        .collect();
    // What the system itself reports is counted, never refused.
    if exceeded.is_empty() || subresource == "status" {
        return Ok(total);
    }
    let told = |amounts: &Amounts| {
        let listed: Vec<String> = amounts
            .iter()
            .filter(|(name, _)| exceeded.contains(name.as_str()))
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        listed.join(",")
    };
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.str_at(&["metadata", "name"]),
        told(delta),
        told(&used),
        told(&hard)
    ))
}

/// Replaces `status.used` by what `used` makes of the newest state. Boxed, because writing is what
/// admission is part of.
fn store<'a>(
    context: &'a Context,
    namespace: &'a str,
    name: &'a str,
    used: impl Fn(&Value) -> Result<Amounts, Status> + Send + Sync + 'a,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let resource = &context.server.cache.resource("", "resourcequotas");
        let target = Target::internal(resource, namespace, name, "status");
        let own = Context::internal(&context.server);
        let changed = update_past_rules(&own, &target, false, |quota| {
            let mut new = quota.clone();
            new.set(&["status", "used"], to_document(&used(quota)?));
            Ok(new)
        });
        changed.await.map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::resources::amounts;

    #[test]
    fn an_exceeded_quota_is_reported_with_all_amounts() {
        let quota = api::document!({
            "metadata": {"name": "compute"},
            "status": {
                "hard": {"pods": "3", "requests.cpu": "1", "requests.memory": "1Gi"},
                "used": {"pods": "1", "requests.cpu": "800m", "requests.memory": "0"},
            },
        });
        let delta = |cpu: &str| {
            amounts(
                &api::document!({"d": {"pods": "1", "requests.cpu": cpu}}),
                &["d"],
            )
        };
        let total = with(&quota, &delta("200m"), "").unwrap();
        assert_eq!(
            to_document(&total).to_string(),
            r#"{"pods":"2","requests.cpu":"1","requests.memory":"0"}"#
        );
        assert_eq!(
            with(&quota, &delta("300m"), "").unwrap_err(),
            "exceeded quota: compute, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1"
        );
        assert!(with(&quota, &delta("300m"), "status").is_ok());
    }
}
