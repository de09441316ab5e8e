//! ServiceAccount tokens for pods, asked of the API (TokenRequest) and renewed before they expire.

use std::{collections::BTreeMap, sync::Arc};

use environment::Environment;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, api::PostParams};
use parking_lot::Mutex;

/// A token older than this is renewed however long it lives.
const MAX_AGE: i64 = 24 * 3600 * 1_000_000;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("the server answered without a token")]
    Missing,
}

#[derive(Clone)]
pub struct Token {
    pub text: String,
    /// Microseconds since the epoch.
    pub refresh_at: i64,
}

/// Pod UID, audience, lifetime.
type Key = (String, String, i64);

/// Fetches and keeps tokens. Cheap to clone. Tokens are kept in memory only.
#[derive(Clone)]
pub struct Tokens {
    client: kube::Client,
    environment: Environment,
    known: Arc<Mutex<BTreeMap<Key, Token>>>,
}

impl Tokens {
    pub fn new(client: kube::Client, environment: Environment) -> Tokens {
        Tokens {
            client,
            environment,
            known: Arc::default(),
        }
    }

    pub async fn get(&self, pod: &Pod, audience: &str, seconds: i64) -> Result<Token, TokenError> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let key = (uid.clone(), audience.to_owned(), seconds);
        let now = self.environment.now_micros();
        let known = self.known.lock().get(&key).cloned();
        if let Some(token) = known.as_ref().filter(|token| now < token.refresh_at) {
            return Ok(token.clone());
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let account = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.as_deref())
            .unwrap_or("default");
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: (!audience.is_empty()).then(|| vec![audience.to_owned()]),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: pod.metadata.name.clone(),
                    uid: Some(uid),
                }),
            }),
            ..TokenRequest::default()
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let response = api
            .create_token_request(account, &PostParams::default(), &request)
            .await?;
        let status = response.status.ok_or(TokenError::Missing)?;
        let expires = status
            .expiration_timestamp
            .map_or(now + seconds * 1_000_000, |time| time.0.as_microsecond());
        // Renewed after four fifths of its life, with a little spread between pods.
        let life = expires - now;
        let spread = (self.environment.random_u64() % 10_000_000) as i64;
        let token = Token {
            text: status.token.unwrap_or_default(),
            refresh_at: now + (life / 5 * 4 - spread).min(MAX_AGE).max(life / 2),
        };
        self.known.lock().insert(key, token.clone());
        Ok(token)
    }

    /// Drops what is kept for a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.known.lock().retain(|key, _| key.0 != uid);
    }
}
