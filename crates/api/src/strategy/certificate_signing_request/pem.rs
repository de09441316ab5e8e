//! Certificates and certificate requests in fields: base64 of PEM.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificate::{self, Request};

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("asn1: syntax error: data truncated")]
    Asn1,
    #[error("only CERTIFICATE PEM blocks are allowed, found {0:?}")]
    NotACertificate(String),
    #[error("no PEM block headers are permitted")]
    Headers,
    #[error("must contain at least one CERTIFICATE PEM block")]
    Empty,
}

/// Checks that there is a request, signed with the key that it is for, with one reading.
pub(super) fn request(encoded: &str) -> Result<(), certificate::Error> {
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    Request::parse(&bytes).map(drop)
}

/// Checks that there are certificates and nothing else; nothing at all is fine.
pub(super) fn certificates(encoded: &str) -> Result<(), Error> {
    if encoded.is_empty() {
        return Ok(());
    }
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut found = 0;
    for block in Pem::iter_from_buffer(&bytes).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            return Err(Error::NotACertificate(block.label));
        }
        found += 1;
        X509Certificate::from_der(&block.contents).map_err(|_| Error::Asn1)?;
    }
    let headers = text.lines().any(|line| line.contains(": "));
    match found {
        0 => Err(Error::Empty),
        _ if headers => Err(Error::Headers),
        _ => Ok(()),
    }
}
