//! A certificate that can be replaced while it is in use: connections that are made later show the
//! new one, as clients and as servers.

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

/// From when until when a certificate is good, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: i64,
    pub until: i64,
}

impl Validity {
    pub fn of(certificate_pem: &str) -> Result<Validity> {
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .context("reading a certificate")?;
        let (_, certificate) = X509Certificate::from_der(&der)
            .map_err(|error| anyhow::anyhow!("reading a certificate: {error}"))?;
        Ok(Validity {
            from: certificate.validity().not_before.timestamp(),
            until: certificate.validity().not_after.timestamp(),
        })
    }

    /// When to renew it: after seven to nine tenths of its time, so that nodes which joined together
    /// do not ask together. Upstream's kubelet does the same.
    pub fn renewal(&self, environment: &Environment) -> i64 {
        let permille = 700 + (environment.random_u64() % 200) as i64;
        self.from + (self.until - self.from) * permille / 1000
    }
}

#[derive(Debug)]
pub struct Held {
    current: RwLock<Arc<CertifiedKey>>,
}

impl Held {
    pub fn new(identity: Identity) -> Result<Arc<Held>> {
        Ok(Arc::new(Held {
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
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| anyhow::anyhow!("reading a certificate: {error}"))?;
        Ok(Validity {
            from: certificate.validity().not_before.timestamp(),
            until: certificate.validity().not_after.timestamp(),
        })
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

impl ResolvesClientCert for Held {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Held {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}
