//! Client certificates: the common name is the user, the organisations are the groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::certificate::Subject;
use rustls::pki_types::CertificateDer;
use sha2::Digest;

use super::Peer;
use super::authority::Verifier;
use super::front_proxy::FrontProxies;
use crate::Environment;
use crate::Error;
use crate::extension_servers::FrontProxy;
use crate::identity::{AUTHENTICATED, CREDENTIAL_ID, Identity};

pub(crate) struct CertificateVerifier {
    verifier: Verifier,
    /// Who may say in headers who the user is.
    front_proxies: Option<FrontProxies>,
    environment: Environment,
}

impl CertificateVerifier {
    pub fn new(
        ca_pem: &str,
        front_proxy: Option<&FrontProxy>,
        environment: Environment,
    ) -> Result<CertificateVerifier, Error> {
        Ok(CertificateVerifier {
            verifier: Verifier::new(ca_pem, "client CA")?,
            front_proxies: front_proxy.map(FrontProxies::new).transpose()?,
            environment,
        })
    }

    /// Judges the chain that a TLS client has proven to own.
    pub fn judge(&self, chain: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some(chain) = chain.filter(|chain| !chain.is_empty()) else {
            return Peer::NoCertificate;
        };
        let seconds = self.environment.now_micros().max(0) as u64 / 1_000_000;
        let known = match self.verifier.verify(chain, seconds) {
            Ok(()) => subject(&chain[0]).map(Arc::new),
            Err(problem) => {
                tracing::debug!(%problem, "a client certificate was refused");
                None
            }
        };
        let proxies = self.front_proxies.as_ref();
        match known {
            own if proxies.is_some_and(|proxies| proxies.accept(chain, seconds)) => {
                Peer::FrontProxy(own)
            }
            Some(identity) => Peer::Known(identity),
            None => Peer::Refused,
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
        let verifier = CertificateVerifier::new(&pem, None, Environment::simulated(1, NOW));
        verifier.unwrap().judge(Some(&[certificate.der().clone()]))
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
