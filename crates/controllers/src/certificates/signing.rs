//! Makes an X.509 certificate from a checked request: subject, key and alternative names are taken
//! over byte for byte, the rest is ours. ECDSA P-256, which is what the cluster's authority has.

use api::certificate::Request;
use base64::Engine;
use environment::Environment;
use jiff::Timestamp;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::Authority;

/// The longest a certificate is valid for, and what it is valid for unless asked otherwise.
const LONGEST_SECONDS: i64 = 365 * 24 * 3600;
const SHORTEST_SECONDS: i64 = 600;
/// For clocks that are behind ours.
const BACKDATE_SECONDS: i64 = 300;
const ECDSA_WITH_SHA256: &[u64] = &[1, 2, 840, 10045, 4, 3, 2];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the authority's certificate: {0}")]
    Certificate(String),
    #[error("the authority's key: {0}")]
    Key(String),
    #[error("invalid usage: {0}")]
    Usage(String),
    #[error("signing failed")]
    Signing,
}

/// An authority that is ready to sign.
pub struct Signer {
    key: EcdsaKeyPair,
    subject: Vec<u8>,
    key_identifier: Option<Vec<u8>>,
    not_after: i64,
}

impl Signer {
    pub fn new(authority: &Authority) -> Result<Signer, Error> {
        let wrong = |error: String| Error::Certificate(error);
        let (_, block) = x509_parser::pem::parse_x509_pem(authority.certificate_pem.as_bytes())
            .map_err(|error| wrong(error.to_string()))?;
        let (_, certificate) =
            X509Certificate::from_der(&block.contents).map_err(|error| wrong(error.to_string()))?;
        let key_identifier = certificate
            .extensions()
            .iter()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
                _ => None,
            });
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(authority.key_pem.as_bytes())
            .map_err(|error| Error::Key(error.to_string()))?;
        let random = ring::rand::SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_ASN1_SIGNING,
            pkcs8.secret_pkcs8_der(),
            &random,
        )
        .map_err(|error| Error::Key(error.to_string()))?;
        Ok(Signer {
            key,
            subject: certificate.subject().as_raw().to_vec(),
            key_identifier,
            not_after: certificate.validity().not_after.timestamp(),
        })
    }

    /// The certificate as PEM.
    pub fn sign(
        &self,
        request: &Request,
        usages: &[String],
        expiration_seconds: Option<i32>,
        environment: &Environment,
    ) -> Result<String, Error> {
        let now = environment.now().as_second();
        let lasting = expiration_seconds
            .map_or(LONGEST_SECONDS, i64::from)
            .clamp(SHORTEST_SECONDS, LONGEST_SECONDS);
        let until = (now + lasting - BACKDATE_SECONDS).min(self.not_after);
        let algorithm = sequence(&[object_identifier(ECDSA_WITH_SHA256)]);
        let body = sequence(&[
            // Version 3.
            tagged(0xa0, &integer(&[2])),
            integer(&serial(environment)),
            algorithm.clone(),
            self.subject.clone(),
            sequence(&[time(now - BACKDATE_SECONDS), time(until)]),
            request.subject_der.clone(),
            request.public_key.clone(),
            tagged(0xa3, &self.extensions(request, usages)?),
        ]);
        let random = ring::rand::SystemRandom::new();
        let signature = self.key.sign(&random, &body).map_err(|_| Error::Signing)?;
        let mut bits = vec![0];
        bits.extend_from_slice(signature.as_ref());
        let certificate = sequence(&[body, algorithm, tagged(0x03, &bits)]);
        Ok(pem(&certificate))
    }

    fn extensions(&self, request: &Request, usages: &[String]) -> Result<Vec<u8>, Error> {
        let (bits, purposes) = split_usages(usages)?;
        let mut all = Vec::new();
        if bits != 0 {
            all.push(extension(&[2, 5, 29, 15], true, key_usage(bits)));
        }
        if !purposes.is_empty() {
            let list: Vec<Vec<u8>> = purposes
                .iter()
                .map(|purpose| object_identifier(&[1, 3, 6, 1, 5, 5, 7, 3, *purpose]))
                .collect();
            all.push(extension(&[2, 5, 29, 37], false, sequence(&list)));
        }
        // Not an authority.
        all.push(extension(&[2, 5, 29, 19], true, sequence(&[])));
        if let Some(identifier) = &self.key_identifier {
            let identifier = sequence(&[tagged(0x80, identifier)]);
            all.push(extension(&[2, 5, 29, 35], false, identifier));
        }
        if let Some(names) = &request.alternative_names {
            all.push(extension(&[2, 5, 29, 17], false, names.clone()));
        }
        Ok(sequence(&all))
    }
}

/// Key usage as a bit mask (bit n is usage n), and the last numbers of the extended purposes.
fn split_usages(usages: &[String]) -> Result<(u16, Vec<u64>), Error> {
    let (mut bits, mut purposes) = (0u16, Vec::new());
    for usage in usages {
        match usage.as_str() {
            "signing" | "digital signature" => bits |= 1,
            "content commitment" => bits |= 1 << 1,
            "key encipherment" => bits |= 1 << 2,
            "data encipherment" => bits |= 1 << 3,
            "key agreement" => bits |= 1 << 4,
            "cert sign" => bits |= 1 << 5,
            "crl sign" => bits |= 1 << 6,
            "encipher only" => bits |= 1 << 7,
            "decipher only" => bits |= 1 << 8,
            "server auth" => purposes.push(1),
            "client auth" => purposes.push(2),
            "code signing" => purposes.push(3),
            "email protection" | "s/mime" => purposes.push(4),
            "ipsec end system" => purposes.push(5),
            "ipsec tunnel" => purposes.push(6),
            "ipsec user" => purposes.push(7),
            "timestamping" => purposes.push(8),
            "ocsp signing" => purposes.push(9),
            other => return Err(Error::Usage(other.to_string())),
        }
    }
    purposes.sort_unstable();
    purposes.dedup();
    Ok((bits, purposes))
}

/// 127 random bits that begin with a one: positive, and never shortened.
fn serial(environment: &Environment) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&environment.random_u64().to_be_bytes());
    bytes[8..].copy_from_slice(&environment.random_u64().to_be_bytes());
    bytes[0] = bytes[0] & 0x3f | 0x40;
    bytes
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..=127 => out.push(length as u8),
        length => {
            let bytes = length.to_be_bytes();
            let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(7);
            out.push(0x80 | (bytes.len() - first) as u8);
            out.extend_from_slice(&bytes[first..]);
        }
    }
    out.extend_from_slice(content);
    out
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    tagged(0x30, &parts.concat())
}

fn integer(bytes: &[u8]) -> Vec<u8> {
    tagged(0x02, bytes)
}

fn object_identifier(numbers: &[u64]) -> Vec<u8> {
    let mut content = vec![(numbers[0] * 40 + numbers[1]) as u8];
    for number in &numbers[2..] {
        let mut groups = vec![(number & 0x7f) as u8];
        let mut rest = number >> 7;
        while rest > 0 {
            groups.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        content.extend(groups.iter().rev());
    }
    tagged(0x06, &content)
}

fn extension(identifier: &[u64], critical: bool, value: Vec<u8>) -> Vec<u8> {
    let mut parts = vec![object_identifier(identifier)];
    if critical {
        parts.push(tagged(0x01, &[0xff]));
    }
    parts.push(tagged(0x04, &value));
    sequence(&parts)
}

/// Usage n is the n-th bit from the left; trailing zero bits are not written.
fn key_usage(bits: u16) -> Vec<u8> {
    let reversed = bits.reverse_bits().to_be_bytes();
    let bytes = match reversed[1] {
        0 => &reversed[..1],
        _ => &reversed[..],
    };
    let unused = bytes[bytes.len() - 1].trailing_zeros() as u8;
    let mut content = vec![unused];
    content.extend_from_slice(bytes);
    tagged(0x03, &content)
}

/// UTCTime until 2049, GeneralizedTime after it, as X.509 demands.
fn time(second: i64) -> Vec<u8> {
    let at = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
    let text = at.strftime("%Y%m%d%H%M%SZ").to_string();
    match text.as_str() < "2050" {
        true => tagged(0x17, &text.as_bytes()[2..]),
        false => tagged(0x18, text.as_bytes()),
    }
}

fn pem(der: &[u8]) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(der);
    let encoded = encoded.as_bytes();
    let lines: Vec<&str> = encoded
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap_or_default())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, "authority");
        parameters.not_after = rcgen::date_time_ymd(2040, 1, 1);
        Authority {
            certificate_pem: parameters.self_signed(&key).unwrap().pem(),
            key_pem: key.serialize_pem(),
        }
    }

    #[test]
    fn a_request_becomes_a_certificate_that_the_authority_vouches_for() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec!["node.example".into()]).unwrap();
        let name = &mut parameters.distinguished_name;
        name.push(rcgen::DnType::CommonName, "system:node:n");
        name.push(rcgen::DnType::OrganizationName, "system:nodes");
        let csr = parameters.serialize_request(&key).unwrap().pem().unwrap();
        let parsed = Request::parse(csr.as_bytes()).unwrap();
        assert_eq!(parsed.subject.common_name, "system:node:n");
        assert_eq!(parsed.subject.organizations, ["system:nodes"]);
        assert_eq!(parsed.dns_names, 1);

        let authority = authority();
        let environment = Environment::simulated(1, 1_767_225_600_000_000);
        let usages = ["digital signature", "key encipherment", "server auth"];
        let usages: Vec<String> = usages.iter().map(|usage| usage.to_string()).collect();
        let signer = Signer::new(&authority).unwrap();
        let pem = signer
            .sign(&parsed, &usages, Some(3600), &environment)
            .unwrap();
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let (_, certificate) = X509Certificate::from_der(&block.contents).unwrap();
        let (_, issuer) =
            x509_parser::pem::parse_x509_pem(authority.certificate_pem.as_bytes()).unwrap();
        let (_, issuer) = X509Certificate::from_der(&issuer.contents).unwrap();
        certificate
            .verify_signature(Some(issuer.public_key()))
            .unwrap();
        assert_eq!(certificate.issuer(), issuer.subject());
        assert_eq!(
            certificate.subject().to_string(),
            "CN=system:node:n, O=system:nodes"
        );
        let validity = certificate.validity();
        assert_eq!(
            validity.not_after.timestamp() - validity.not_before.timestamp(),
            3600
        );
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && usage.key_encipherment() && !usage.key_cert_sign());
        let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.server_auth && !purposes.client_auth);
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 1);
        assert!(!certificate.is_ca());
    }

    #[test]
    fn a_request_with_two_common_names_is_refused() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let name = &mut parameters.distinguished_name;
        name.push(rcgen::DnType::CommonName, "system:kube-controller-manager");
        name.push(rcgen::DnType::OrganizationName, "system:nodes");
        let again = rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]);
        name.push(again, "system:node:n");
        let csr = parameters.serialize_request(&key).unwrap().pem().unwrap();
        assert_eq!(
            Request::parse(csr.as_bytes()),
            Err(api::certificate::Error::SeveralCommonNames)
        );
    }

    #[test]
    fn a_request_signed_by_another_key_is_refused() {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let mut der = parameters.serialize_request(&key).unwrap().der().to_vec();
        let last = der.len() - 1;
        der[last] ^= 1;
        let forged = pem(&der).replace("CERTIFICATE", "CERTIFICATE REQUEST");
        assert!(Request::parse(forged.as_bytes()).is_err());
    }
}
