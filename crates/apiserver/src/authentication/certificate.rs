//! Client certificates: the common name is the user, the organisations are the groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::certificate::Subject;
use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::Digest;

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
    let Subject {
        common_name: user,
        organizations: mut groups,
    } = match Subject::of_certificate(der) {
        Ok(subject) if !subject.common_name.is_empty() => subject,
        Ok(_) => return None,
        Err(problem) => {
            tracing::debug!(%problem, "the subject of a client certificate was refused");
            return None;
        }
    };
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
        issued: api::certificate::not_before(der).ok(),
        ..Identity::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000_000;

    /// What a verifier says of a certificate with these common names, signed by its authority.
    fn judge(common_names: &[(rcgen::DnType, &str)]) -> Peer {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = authority.self_signed(&key).unwrap().pem();
        let issuer = rcgen::Issuer::new(authority, key);
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in common_names {
            parameters.distinguished_name.push(kind.clone(), *name);
        }
        parameters.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &issuer).unwrap();
        let verifier = CertificateVerifier::new(&pem, Environment::simulated(1, NOW)).unwrap();
        verifier.judge(Some(&[certificate.der().clone()]))
    }

    #[test]
    fn a_certificate_with_two_common_names_is_refused() {
        let node = (rcgen::DnType::CommonName, "system:node:n");
        let known = judge(std::slice::from_ref(&node));
        assert!(matches!(&known, Peer::Known(identity) if identity.user == "system:node:n"));
        let again = rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]);
        let both = judge(&[node, (again, "system:kube-controller-manager")]);
        assert!(matches!(both, Peer::Refused), "{both:?}");
        assert!(matches!(judge(&[]), Peer::Refused));
    }
}
