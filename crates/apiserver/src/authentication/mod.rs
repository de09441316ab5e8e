//! Who is asking: a client certificate, a user whom a front proxy names, a ServiceAccount token, or
//! an unknown user.
//!
//! What they may do is `authorization`'s.

mod authority;
mod certificate;
pub(crate) mod claims;
mod front_proxy;
mod legacy;
mod revocation;
mod secret_tokens;
mod token;

use std::sync::Arc;

use api::Status;
use http::HeaderMap;
use tokio::sync::mpsc;

use crate::Environment;
use crate::Error;
use crate::cache::Cache;
use crate::extension_servers::FrontProxy;
use crate::identity::Identity;

pub(crate) use certificate::CertificateVerifier;
pub(crate) use secret_tokens::{LAST_USED, Use};
pub(crate) use token::{Binding, Remembered, Tokens};

/// What a connection's client certificate says.
#[derive(Clone, Debug, Default)]
pub(crate) enum Peer {
    #[default]
    NoCertificate,
    Known(Arc<Identity>),
    /// One that may say in headers who the user is; it may be a user itself.
    FrontProxy(Option<Arc<Identity>>),
    /// A certificate that our authority did not sign, or that has expired.
    Refused,
}

pub(crate) struct Authenticator {
    pub certificates: CertificateVerifier,
    pub tokens: Tokens,
    revocations: revocation::Revocations,
}

impl Authenticator {
    /// Also the uses of tokens that [`crate::token_uses::note`] writes down.
    pub fn new(
        client_ca_pem: &str,
        front_proxy: Option<&FrontProxy>,
        service_account_key_pem: &str,
        issuer: &str,
        cache: Arc<Cache>,
        environment: Environment,
    ) -> Result<(Authenticator, mpsc::Receiver<Use>), Error> {
        let revocations = revocation::Revocations::new(cache.clone());
        let (tokens, uses) =
            Tokens::new(service_account_key_pem, issuer, cache, environment.clone())?;
        let authenticator = Authenticator {
            certificates: CertificateVerifier::new(client_ca_pem, front_proxy, environment)?,
            tokens,
            revocations,
        };
        Ok((authenticator, uses))
    }

    /// The caller of a network request. Wrong credentials are refused; none at all are anonymous.
    pub fn authenticate(
        &self,
        peer: &Peer,
        remembered: &Remembered,
        headers: &HeaderMap,
    ) -> Result<Arc<Identity>, Status> {
        if self.revocations.apply(peer) {
            return Err(Status::unauthorized());
        }
        if let Peer::FrontProxy(_) = peer
            && let Some(identity) = front_proxy::user_of(headers)
        {
            return Ok(Arc::new(identity));
        }
        if let Peer::Known(identity) | Peer::FrontProxy(Some(identity)) = peer {
            return Ok(identity.clone());
        }
        if let Some(token) = bearer_token(headers) {
            return self.tokens.caller(token, remembered).map_err(|problem| {
                tracing::debug!(%problem, "a token was refused");
                Status::unauthorized()
            });
        }
        match peer {
            Peer::Refused | Peer::FrontProxy(None) => Err(Status::unauthorized()),
            _ => Ok(Arc::new(Identity::anonymous())),
        }
    }
}

/// Other schemes are none of our business, so they are as good as no credentials.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(http::header::AUTHORIZATION)?;
    let (scheme, token) = header.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
