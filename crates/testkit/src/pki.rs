//! Temporary certificates in memory: one certificate authority, a server certificate for loopback,
//! and client certificates on demand.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::Result;
use base64::Engine;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

pub struct Pki {
    pub authority_pem: String,
    pub service_account_key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, both PEM.
pub struct Certificate {
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Pki {
    pub fn generate() -> Result<Pki> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = subject("test-ca", &[]);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        // A signature has one of three lengths. The certificate is stored, and simulations count the
        // bytes that are written: equal seeds need certificates of equal length.
        let certificate = loop {
            let certificate = parameters.self_signed(&key)?;
            if certificate.der().len().is_multiple_of(3) {
                break certificate;
            }
        };
        Ok(Pki {
            authority_pem: certificate.pem(),
            service_account_key_pem: KeyPair::generate()?.serialize_pem(),
            issuer: Issuer::new(parameters, key),
        })
    }

    /// Signs tokens that the API server accepts, for controllers.
    pub fn token_signer(&self) -> Result<controllers::TokenSigner> {
        let signer = apiserver::TokenSigner::from_pem(&self.service_account_key_pem)?;
        Ok(controllers::TokenSigner::new(move |claims| {
            signer.sign(claims)
        }))
    }

    /// A client certificate for the API server.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Certificate> {
        self.leaf(
            user,
            groups,
            ExtendedKeyUsagePurpose::ClientAuth,
            Vec::new(),
        )
    }

    /// TLS for a server on loopback that also accepts our client certificates.
    pub fn server_tls(&self) -> Result<Arc<rustls::ServerConfig>> {
        client::connect::install_crypto_provider();
        let names = vec![
            SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            SanType::DnsName("localhost".try_into()?),
        ];
        let server = self.leaf(
            "test-server",
            &[],
            ExtendedKeyUsagePurpose::ServerAuth,
            names,
        )?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(
            self.authority_pem.as_bytes(),
        )?)?;
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
            .allow_unauthenticated()
            .build()?;
        let mut config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(
                    server.certificate_pem.as_bytes(),
                )?],
                PrivateKeyDer::from_pem_slice(server.key_pem.as_bytes())?,
            )?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// A kubeconfig for `server` (`https://host:port`) with a new client certificate.
    pub fn kubeconfig(&self, server: &str, user: &str, groups: &[&str]) -> Result<String> {
        let client = self.client(user, groups)?;
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let config = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": server,
                "certificate-authority-data": encode(&self.authority_pem),
            }}],
            "users": [{"name": "test", "user": {
                "client-certificate-data": encode(&client.certificate_pem),
                "client-key-data": encode(&client.key_pem),
            }}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        Ok(config.to_string())
    }

    fn leaf(
        &self,
        user: &str,
        groups: &[&str],
        usage: ExtendedKeyUsagePurpose,
        names: Vec<SanType>,
    ) -> Result<Certificate> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = subject(user, groups);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        parameters.subject_alt_names = names;
        Ok(Certificate {
            certificate_pem: parameters.signed_by(&key, &self.issuer)?.pem(),
            key_pem: key.serialize_pem(),
        })
    }
}

fn subject(common_name: &str, organizations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for organization in organizations {
        name.push(DnType::OrganizationName, *organization);
    }
    name.push(DnType::CommonName, common_name);
    name
}
