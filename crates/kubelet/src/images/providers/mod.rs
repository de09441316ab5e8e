//! Credentials from programs (image credential provider plugins): who is asked for an image, with
//! which ServiceAccount's token, and how long an answer is good. A pull that needs none of this
//! costs nothing; a question that fails is logged and counts as no answer.

mod config;
mod plugin;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use cri::v1;
use environment::{Environment, chain, go_duration};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

pub use self::config::Error;
use self::{
    config::{Config, Provider, TokenAttributes},
    plugin::{Auth, Question, Response},
};
use super::credentials::{self, Credential, ServiceAccountOrigin, Source};
use crate::{
    configuration::Configuration,
    measures::{Counter, Histogram, Measures},
    tokens::{TokenError, Tokens},
};

/// Answers one provider keeps.
const MOST_ANSWERS: usize = 1000;
const GLOBAL: &str = "<global>";
/// The default lifetime of a token in TokenRequest.
const TOKEN_SECONDS: i64 = 3600;

/// Why a provider was not asked, or gave no credentials.
#[derive(Debug, thiserror::Error)]
enum ProviderError {
    #[error("failed to get service account")]
    Account(#[source] kube::Error),
    #[error("failed to get service account token")]
    Token(#[source] TokenError),
    #[error("failed to get credential from external registry credential provider")]
    Plugin(#[from] plugin::Error),
    #[error(
        "credential provider plugin returned the service account token as the password which is not allowed when service account cache type is not set to 'Token'"
    )]
    Echo,
    #[error("credential provider plugin did not return a valid cacheKeyType: {0}")]
    CacheKeyType(String),
    #[error("credential provider plugin did not return a valid cacheDuration: {0}")]
    CacheDuration(String),
}

/// The providers that the configuration names.
pub struct Providers {
    all: Vec<Arc<Known>>,
    programs: PathBuf,
    /// Of the configuration, for `/metrics`.
    pub hash: String,
    client: kube::Client,
    tokens: Tokens,
    environment: Environment,
    measures: Arc<Measures>,
}

struct Known {
    provider: Provider,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: BTreeMap<Key, Kept>,
    /// Requests under way: the same request waits for the same answer.
    asking: BTreeMap<Key, Asking>,
}

/// The key of a cached answer: image, registry or all, and the service account.
type Key = (String, String);
type Answer = Result<Arc<Response>, plugin::Error>;
type Asking = Shared<BoxFuture<'static, Answer>>;

struct Kept {
    auths: Auths,
    /// Microseconds since the epoch.
    until: i64,
}

type Auths = Arc<BTreeMap<String, Auth>>;

/// The ServiceAccount a question is asked for.
#[derive(Default)]
struct Account {
    origin: Option<ServiceAccountOrigin>,
    token: String,
    annotations: BTreeMap<String, String>,
    /// Distinguishes answers for it from those for other accounts.
    key: String,
    /// Distinguishes this question from others.
    question: String,
}

impl Providers {
    /// `None` where the configuration names none. Blocking.
    pub fn open(
        configuration: &Configuration,
        client: kube::Client,
        tokens: Tokens,
        environment: Environment,
        measures: Arc<Measures>,
    ) -> Result<Option<Providers>, Error> {
        let config = &configuration.image_credential_provider_config;
        let programs = &configuration.image_credential_provider_bin_dir;
        if config.as_os_str().is_empty() && programs.as_os_str().is_empty() {
            return Ok(None);
        }
        let Config { providers, hash } = Config::read(config, programs)?;
        let known = |provider| {
            Arc::new(Known {
                provider,
                state: Mutex::default(),
            })
        };
        Ok(Some(Providers {
            all: providers.into_iter().map(known).collect(),
            programs: programs.clone(),
            hash,
            client,
            tokens,
            environment,
            measures,
        }))
    }

    /// The credentials for `repository`, the most specific first.
    pub async fn credentials(&self, repository: &str, pod: &Pod) -> Vec<Credential> {
        let mut found = Vec::new();
        for known in &self.all {
            let mut globs = known.provider.match_images.iter();
            if !globs.any(|glob| credentials::matches(glob, repository)) {
                continue;
            }
            match self.provide(known, repository, pod).await {
                Ok((auths, origin)) => {
                    let source = origin.map_or(Source::Node, Source::ServiceAccount);
                    found.extend(auths.iter().map(|(registry, auth)| {
                        let auth = v1::AuthConfig {
                            username: auth.username.clone(),
                            password: auth.password.clone(),
                            ..Default::default()
                        };
                        let source = source.clone();
                        (credentials::place(registry), Credential { auth, source })
                    }));
                }
                Err(error) => tracing::error!(
                    provider = known.provider.name,
                    image = repository,
                    error = %chain(&error),
                    "Failed to provide credentials for image"
                ),
            }
        }
        credentials::choose(found, repository)
    }

    async fn provide(
        &self,
        known: &Arc<Known>,
        image: &str,
        pod: &Pod,
    ) -> Result<(Auths, Option<ServiceAccountOrigin>), ProviderError> {
        let provider = &known.provider;
        let account = match &provider.token_attributes {
            None => Account::default(),
            Some(attributes) => match self.account(attributes, pod).await? {
                Some(account) => account,
                None => return Ok(Default::default()),
            },
        };
        let now = self.environment.now_micros();
        if let Some(auths) = known.kept(image, &account.key, now) {
            return Ok((auths, account.origin));
        }
        let question = Question {
            program: self.programs.join(&provider.name),
            image: image.to_owned(),
            token: account.token.clone(),
            annotations: account.annotations,
        };
        let response = self.ask(known, question, account.question).await?;
        if !account.token.is_empty() && !for_tokens(provider) {
            let mut auths = response.auth.values();
            if auths.any(|auth| auth.password == account.token) {
                return Err(ProviderError::Echo);
            }
        }
        let place = match response.cache_key_type.as_str() {
            "Image" => image,
            "Registry" => registry(image),
            "Global" => GLOBAL,
            other => return Err(ProviderError::CacheKeyType(other.to_owned())),
        };
        let good_for = match &response.cache_duration {
            None => provider.default_cache_duration(),
            Some(text) => go_duration::parse_unsigned(text)
                .ok_or_else(|| ProviderError::CacheDuration(text.clone()))?,
        };
        let auths = Arc::new(response.auth.clone());
        if !good_for.is_zero() {
            let now = self.environment.now_micros();
            let until = now.saturating_add(good_for.as_micros().min(i64::MAX as u128) as i64);
            let key = (place.to_owned(), account.key);
            known.keep(key, auths.clone(), until, now);
        }
        Ok((auths, account.origin))
    }

    /// Asks the program, or waits for the answer if it is just being asked the same.
    async fn ask(&self, known: &Arc<Known>, question: Question, whose: String) -> Answer {
        let key = (question.image.clone(), whose);
        let asking = {
            let mut state = known.state.lock();
            match state.asking.get(&key) {
                Some(asking) => asking.clone(),
                None => {
                    let (asked, asked_as, measures) =
                        (known.clone(), key.clone(), self.measures.clone());
                    // It continues when the pod that asked is deleted: another may wait for the answer.
                    let task = tokio::spawn(async move {
                        let began = Instant::now();
                        let answer = plugin::ask(&asked.provider, &question).await;
                        let name = [asked.provider.name.as_str()];
                        let took = began.elapsed();
                        measures.time(Histogram::CredentialProviderPluginDuration, &name, took);
                        if matches!(answer, Err(plugin::Error::Run { .. })) {
                            measures.count(Counter::CredentialProviderPluginErrors, &name);
                        }
                        asked.state.lock().asking.remove(&asked_as);
                        answer.map(Arc::new)
                    });
                    let asking = task
                        .map(|ended| ended.unwrap_or(Err(plugin::Error::CalledOff)))
                        .boxed()
                        .shared();
                    state.asking.insert(key, asking.clone());
                    asking
                }
            }
        };
        asking.await
    }

    /// The pod's account with a token for the provider; `None` when the provider is not to be asked.
    async fn account(
        &self,
        attributes: &TokenAttributes,
        pod: &Pod,
    ) -> Result<Option<Account>, ProviderError> {
        let spec = pod.spec.as_ref();
        let name = spec.and_then(|spec| spec.service_account_name.as_deref());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            let required = attributes.require_service_account != Some(false);
            return Ok((!required).then(Account::default));
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get(name).await;
        let found = found.map_err(ProviderError::Account)?;
        let given = found.metadata.annotations.unwrap_or_default();
        let mut annotations = BTreeMap::new();
        for key in &attributes.required_service_account_annotation_keys {
            // A service account without the annotation does not take part.
            let Some(value) = given.get(key) else {
                return Ok(None);
            };
            annotations.insert(key.clone(), value.clone());
        }
        for key in &attributes.optional_service_account_annotation_keys {
            if let Some(value) = given.get(key) {
                annotations.insert(key.clone(), value.clone());
            }
        }
        let audience = &attributes.service_account_token_audience;
        let token = self.tokens.get(pod, audience, TOKEN_SECONDS).await;
        let token = token.map_err(ProviderError::Token)?.text;
        let origin = ServiceAccountOrigin {
            uid: found.metadata.uid.unwrap_or_default(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let hash = Sha256::digest(&token);
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut key = serde_json::json!([origin, annotations]).to_string();
        if attributes.cache_type == "Token" {
            key.push_str(&hash);
        }
        Ok(Some(Account {
            question: serde_json::json!([hash, annotations]).to_string(),
            origin: Some(origin),
            token,
            annotations,
            key,
        }))
    }
}

impl Known {
    fn kept(&self, image: &str, account: &str, now: i64) -> Option<Auths> {
        let state = self.state.lock();
        [image, registry(image), GLOBAL].iter().find_map(|place| {
            let key = ((*place).to_owned(), account.to_owned());
            let kept = state.answers.get(&key)?;
            (now <= kept.until).then(|| kept.auths.clone())
        })
    }

    fn keep(&self, key: Key, auths: Auths, until: i64, now: i64) {
        let mut state = self.state.lock();
        state.answers.retain(|_, kept| now <= kept.until);
        if state.answers.len() >= MOST_ANSWERS {
            let soonest = state.answers.iter().min_by_key(|(_, kept)| kept.until);
            if let Some(key) = soonest.map(|(key, _)| key.clone()) {
                state.answers.remove(&key);
            }
        }
        state.answers.insert(key, Kept { auths, until });
    }
}

/// Whether answers are good only for the token they were asked with.
fn for_tokens(provider: &Provider) -> bool {
    let attributes = provider.token_attributes.as_ref();
    attributes.is_some_and(|attributes| attributes.cache_type == "Token")
}

fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or_default()
}
