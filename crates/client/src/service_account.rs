//! Clients that act as ServiceAccounts over the network. Each requests tokens of its account
//! (TokenRequest) with the given credentials, creates a missing account, and requests a new token
//! before the old one expires or when the server rejects it.
//!
//! A process with one kubeconfig thereby gives each of its components an identity of its own, like
//! upstream's `--use-service-account-credentials`.

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
/// How long a token is used. The rest of its lifetime is for slow requests.
const USED_FOR: Duration = Duration::from_secs(2700);

/// Creates clients for the ServiceAccounts of one namespace. Clones share connections.
#[derive(Clone)]
pub struct ServiceAccounts {
    /// The client with which accounts are created and tokens requested.
    issuer: kube::Client,
    /// A client without credentials, whose connections all accounts share.
    bare: kube::Client,
    namespace: String,
}

impl ServiceAccounts {
    /// `config` contains the server and the credentials that may request tokens.
    pub fn new(config: Config, namespace: &str) -> Result<ServiceAccounts, connect::Error> {
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        Ok(ServiceAccounts {
            issuer: connect::from_config(config)?,
            bare: connect::from_config(bare)?,
            namespace: namespace.to_owned(),
        })
    }

    /// A client that acts as the account `name`. It sends no request yet.
    pub fn client(&self, name: &str) -> kube::Client {
        connect::from_service(Transport {
            accounts: self.clone(),
            name: name.to_owned(),
            token: Arc::default(),
        })
    }

    /// Requests a new token, and creates the account where it is missing.
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
    /// The current token, or a new one. Concurrent requests wait for one response.
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
            // The account was recreated, or the server has another key now. The caller tries again,
            // as after any failure, and then gets a new token.
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
