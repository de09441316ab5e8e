//! Whether an authority signed a certificate.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::Error;

/// Knows the certificates of one authority.
pub(super) struct Verifier(Arc<dyn ClientCertVerifier>);

impl Verifier {
    /// `what` names the authority in errors.
    pub fn new(ca_pem: &str, what: &str) -> Result<Verifier, Error> {
        let wrong = |problem: String| Error::Configuration(format!("{what}: {problem}"));
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            let certificate = certificate.map_err(|problem| wrong(problem.to_string()))?;
            let added = roots.add(certificate);
            added.map_err(|problem| wrong(problem.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|problem| wrong(problem.to_string()))?;
        Ok(Verifier(verifier))
    }

    /// Whether the authority signed the first certificate of the chain, and it is valid now.
    pub fn verify(&self, chain: &[CertificateDer<'_>], seconds: u64) -> Result<(), rustls::Error> {
        let Some((end_entity, intermediates)) = chain.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let verified = self.0.verify_client_cert(end_entity, intermediates, now);
        verified.map(drop)
    }
}
