//! Writes all stored objects of a resource again when a StorageVersionMigration asks for it, so that
//! they are stored in the version, and with the key, that are current.
//!
//! A migration takes these steps, each with a write of its status, so that it goes on after a restart
//! where it was:
//!
//! 1. It waits until no other migration of the resource runs, and is then `Running`. The definition of
//!    a custom kind says so as well.
//! 2. It notes the version of the resource (`status.resourceVersion`). Whatever is written after that is
//!    in the current form.
//! 3. Every object that is not newer is applied with nothing but its UID and version: the server reads
//!    it and writes it again if its stored form would be another one.
//! 4. It has `Succeeded` or `Failed`, and runs no more. After a success the definition of a custom kind
//!    has one stored version.

mod plan;

use client::controller::Reconciled;
use client::{Index, Informer, ObjectKey, Terms, WorkQueue, retry};
use k8s_openapi::api::storagemigration::v1beta1::StorageVersionMigration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use crate::discovery::{self, Served};
use crate::watching::{self, enqueue};
use crate::{Config, Error};
use plan::{FAILED, RUNNING, SUCCEEDED, Step};

const GATE: &str = "StorageVersionMigrator";
/// The controller's name, and its field manager in what it migrates.
const CONTROLLER: &str = "storage-version-migrator-controller";
/// Upstream's field manager in the status of definitions.
const RUNNER: &str = "migration-runner-controller";
const WORKERS: usize = 5;
/// Objects that are listed at once.
const PAGE: u32 = 500;
/// The pause between looks for a resource that is not served yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub async fn run(config: Config, shutdown: CancellationToken) {
    if !config.feature_gates.is_on(GATE) {
        return;
    }
    let migrations = config.informers.of::<StorageVersionMigration>();
    let by_resource = Arc::new(migrations.index(
        "resource",
        Terms::All(|migration| vec![plan::resource_of(migration)]),
    ));
    let queue = WorkQueue::new();
    let feeds = enqueue(&migrations, &queue, {
        let by_resource = by_resource.clone();
        // The end of one is the turn of another.
        move |migration| {
            let same = by_resource.get(&plan::resource_of(migration));
            let same = same.iter().map(|other| ObjectKey::of(&**other));
            same.chain([ObjectKey::of(migration)]).collect()
        }
    });
    let migrator = Arc::new(Migrator {
        config,
        migrations,
        by_resource,
    });
    let reconcile = move |key: ObjectKey| {
        let migrator = migrator.clone();
        async move { migrator.reconcile(&key).await }
    };
    watching::run(CONTROLLER, WORKERS, queue, feeds, reconcile, shutdown).await;
}

struct Migrator {
    config: Config,
    migrations: Informer<StorageVersionMigration>,
    by_resource: Arc<Index<StorageVersionMigration>>,
}

impl Migrator {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.migrations.synced().await;
        let Some(migration) = self.migrations.get("", &key.name) else {
            return Ok(Reconciled::Done);
        };
        let same = self.by_resource.get(&plan::resource_of(&migration));
        match plan::next_step(&migration, &same) {
            Step::Nothing | Step::Wait => Ok(Reconciled::Done),
            Step::Start => self.start(&migration).await,
            Step::NoteVersion => self.note_version(&migration).await,
            Step::Migrate { version } => self.migrate(&migration, &version).await,
            Step::Finish { succeeded } => self.finish(&migration, succeeded).await,
        }
    }

    async fn start(&self, migration: &StorageVersionMigration) -> Result<Reconciled, Error> {
        let now = self.config.environment.now();
        if let Some(definition) = self.definition(migration).await? {
            let name = migration.metadata.name.as_deref().unwrap_or_default();
            let applied = plan::definition_started(&definition, name, now);
            self.apply_to_definition(migration, applied).await?;
        }
        let (reason, message) = ("MigrationRunning", "The migration is running");
        self.write(plan::with_condition(
            migration, RUNNING, reason, message, now,
        ))
        .await
    }

    async fn note_version(&self, migration: &StorageVersionMigration) -> Result<Reconciled, Error> {
        let Some(served) = self.served(migration).await? else {
            let why = "resource does not exist in discovery";
            return self.wait_or_fail(migration, why).await;
        };
        if let Some(why) = plan::unfit(&served) {
            return self.fail(migration, &why).await;
        }
        let objects = served.everywhere(&self.config.client);
        let list = objects
            .list_metadata(&ListParams::default().limit(1))
            .await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        if !api::resource_version::is_well_formed(&version) {
            let why = format!(
                "latest resourceVersion for {}, Resource={} is not valid: resource version is not well formed: {version}",
                served.group_version(),
                served.plural
            );
            return self.fail(migration, &why).await;
        }
        let mut updated = migration.clone();
        updated.status.get_or_insert_default().resource_version = Some(version);
        self.write(updated).await
    }

    async fn migrate(
        &self,
        migration: &StorageVersionMigration,
        version: &str,
    ) -> Result<Reconciled, Error> {
        let Some(served) = self.served(migration).await? else {
            let why = unhandled("unable to obtain GVR from discovery");
            return self.wait_or_fail(migration, &why).await;
        };
        match self.write_again(&served, version).await? {
            Outcome::Refused(why) => self.fail(migration, &unhandled(&why)).await,
            Outcome::AllWritten => {
                let now = self.config.environment.now();
                let reason = "StorageVersionMigrationSucceeded";
                self.write(plan::with_condition(migration, SUCCEEDED, reason, "", now))
                    .await
            }
        }
    }

    /// Writes every object again that is not newer than `version`. An error is worth another attempt,
    /// which skips what was written in this one.
    async fn write_again(&self, served: &Served, version: &str) -> Result<Outcome, Error> {
        let all = served.everywhere(&self.config.client);
        let mut page = ListParams::default().limit(PAGE);
        loop {
            // A list without a version is no older than the noted one.
            let listed = all.list_metadata(&page).await?;
            for object in &listed.items {
                let meta = &object.metadata;
                let object_version = meta.resource_version.as_deref().unwrap_or_default();
                match plan::is_unchanged(object_version, version) {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(why) => return Ok(Outcome::Refused(why)),
                }
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                let objects = served.metadata_api(&self.config.client, namespace);
                // With the UID a deleted object is a conflict, not a new object; with the version so is
                // one of the same name that came after it.
                let applied = json!({
                    "apiVersion": served.api_version(),
                    "kind": served.kind,
                    "metadata": {"uid": meta.uid, "resourceVersion": object_version},
                });
                let name = meta.name.as_deref().unwrap_or_default();
                let written = objects
                    .patch_metadata(
                        name,
                        &PatchParams::apply(CONTROLLER),
                        &Patch::Apply(applied),
                    )
                    .await;
                match written {
                    Ok(_) => {}
                    // It was written or deleted in between: there is nothing left to do.
                    Err(error) if retry::is_conflict(&error) || retry::is_not_found(&error) => {}
                    Err(kube::Error::Api(status)) if !is_transient(&status) => {
                        let error = kube::Error::Api(status);
                        return Ok(Outcome::Refused(retry::sentence(&error)));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            match listed.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
                None => return Ok(Outcome::AllWritten),
            }
        }
    }

    async fn finish(
        &self,
        migration: &StorageVersionMigration,
        succeeded: bool,
    ) -> Result<Reconciled, Error> {
        let now = self.config.environment.now();
        if let Some(definition) = self.definition(migration).await? {
            let applied = plan::definition_ended(&definition, succeeded, now);
            self.apply_to_definition(migration, applied).await?;
        }
        self.write(plan::stopped(migration, now)).await
    }

    async fn wait_or_fail(
        &self,
        migration: &StorageVersionMigration,
        why: &str,
    ) -> Result<Reconciled, Error> {
        match plan::patience_left(migration, self.config.environment.now()) {
            Some(left) => Ok(Reconciled::After(left.min(LOOK_AGAIN))),
            None => self.fail(migration, why).await,
        }
    }

    async fn fail(
        &self,
        migration: &StorageVersionMigration,
        why: &str,
    ) -> Result<Reconciled, Error> {
        let now = self.config.environment.now();
        let reason = "StorageVersionMigrationFailed";
        self.write(plan::with_condition(migration, FAILED, reason, why, now))
            .await
    }

    async fn write(&self, migration: StorageVersionMigration) -> Result<Reconciled, Error> {
        let api: Api<StorageVersionMigration> = Api::all(self.config.client.clone());
        let name = migration.metadata.name.as_deref().unwrap_or_default();
        let written = api
            .replace_status(name, &PostParams::default(), &migration)
            .await;
        match written {
            Ok(_) => Ok(Reconciled::Done),
            Err(error) if retry::is_not_found(&error) => Ok(Reconciled::Done),
            Err(error) => Err(error.into()),
        }
    }

    /// The resource of a migration in its preferred version.
    async fn served(&self, migration: &StorageVersionMigration) -> Result<Option<Served>, Error> {
        let Some(spec) = &migration.spec else {
            return Ok(None);
        };
        let discovered = discovery::discover(&self.config.client).await?;
        let mut kinds = discovered.kinds.into_iter().filter(|served| {
            served.preferred
                && (&served.group, &served.plural)
                    == (&spec.resource.group, &spec.resource.resource)
        });
        Ok(kinds.next())
    }

    /// The definition of a migration's resource, if it is a custom kind.
    async fn definition(
        &self,
        migration: &StorageVersionMigration,
    ) -> Result<Option<CustomResourceDefinition>, Error> {
        Ok(self
            .definitions()
            .get_opt(&plan::resource_of(migration))
            .await?)
    }

    async fn apply_to_definition(
        &self,
        migration: &StorageVersionMigration,
        applied: serde_json::Value,
    ) -> Result<(), Error> {
        let parameters = PatchParams::apply(RUNNER).force();
        let name = plan::resource_of(migration);
        let written = self
            .definitions()
            .patch_status(&name, &parameters, &Patch::Apply(applied))
            .await;
        match written {
            Err(error) if !retry::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.config.client.clone())
    }
}

/// How writing the objects of a resource again ended.
enum Outcome {
    AllWritten,
    /// An object cannot be written; why.
    Refused(String),
}

/// Whether upstream would try again after this answer.
fn is_transient(status: &kube::core::Status) -> bool {
    matches!(status.code, 429 | 500 | 503 | 504)
}

fn unhandled(why: &str) -> String {
    format!("migration encountered unhandled error: {why}")
}
