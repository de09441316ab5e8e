//! TLS towards hooks: their certificate is checked against the bundle of their configuration, or
//! against what the machine trusts where there is none. Nothing of ours is shown to them.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

/// Where systems keep the authorities that they trust; the first of these that exists counts.
const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why a bundle of authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("unable to load root certificates: unable to parse bytes as PEM block")]
    NoCertificates,
    #[error("unable to load root certificates")]
    Bundle(#[source] rustls::pki_types::pem::Error),
    #[error("the TLS client could not be set up")]
    Setup(#[source] rustls::Error),
    #[error("the bundle holds no usable authority")]
    Verifier(#[source] rustls::client::VerifierBuilderError),
}

/// A connector that believes these authorities (PEM), or the machine's where there are none.
pub(super) fn connector(
    ca_bundle: &[u8],
    http2: bool,
) -> Result<tokio_rustls::TlsConnector, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = verifier(ca_bundle, provider.clone())?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Setup)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let protocols: &[&[u8]] = match http2 {
        true => &[b"h2", b"http/1.1"],
        false => &[b"http/1.1"],
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(tokio_rustls::TlsConnector::from(Arc::new(config)))
}

/// Believes these authorities (PEM), or the machine's where there are none.
pub(crate) fn verifier(
    ca_bundle: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let authorities = match ca_bundle {
        [] => system_authorities().to_vec(),
        bundle => certificates(bundle)?,
    };
    let mut roots = RootCertStore::empty();
    // What is no authority may still be the certificate of the hook itself.
    roots.add_parsable_certificates(authorities.iter().cloned());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
    Ok(Arc::new(BundleVerifier {
        authorities,
        inner: verifier.build().map_err(Error::Verifier)?,
    }))
}

fn certificates(bundle: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bundle).collect();
    match read.map_err(Error::Bundle)? {
        none if none.is_empty() => Err(Error::NoCertificates),
        some => Ok(some),
    }
}

/// Read once: a machine's authorities change with its packages, and then servers are restarted.
fn system_authorities() -> &'static [CertificateDer<'static>] {
    static READ: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    READ.get_or_init(|| {
        let mut bundles = SYSTEM_BUNDLES.iter().map(std::fs::read);
        let bundle = bundles.find_map(Result::ok).unwrap_or_default();
        let read = CertificateDer::pem_slice_iter(&bundle);
        read.filter_map(Result::ok).collect()
    })
}

/// As the usual check, and believes a certificate that is itself in the bundle: Go's client does, and
/// many hooks have a self-signed one that calls itself an authority.
#[derive(Debug)]
struct BundleVerifier {
    authorities: Vec<CertificateDer<'static>>,
    inner: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let usual = self
            .inner
            .verify_server_cert(certificate, intermediates, name, ocsp, now);
        let is_in_bundle = self.authorities.iter().any(|known| known == certificate);
        let is_about_issuer = matches!(
            &usual,
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Other(_) | CertificateError::UnknownIssuer
            ))
        );
        if !is_in_bundle || !is_about_issuer {
            return usual;
        }
        check_validity(certificate, now)?;
        rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let validity = api::certificate::validity(certificate)
        .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let at = |seconds: i64| {
        let seconds = u64::try_from(seconds).unwrap_or_default();
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
    };
    let wrong = if seconds < *validity.start() {
        CertificateError::NotValidYetContext {
            time: now,
            not_before: at(*validity.start()),
        }
    } else if seconds > *validity.end() {
        CertificateError::ExpiredContext {
            time: now,
            not_after: at(*validity.end()),
        }
    } else {
        return Ok(());
    };
    Err(wrong.into())
}
