//! A certificate that can be replaced while it is in use: later connections show the new one, as
//! clients and as servers.

use std::sync::Arc;

use anyhow::{Context, Result};
use environment::Environment;
use parking_lot::RwLock;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::pki::Identity;

/// The time in which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: i64,
    pub until: i64,
}

impl Validity {
    pub fn of(certificate_pem: &str) -> Result<Validity> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .context("reading a certificate")?;
        Validity::of_der(&der)
    }

    fn of_der(der: &CertificateDer<'_>) -> Result<Validity> {
        let (_, certificate) = X509Certificate::from_der(der).context("reading a certificate")?;
        Ok(Validity {
            from: certificate.validity().not_before.timestamp(),
            until: certificate.validity().not_after.timestamp(),
        })
    }

    /// The time of its renewal: after seven to nine tenths of its lifetime, chosen at random so that
    /// nodes which joined together do not renew together. Upstream's kubelet does the same.
    pub fn renewal(&self, environment: &Environment) -> i64 {
        let permille = 700 + (environment.random_u64() % 200) as i64;
        self.from + (self.until - self.from) * permille / 1000
    }
}

/// The certificate and key that new connections use.
#[derive(Debug)]
pub struct CertificateInUse {
    current: RwLock<Arc<CertifiedKey>>,
}

impl CertificateInUse {
    pub fn new(identity: Identity) -> Result<Arc<CertificateInUse>> {
        Ok(Arc::new(CertificateInUse {
            current: RwLock::new(certified(&identity)?),
        }))
    }

    pub fn replace(&self, identity: &Identity) -> Result<()> {
        *self.current.write() = certified(identity)?;
        Ok(())
    }

    pub fn validity(&self) -> Result<Validity> {
        let current = self.current.read().clone();
        let der = current.cert.first().context("there is no certificate")?;
        Validity::of_der(der)
    }
}

fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .context("reading a certificate")?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("reading a key")?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).context("reading a key")?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

impl ResolvesClientCert for CertificateInUse {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for CertificateInUse {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}
