//! What is next for a migration, and what its status and the status of a custom kind's definition say
//! about it. Pure.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use crate::discovery::Served;

pub const RUNNING: &str = "Running";
pub const SUCCEEDED: &str = "Succeeded";
pub const FAILED: &str = "Failed";

/// The condition of a custom kind's definition while its objects are migrated.
const MIGRATING: &str = "StorageMigrating";

/// The verbs that a resource must have.
const NEEDED: [&str; 3] = ["update", "patch", "list"];

/// How long a new migration waits for its resource to be served.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a migration needs next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It has ended, and everybody knows.
    Nothing,
    /// Another migration of the same resource runs, or its turn is before.
    Wait,
    /// It is this one's turn.
    Start,
    /// It runs; up to which version objects are written again is to be noted first.
    NoteVersion,
    /// Objects that have not changed since this version are written again.
    Migrate { version: String },
    /// It has ended, and does not run any more.
    Finish { succeeded: bool },
}

/// What a migration needs, among all migrations of its resource. One at a time runs, the oldest first.
pub fn next_step(
    migration: &StorageVersionMigration,
    same: &[Arc<StorageVersionMigration>],
) -> Step {
    match (is_true(migration, RUNNING), has_ended(migration)) {
        (true, true) => Step::Finish {
            succeeded: is_true(migration, SUCCEEDED),
        },
        (false, true) => Step::Nothing,
        (true, false) => match resource_version(migration) {
            "" => Step::NoteVersion,
            version => Step::Migrate {
                version: version.to_owned(),
            },
        },
        (false, false) => {
            let before = same.iter().any(|other| {
                !has_ended(other) && (is_true(other, RUNNING) || turn(other) < turn(migration))
            });
            if before { Step::Wait } else { Step::Start }
        }
    }
}

/// `widgets.example.com`; of the core group the plural with a dot.
pub fn resource_of(migration: &StorageVersionMigration) -> String {
    let spec = migration.spec.as_ref();
    spec.map_or_else(String::new, |spec| {
        format!("{}.{}", spec.resource.resource, spec.resource.group)
    })
}

/// Whether an object is still as it was at the version, so that it has to be written again. An error
/// says which version cannot be compared.
pub fn is_unchanged(object_version: &str, version: &str) -> Result<bool, String> {
    match api::resource_version::compare(object_version, version) {
        Some(order) => Ok(order != Ordering::Greater),
        None => {
            let wrong = match api::resource_version::is_well_formed(object_version) {
                true => version,
                false => object_version,
            };
            Err(format!("resource version is not well formed: {wrong}"))
        }
    }
}

/// Why a resource cannot be migrated, if it cannot.
pub fn unfit(served: &Served) -> Option<String> {
    (!served.allows(&NEEDED)).then(|| {
        let resource = format!("{}, Resource={}", served.group_version(), served.plural);
        let verbs = NEEDED.join(" ");
        format!("resource {resource:?} does not support discovery operations: [{verbs}]")
    })
}

/// How long to go on waiting for a resource that is not served; none if it is enough.
pub fn patience_left(migration: &StorageVersionMigration, now: Timestamp) -> Option<Duration> {
    let created = migration.metadata.creation_timestamp.as_ref()?;
    let age = now.as_millisecond() - created.0.as_millisecond();
    let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
    PATIENCE.checked_sub(age).filter(|left| !left.is_zero())
}

/// The migration with one more condition that is true. A condition is set once.
pub fn with_condition(
    migration: &StorageVersionMigration,
    kind: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> StorageVersionMigration {
    let mut updated = migration.clone();
    let status = updated.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    if !conditions
        .iter()
        .any(|known| known.type_ == kind && known.status != "Unknown")
    {
        conditions.push(condition(kind, "True", reason, message, now));
    }
    updated
}

/// The migration that runs no more.
pub fn stopped(migration: &StorageVersionMigration, now: Timestamp) -> StorageVersionMigration {
    let mut updated = migration.clone();
    let status = updated.status.get_or_insert_default();
    let conditions = status.conditions.get_or_insert_default();
    for known in conditions.iter_mut().filter(|known| known.type_ == RUNNING) {
        *known = Condition {
            observed_generation: migration.metadata.generation,
            ..condition(
                RUNNING,
                "False",
                "MigrationCompleted",
                "Migration completed",
                now,
            )
        };
    }
    updated
}

/// What to apply to the status of a definition when the migration `name` of its objects starts.
pub fn definition_started(
    definition: &CustomResourceDefinition,
    name: &str,
    now: Timestamp,
) -> Value {
    let message = format!("Migration {name} is running");
    definition_status(definition, ("True", "MigrationRunning", &message), now)
}

/// What to apply to the status of a definition when a migration of its objects has ended. Only a
/// success says that no object is stored in another version, and only if the definition is as it was
/// when the migration started.
pub fn definition_ended(
    definition: &CustomResourceDefinition,
    succeeded: bool,
    now: Timestamp,
) -> Value {
    if !succeeded {
        let said = ("False", "MigrationFailed", "The migration has failed");
        return definition_status(definition, said, now);
    }
    let conditions = definition
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut started = conditions
        .into_iter()
        .flatten()
        .filter(|one| one.type_ == MIGRATING);
    let is_same = started.next().is_some_and(|one| {
        one.observed_generation.unwrap_or(0) == definition.metadata.generation.unwrap_or(0)
    });
    let message = match is_same {
        true => "The migration has succeeded and the stored versions have been updated",
        false => {
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
        }
    };
    let mut applied = definition_status(definition, ("False", "MigrationSucceeded", message), now);
    let mut stored = definition
        .spec
        .versions
        .iter()
        .filter(|version| version.storage);
    if let (true, Some(version)) = (is_same, stored.next()) {
        applied["status"]["storedVersions"] = json!([version.name]);
    }
    applied
}

/// `said` is status, reason and message of the condition.
fn definition_status(
    definition: &CustomResourceDefinition,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": definition.metadata.name,
            // A change in between could change which versions are stored.
            "resourceVersion": definition.metadata.resource_version,
        },
        "status": {"conditions": [{
            "type": MIGRATING,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": Time(now),
            "observedGeneration": definition.metadata.generation,
        }]},
    })
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(now),
        observed_generation: None,
    }
}

fn resource_version(migration: &StorageVersionMigration) -> &str {
    let status = migration.status.as_ref();
    let version = status.and_then(|status| status.resource_version.as_deref());
    version.unwrap_or_default()
}

fn has_ended(migration: &StorageVersionMigration) -> bool {
    is_true(migration, SUCCEEDED) || is_true(migration, FAILED)
}

fn is_true(migration: &StorageVersionMigration, kind: &str) -> bool {
    let conditions = migration
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition.type_ == kind);
    found.is_some_and(|condition| condition.status == "True")
}

/// Orders migrations by age, then by name.
fn turn(migration: &StorageVersionMigration) -> (Option<Timestamp>, &str) {
    let created = migration.metadata.creation_timestamp.as_ref();
    let name = migration.metadata.name.as_deref();
    (created.map(|time| time.0), name.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn migration(
        name: &str,
        created: &str,
        version: &str,
        conditions: &[(&str, &str)],
    ) -> Arc<StorageVersionMigration> {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| {
                json!({"type": kind, "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let migration = json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
            "status": {"resourceVersion": version, "conditions": conditions},
        });
        Arc::new(serde_json::from_value(migration).unwrap())
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T00:00:01Z";

    #[test]
    fn a_migration_starts_notes_the_version_migrates_and_stops() {
        let check = |version: &str, conditions: &[(&str, &str)], expected: Step| {
            let one = migration("a", EARLY, version, conditions);
            assert_eq!(next_step(&one, std::slice::from_ref(&one)), expected);
        };
        let version = "7".to_owned();
        check("", &[], Step::Start);
        check("", &[("Running", "False")], Step::Start);
        check("", &[("Running", "True")], Step::NoteVersion);
        check("7", &[("Running", "True")], Step::Migrate { version });
        let ended = |succeeded| Step::Finish { succeeded };
        check(
            "7",
            &[("Running", "True"), ("Succeeded", "True")],
            ended(true),
        );
        check(
            "7",
            &[("Running", "True"), ("Failed", "True")],
            ended(false),
        );
        check(
            "7",
            &[("Running", "False"), ("Succeeded", "True")],
            Step::Nothing,
        );
        check("", &[("Failed", "True")], Step::Nothing);
    }

    #[test]
    fn one_migration_of_a_resource_runs_at_a_time_the_oldest_first() {
        let running = [("Running", "True")];
        let ended = [("Running", "True"), ("Succeeded", "True")];
        let check = |first: &[(&str, &str)], starts: [bool; 2]| {
            let all = [
                migration("b", EARLY, "7", first),
                migration("c", LATE, "", &[]),
                migration("a", LATE, "", &[]),
            ];
            let found = [&all[1], &all[2]].map(|one| next_step(one, &all) == Step::Start);
            assert_eq!(found, starts, "{first:?}");
        };
        check(&[], [false, false]);
        check(&running, [false, false]);
        // Of equal age the first by name.
        check(&ended, [false, true]);
    }

    #[test]
    fn objects_that_changed_since_the_version_are_left_alone() {
        assert_eq!(is_unchanged("9", "10"), Ok(true));
        assert_eq!(is_unchanged("10", "10"), Ok(true));
        assert_eq!(is_unchanged("11", "10"), Ok(false));
        let wrong = |text: &str| Err(format!("resource version is not well formed: {text}"));
        assert_eq!(is_unchanged("x", "10"), wrong("x"));
        assert_eq!(is_unchanged("10", "y"), wrong("y"));
    }

    #[test]
    fn a_resource_must_have_the_verbs_and_may_come_within_a_minute() {
        let mut served = Served {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            plural: "widgets".to_owned(),
            verbs: ["list", "patch"].map(str::to_owned).to_vec(),
            ..Served::default()
        };
        assert_eq!(
            unfit(&served).as_deref(),
            Some(
                "resource \"example.com/v1, Resource=widgets\" does not support discovery operations: [update patch list]"
            )
        );
        served.verbs.push("update".to_owned());
        assert_eq!(unfit(&served), None);
        let left = |created| patience_left(&migration("a", created, "", &[]), now());
        assert_eq!(left("2026-01-01T00:00:50Z"), Some(Duration::from_secs(50)));
        assert_eq!(left(EARLY), None);
    }

    #[test]
    fn a_migration_that_has_ended_has_one_condition_of_each_type_and_runs_no_more() {
        let one = migration("a", EARLY, "7", &[("Running", "True")]);
        let again = with_condition(&one, RUNNING, "Other", "", now());
        assert_eq!(again, *one);
        let failed = with_condition(&one, FAILED, "Why", "because", now());
        let conditions = failed.status.as_ref().unwrap().conditions.as_ref().unwrap();
        assert_eq!(conditions.len(), 2);
        assert_eq!(
            (&*conditions[1].reason, &*conditions[1].message),
            ("Why", "because")
        );
        let stopped = stopped(&failed, now());
        let conditions = stopped.status.unwrap().conditions.unwrap();
        assert_eq!(
            (&*conditions[0].type_, &*conditions[0].status),
            ("Running", "False")
        );
        assert_eq!(conditions[0].last_transition_time.0, now());
        assert_eq!(conditions[1].type_, "Failed");
    }

    fn definition(generation: i64, observed: i64) -> CustomResourceDefinition {
        let version =
            |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage});
        serde_json::from_value(json!({
            "metadata": {"name": "widgets.example.com", "resourceVersion": "5", "generation": generation},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [version("v1", false), version("v2", true)],
            },
            "status": {"storedVersions": ["v1", "v2"], "conditions": [
                {"type": "StorageMigrating", "status": "True", "observedGeneration": observed},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn a_success_leaves_the_storage_version_alone_among_the_stored_ones() {
        let started = definition_started(&definition(3, 0), "a", now());
        assert_eq!(started["metadata"]["resourceVersion"], "5");
        let condition = &started["status"]["conditions"][0];
        assert_eq!(condition["message"], "Migration a is running");
        assert_eq!(condition["observedGeneration"], 3);
        let check = |observed: i64, succeeded: bool, message: &str, stored: Value| {
            let ended = definition_ended(&definition(3, observed), succeeded, now());
            assert_eq!(ended["status"]["conditions"][0]["status"], "False");
            assert_eq!(ended["status"]["conditions"][0]["message"], message);
            assert_eq!(ended["status"]["storedVersions"], stored);
        };
        check(
            3,
            true,
            "The migration has succeeded and the stored versions have been updated",
            json!(["v2"]),
        );
        // The storage version may have changed while it ran.
        check(
            2,
            true,
            "The migration has succeeded but the stored versions have not been updated due to a generation mismatch",
            Value::Null,
        );
        check(3, false, "The migration has failed", Value::Null);
    }
}
