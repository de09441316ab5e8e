//! An APIService for every group version that this server serves itself, kept as upstream keeps it:
//! those of built-in kinds are settled once at the start, those of custom resources always.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::catalogue::Snapshot;
use api::{Reason, Status, Value};
use futures::StreamExt;

use super::priorities;
use crate::cache::CachedObject;
use crate::context::Context;
use crate::hops::Hops;
use crate::registry::{self, DeleteOptions, Target};
use crate::server::Server;
use crate::usage;

/// The label that says who keeps an APIService.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// How many are written at the same time; the store shares one sync among them.
const AT_ONCE: usize = 64;

/// How an APIService of our own is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeping {
    /// Settled once, when the server starts.
    OnStart,
    Always,
    /// Made where there is none; whoever changes it may.
    IfAbsent,
}

/// An APIService that there should be.
#[derive(Clone, Debug, PartialEq)]
struct Desired {
    keeping: Keeping,
    spec: Value,
}

/// What is to be done about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Create,
    Update,
    Delete,
}

/// What the present object is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Managed {
    No,
    OnStart,
    Always,
}

/// Remembers what was settled since the start.
#[derive(Default)]
pub(crate) struct Registrar {
    /// Names that were there when this server started, and still are.
    at_start: BTreeSet<String>,
    /// Names that were settled once, of what is served or stored.
    settled: BTreeSet<String>,
}

/// Settles all APIServices of the group versions that are served now.
pub(crate) async fn register(server: &Arc<Server>) -> Result<Registrar, Status> {
    let kind = server.cache.named("apiregistration.k8s.io", "apiservices");
    let snapshot = server.cache.snapshot(&kind);
    let mut registrar = Registrar::default();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (name, entry) in snapshot.iter() {
        registrar.at_start.insert(name.to_string());
        if entry.label(AUTOMANAGED).is_some() {
            names.insert(name.to_string());
        }
    }
    let kinds = server.kinds.snapshot();
    for group in kinds.groups() {
        let versions = group.versions().into_iter();
        names.extend(versions.map(|version| name_of(group.name(), version)));
    }
    names.insert(name_of(usage::GROUP, usage::VERSION));
    match registrar.settle(server, names).await.pop() {
        None => Ok(registrar),
        Some((_, problem)) => Err(problem),
    }
}

impl Registrar {
    /// Settles the APIServices of these names; returns those that could not be written, and why.
    pub async fn settle(
        &mut self,
        server: &Arc<Server>,
        names: impl IntoIterator<Item = String>,
    ) -> Vec<(String, Status)> {
        let kinds = server.kinds.snapshot();
        let kind = server.cache.named("apiregistration.k8s.io", "apiservices");
        let mut steps = Vec::new();
        for name in names {
            let current = kind.get(&name);
            let desired = desired(&kinds, &name);
            let step = self.plan(&name, desired.as_ref(), current.as_deref());
            match step {
                // Kinds come and go without end: what is gone is forgotten.
                Step::Nothing if desired.is_none() && current.is_none() => {
                    self.settled.remove(&name);
                    self.at_start.remove(&name);
                }
                Step::Nothing => drop(self.settled.insert(name)),
                step => steps.push((name, step, desired, current)),
            }
        }
        let outcomes =
            futures::stream::iter(steps).map(|(name, step, desired, current)| async move {
                let spec = desired.as_ref().map(|desired| &desired.spec);
                let outcome = match (step, spec, current) {
                    (Step::Create, Some(_), _) => create(server, &name, desired.as_ref()).await,
                    (Step::Update, Some(spec), _) => update(server, &name, spec).await,
                    (Step::Delete, _, Some(current)) => delete(server, &current).await,
                    _ => Ok(()),
                };
                (name, outcome)
            });
        let outcomes: Vec<_> = outcomes.buffer_unordered(AT_ONCE).collect().await;
        let mut failures = Vec::new();
        for (name, outcome) in outcomes {
            match outcome {
                Ok(()) => drop(self.settled.insert(name)),
                Err(status) => failures.push((name, status)),
            }
        }
        failures
    }

    fn plan(&self, name: &str, desired: Option<&Desired>, current: Option<&CachedObject>) -> Step {
        let spec = current.and_then(|entry| entry.object().ok());
        let spec = spec.as_ref().and_then(|object| object.get("spec"));
        let current = current.map(|entry| {
            let managed = match entry.label(AUTOMANAGED) {
                Some("onstart") => Managed::OnStart,
                Some("true") => Managed::Always,
                _ => Managed::No,
            };
            (managed, spec)
        });
        let was_settled = self.settled.contains(name);
        plan(desired, current, was_settled, self.at_start.contains(name))
    }
}

/// What is to be done, from what there should be and what there is.
fn plan(
    desired: Option<&Desired>,
    current: Option<(Managed, Option<&Value>)>,
    was_settled: bool,
    at_start: bool,
) -> Step {
    let once = desired.is_some_and(|desired| desired.keeping == Keeping::OnStart);
    match (desired, current) {
        (None, None) => Step::Nothing,
        _ if once && was_settled => Step::Nothing,
        (Some(_), None) => Step::Create,
        (_, Some((Managed::No, _))) => Step::Nothing,
        (Some(desired), Some(_)) if desired.keeping == Keeping::IfAbsent => Step::Nothing,
        (_, Some((Managed::OnStart, _))) if was_settled || !at_start => Step::Nothing,
        (None, Some(_)) => Step::Delete,
        (Some(desired), Some((_, spec))) if spec == Some(&desired.spec) => Step::Nothing,
        (Some(_), Some(_)) => Step::Update,
    }
}

fn name_of(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

/// The APIService of this name that there should be.
fn desired(kinds: &Snapshot, name: &str) -> Option<Desired> {
    let (version, group) = name.split_once('.')?;
    let (keeping, (group_priority, version_priority)) = match is_served(kinds, group, version) {
        _ if (group, version) == (usage::GROUP, usage::VERSION) => {
            (Keeping::IfAbsent, priorities::METRICS)
        }
        None => return None,
        Some(Origin::BuiltIn) => (Keeping::OnStart, priorities::of_built_in(group, version)?),
        Some(Origin::Added) => (Keeping::Always, priorities::CUSTOM),
    };
    let mut spec = api::document!({
        "groupPriorityMinimum": group_priority,
        "version": version,
        "versionPriority": version_priority,
    });
    if !group.is_empty() {
        spec.set(&["group"], group);
    }
    Some(Desired { keeping, spec })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    BuiltIn,
    Added,
}

/// Whether a kind of the group version is served, and where it comes from.
fn is_served(kinds: &Snapshot, group: &str, version: &str) -> Option<Origin> {
    let found = kinds.group(group)?.of_version(version).next()?;
    Some(match found.is_built_in() {
        true => Origin::BuiltIn,
        false => Origin::Added,
    })
}

async fn create(server: &Arc<Server>, name: &str, desired: Option<&Desired>) -> Result<(), Status> {
    let Some(desired) = desired else {
        return Ok(());
    };
    let resource = &server
        .cache
        .resource("apiregistration.k8s.io", "apiservices");
    let mut object = api::document!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": name}, "spec": desired.spec.clone(),
    });
    let label = match desired.keeping {
        Keeping::OnStart => Some("onstart"),
        Keeping::Always => Some("true"),
        Keeping::IfAbsent => None,
    };
    if let Some(label) = label {
        object.set(&["metadata", "labels", AUTOMANAGED], label);
    }
    let context = Context::internal(server);
    match registry::create(&context, resource, object.into(), &mut Hops::none()).await {
        // Another server was faster; the change will be looked at.
        Err(status) if status.reason == Reason::AlreadyExists => Ok(()),
        result => result.map(drop),
    }
}

async fn update(server: &Arc<Server>, name: &str, spec: &Value) -> Result<(), Status> {
    let resource = &server
        .cache
        .resource("apiregistration.k8s.io", "apiservices");
    let target = Target {
        is_owned: false,
        ..Target::internal(resource, "", name, "")
    };
    let context = Context::internal(server);
    let updated = registry::update(&context, &target, false, |old| {
        let mut new = old.clone();
        new.set(&["spec"], spec.clone());
        Ok(new)
    });
    ignore_races(updated.await.map(drop))
}

async fn delete(server: &Arc<Server>, current: &CachedObject) -> Result<(), Status> {
    let resource = &server
        .cache
        .resource("apiregistration.k8s.io", "apiservices");
    let object = current.object()?;
    let options = DeleteOptions {
        uid: Some(object.str_at(&["metadata", "uid"]).to_string()),
        ..DeleteOptions::default()
    };
    let context = Context::internal(server);
    let deleted = registry::delete(&context, resource, ("", current.name()), &options);
    ignore_races(deleted.await.map(drop))
}

/// What was changed or deleted meanwhile will be looked at again, because it changed.
fn ignore_races(result: Result<(), Status>) -> Result<(), Status> {
    match result {
        Err(status) if matches!(status.reason, Reason::NotFound | Reason::Conflict) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired_of(keeping: Keeping) -> Desired {
        Desired {
            keeping,
            spec: api::document!({"version": "v1"}),
        }
    }

    #[test]
    fn own_api_services_are_kept_as_their_label_says() {
        let other = api::document!({"version": "v2"});
        let same = api::document!({"version": "v1"});
        let on_start = desired_of(Keeping::OnStart);
        let always = desired_of(Keeping::Always);
        let check = |desired: Option<&Desired>, managed, spec, settled, at_start, expected| {
            let current = Option::map(managed, |managed: Managed| (managed, Some(spec)));
            let found = plan(desired, current, settled, at_start);
            assert_eq!(
                found, expected,
                "{desired:?} {managed:?} {settled} {at_start}"
            );
        };
        use Managed::{Always, No, OnStart};
        // Not there.
        check(None, None, &other, false, false, Step::Nothing);
        check(Some(&on_start), None, &other, false, false, Step::Create);
        check(Some(&on_start), None, &other, true, false, Step::Nothing);
        check(Some(&always), None, &other, true, false, Step::Create);
        // Somebody else's.
        for desired in [None, Some(&on_start), Some(&always)] {
            check(desired, Some(No), &other, false, true, Step::Nothing);
        }
        // Made after the start by another server of another version.
        check(None, Some(OnStart), &other, false, false, Step::Nothing);
        // Left by an earlier version of this server.
        check(None, Some(OnStart), &other, false, true, Step::Delete);
        check(
            Some(&on_start),
            Some(OnStart),
            &other,
            false,
            true,
            Step::Update,
        );
        check(
            Some(&on_start),
            Some(OnStart),
            &other,
            true,
            true,
            Step::Nothing,
        );
        check(
            Some(&on_start),
            Some(OnStart),
            &same,
            false,
            true,
            Step::Nothing,
        );
        // Of custom resources.
        check(None, Some(Always), &other, true, false, Step::Delete);
        check(
            Some(&always),
            Some(Always),
            &other,
            true,
            false,
            Step::Update,
        );
        check(
            Some(&always),
            Some(Always),
            &same,
            true,
            false,
            Step::Nothing,
        );
    }

    #[test]
    fn an_api_service_of_another_metrics_server_is_kept() {
        let ours = desired_of(Keeping::IfAbsent);
        let theirs = api::document!({"service": {"name": "metrics-server"}});
        let current = Some((Managed::No, Some(&theirs)));
        assert_eq!(plan(Some(&ours), current, true, true), Step::Nothing);
        assert_eq!(plan(Some(&ours), None, true, true), Step::Create);
    }

    #[test]
    fn built_in_group_versions_are_desired_with_their_priorities() {
        let kinds = api::catalogue::built_in();
        let core = desired(kinds, "v1.").unwrap();
        let expected = api::document!({
            "groupPriorityMinimum": 18000, "version": "v1", "versionPriority": 1,
        });
        assert_eq!((core.keeping, core.spec), (Keeping::OnStart, expected));
        assert_eq!(desired(kinds, "v1.apiregistration.k8s.io"), None);
        assert_eq!(desired(kinds, "v9.apps"), None);
        assert_eq!(desired(kinds, "odd"), None);
    }
}
