//! Fills Secrets of the type `kubernetes.io/service-account-token` with a token of the
//! ServiceAccount they name, the cluster's authority and their namespace, and removes them with
//! that account. Which tokens are believed is the API server's to say.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::controller::Reconciled;
use client::{Index, Informer, ObjectKey, Terms, WorkQueue, retry};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::lookup::{in_namespace, namespace_of};
use crate::owned_pods::of_uid;
use crate::watching::{self, Reconciler, enqueue, own_key};
use crate::{Config, Error, TokenSigner};
use plan::{Fate, NAME};

/// Only these are looked at: other Secrets are none of our business.
pub const OF_TYPE: &str = "type=kubernetes.io/service-account-token";

/// One key per ServiceAccount. Without a key to sign with nothing is done, as upstream's.
pub async fn run(config: Config, shutdown: CancellationToken) {
    let Some(signer) = config.token_signer.clone() else {
        return shutdown.cancelled().await;
    };
    let accounts = config.informers.of::<ServiceAccount>();
    let secrets = config.informers.with_selector::<Secret>(OF_TYPE);
    let queue = WorkQueue::new();
    let feeds = futures::future::join(
        enqueue(&accounts, &queue, own_key),
        enqueue(&secrets, &queue, |secret: &Secret| {
            let namespace = secret.metadata.namespace.clone().unwrap_or_default();
            let account = crate::meta::annotation(&secret.metadata, NAME);
            let account = account.filter(|name| !name.is_empty());
            let key = account.map(|name| ObjectKey::new(namespace, name));
            key.into_iter().collect()
        }),
    );
    let controller = Controller {
        config,
        signer,
        accounts,
        secrets_of: secrets.index("account", Terms::All(account_of)),
        secrets,
        held: Mutex::default(),
    };
    watching::run(
        "serviceaccount-token",
        5,
        queue,
        feeds,
        controller,
        shutdown,
    )
    .await;
}

/// The account that a Secret names.
fn account_of(secret: &Secret) -> Vec<String> {
    let name = crate::meta::annotation(&secret.metadata, NAME);
    let term = name.map(|name| in_namespace(namespace_of(&secret.metadata), name));
    Vec::from_iter(term)
}

struct Controller {
    config: Config,
    signer: TokenSigner,
    accounts: Informer<ServiceAccount>,
    secrets: Informer<Secret>,
    secrets_of: Index<Secret>,
    /// The Secrets that each account had when it was looked at last.
    held: Mutex<BTreeMap<ObjectKey, BTreeSet<String>>>,
}

impl Reconciler for Controller {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Reconciled, Error> {
        self.accounts.synced().await;
        self.secrets.synced().await;
        let secrets: Vec<Arc<Secret>> = self
            .secrets_of
            .get(&in_namespace(&key.namespace, &key.name))
            .into_iter()
            .filter(|secret| plan::names(secret, &key.name))
            .collect();
        let names: BTreeSet<String> = secrets
            .iter()
            .filter_map(|secret| secret.metadata.name.clone())
            .collect();
        let before = self.held.lock().get(key).cloned().unwrap_or_default();
        let lost: BTreeSet<String> = before.difference(&names).cloned().collect();
        if secrets.is_empty() && lost.is_empty() {
            return Ok(Reconciled::Done);
        }
        // A Secret may be here before its account has come to our cache.
        let account = match self.accounts.get(&key.namespace, &key.name) {
            Some(account) => Some((*account).clone()),
            None => self.accounts_in(key).get_opt(&key.name).await?,
        };
        if let Some(account) = &account {
            self.forget(key, account, &lost).await?;
        }
        for secret in secrets {
            let authority = &self.config.root_ca_pem;
            match plan::fate(&secret, account.as_ref(), authority) {
                Fate::Stays => {}
                Fate::Goes => self.delete(key, &secret).await?,
                Fate::Filled(account) => self.fill(key, &secret, account).await?,
            }
        }
        match names.is_empty() {
            true => self.held.lock().remove(key),
            false => self.held.lock().insert(key.clone(), names),
        };
        Ok(Reconciled::Done)
    }
}

impl Controller {
    fn accounts_in(&self, key: &ObjectKey) -> Api<ServiceAccount> {
        Api::namespaced(self.config.client.clone(), &key.namespace)
    }

    /// Takes Secrets that are gone out of the account's list.
    async fn forget(
        &self,
        key: &ObjectKey,
        account: &ServiceAccount,
        lost: &BTreeSet<String>,
    ) -> Result<(), Error> {
        let is_lost = |name: &Option<String>| name.as_ref().is_some_and(|name| lost.contains(name));
        let listed = account.secrets.iter().flatten();
        if !listed.into_iter().any(|listed| is_lost(&listed.name)) {
            return Ok(());
        }
        let mut updated = account.clone();
        updated
            .secrets
            .get_or_insert_default()
            .retain(|listed| !is_lost(&listed.name));
        let written = self
            .accounts_in(key)
            .replace(&key.name, &PostParams::default(), &updated)
            .await;
        unless_gone(written)
    }

    async fn delete(&self, key: &ObjectKey, secret: &Secret) -> Result<(), Error> {
        let secrets: Api<Secret> = Api::namespaced(self.config.client.clone(), &key.namespace);
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let uid = secret.metadata.uid.as_deref().unwrap_or_default();
        match secrets.delete(name, &of_uid(uid)).await {
            // Another Secret of that name, which is looked at for itself.
            Err(error) if retry::is_conflict(&error) => Ok(()),
            deleted => unless_gone(deleted),
        }
    }

    async fn fill(
        &self,
        key: &ObjectKey,
        secret: &Secret,
        account: &ServiceAccount,
    ) -> Result<(), Error> {
        let mut filled = plan::filled(secret, account, &self.config.root_ca_pem);
        let data = filled.data.get_or_insert_default();
        if data.get(plan::TOKEN).is_none_or(|token| token.0.is_empty()) {
            let claims = plan::claims(secret, account);
            let token = self.signer.sign(&claims).ok_or_else(|| {
                Error::Object(format!("no token could be signed for {}", key.name))
            })?;
            data.insert(plan::TOKEN.to_string(), ByteString(token.into_bytes()));
        }
        let secrets: Api<Secret> = Api::namespaced(self.config.client.clone(), &key.namespace);
        let name = secret.metadata.name.as_deref().unwrap_or_default();
        let written = secrets.replace(name, &PostParams::default(), &filled).await;
        unless_gone(written)
    }
}

fn unless_gone<T>(result: Result<T, kube::Error>) -> Result<(), Error> {
    match result {
        Err(error) if !retry::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}
