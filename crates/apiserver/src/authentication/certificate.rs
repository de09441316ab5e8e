//! Client certificates: the common name is the user, the organisations are the groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::Digest;
use x509_parser::prelude::FromDer;

use super::Peer;
use crate::Environment;
use crate::Error;
use crate::identity::{AUTHENTICATED, CREDENTIAL_ID, Identity};

pub(crate) struct CertificateVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    environment: Environment,
}

impl CertificateVerifier {
    pub fn new(ca_pem: &str, environment: Environment) -> Result<CertificateVerifier, Error> {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            let certificate = certificate
                .map_err(|problem| Error::Configuration(format!("client CA: {problem}")))?;
            roots
                .add(certificate)
                .map_err(|problem| Error::Configuration(format!("client CA: {problem}")))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|problem| Error::Configuration(format!("client CA: {problem}")))?;
        Ok(CertificateVerifier {
            verifier,
            environment,
        })
    }

    /// Judges the chain that a TLS client has proven to own.
    pub fn judge(&self, chain: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some((end_entity, intermediates)) = chain.and_then(<[_]>::split_first) else {
            return Peer::NoCertificate;
        };
        let seconds = self.environment.now_micros().max(0) as u64 / 1_000_000;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        match self
            .verifier
            .verify_client_cert(end_entity, intermediates, now)
        {
            Ok(_) => {
                subject(end_entity).map_or(Peer::Refused, |identity| Peer::Known(identity.into()))
            }
            Err(problem) => {
                tracing::debug!(%problem, "a client certificate was refused");
                Peer::Refused
            }
        }
    }
}

fn subject(der: &CertificateDer<'_>) -> Option<Identity> {
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let user = subject
        .iter_common_name()
        .next()?
        .as_str()
        .ok()?
        .to_string();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|name| name.as_str().ok().map(str::to_string))
        .collect();
    groups.push(AUTHENTICATED.to_string());
    let digest: String = sha2::Sha256::digest(der)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let credential = vec![format!("X509SHA256={digest}")];
    Some(Identity {
        user,
        groups,
        extra: BTreeMap::from([(CREDENTIAL_ID.to_string(), credential)]),
        issued: Some(certificate.validity().not_before.timestamp()),
        ..Identity::default()
    })
}
