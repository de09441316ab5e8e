//! Clients that act as ServiceAccounts over the network: each asks, with the credentials it was
//! given, for tokens of its account (TokenRequest), makes the account where it is missing, and
//! asks anew before a token runs out or when the server no longer takes it.
//!
//! This is how a process with one kubeconfig gives each of its parts an identity of its own, as
//! upstream's `--use-service-account-credentials` does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Api, Config};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Service};

use crate::{connect, retry};

const LIFETIME_SECONDS: i64 = 3600;
/// How long a token is used; the rest of its life is for those who are slow.
const USED_FOR: Duration = Duration::from_secs(2700);

/// Makes clients for the accounts of one namespace. Clones share connections.
#[derive(Clone)]
pub struct ServiceAccounts {
    /// Acts as the one who may make accounts and ask for their tokens.
    issuer: kube::Client,
    /// Carries no credentials; all accounts share its connections.
    bare: kube::Client,
    namespace: String,
}

impl ServiceAccounts {
    /// `config` names the server and the credentials that may ask for tokens.
    pub fn new(config: Config, namespace: &str) -> Result<ServiceAccounts, connect::Error> {
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        Ok(ServiceAccounts {
            issuer: connect::from_config(config)?,
            bare: connect::from_config(bare)?,
            namespace: namespace.to_owned(),
        })
    }

    /// A client that acts as the account `name`. Nothing is asked of the server yet.
    pub fn client(&self, name: &str) -> kube::Client {
        connect::from_service(Transport {
            accounts: self.clone(),
            name: name.to_owned(),
            token: Arc::default(),
        })
    }

    /// A new token, for an account that is made if it is not there.
    async fn issue(&self, name: &str) -> kube::Result<HeaderValue> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.issuer.clone(), &self.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(LIFETIME_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let parameters = PostParams::default();
        let issued = match accounts
            .create_token_request(name, &parameters, &request)
            .await
        {
            Err(error) if retry::is_not_found(&error) => {
                let account = ServiceAccount {
                    metadata: ObjectMeta {
                        name: Some(name.to_owned()),
                        ..ObjectMeta::default()
                    },
                    ..ServiceAccount::default()
                };
                match accounts.create(&parameters, &account).await {
                    Err(error) if !retry::is_already_exists(&error) => return Err(error),
                    _ => {}
                }
                accounts
                    .create_token_request(name, &parameters, &request)
                    .await?
            }
            issued => issued?,
        };
        let token = issued.status.and_then(|status| status.token);
        let token = token.unwrap_or_default();
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|error| kube::Error::HttpError(error.into()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// The requests of one account.
#[derive(Clone)]
struct Transport {
    accounts: ServiceAccounts,
    name: String,
    token: Arc<Mutex<Option<Token>>>,
}

struct Token {
    header: HeaderValue,
    issued: Instant,
}

impl Transport {
    /// The token in use, or a new one. Requests that need one at the same time wait for one answer.
    async fn token(&self) -> kube::Result<HeaderValue> {
        let mut token = self.token.lock().await;
        if let Some(token) = &*token
            && token.issued.elapsed() < USED_FOR
        {
            return Ok(token.header.clone());
        }
        let issued = Instant::now();
        let header = self.accounts.issue(&self.name).await?;
        *token = Some(Token {
            header: header.clone(),
            issued,
        });
        Ok(header)
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let token = self.token().await?;
        request
            .headers_mut()
            .insert(header::AUTHORIZATION, token.clone());
        let response = self.accounts.bare.send(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            // The account was made anew, or the server signs with another key now. The caller
            // tries again, as after any failure, and then with a new token.
            let mut current = self.token.lock().await;
            if current.as_ref().is_some_and(|one| one.header == token) {
                *current = None;
            }
        }
        Ok(response)
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let transport = self.clone();
        Box::pin(async move { transport.send(request).await })
    }
}
