//! The one reading of certificates and of requests for them: who the subject is, and which names a
//! request asks for. The API server, the signer and the kubelet all use it, so that nobody believes
//! what somebody else has not checked. A value that can be read in two ways is refused.

use x509_parser::certification_request::{X509CertificationRequest, X509CertificationRequestInfo};
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Why a certificate or a request is not believed.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NotARequest,
    #[error("asn1: syntax error: data truncated")]
    Syntax,
    #[error("asn1: syntax error: trailing data")]
    TrailingData,
    #[error("{0}")]
    Signature(x509_parser::error::X509Error),
    #[error("the subject has more than one common name")]
    SeveralCommonNames,
    #[error("the subject has a {0} that is not readable text")]
    UnreadableName(&'static str),
    #[error("x509: certificate request contains duplicate requested extensions")]
    DuplicateExtensions,
    #[error("x509: the requested subjectAltName cannot be read")]
    AlternativeNames,
}

impl Error {
    /// Whether only the subject is at fault.
    pub fn is_about_subject(&self) -> bool {
        matches!(self, Error::SeveralCommonNames | Error::UnreadableName(_))
    }
}

/// Whom a certificate is for: a user and their groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// "" where there is none.
    pub common_name: String,
    /// In the order they are written.
    pub organizations: Vec<String>,
}

/// What a certificate request asks for, some of it as the bytes it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub subject: Subject,
    pub dns_names: usize,
    pub addresses: usize,
    pub emails: usize,
    pub uris: usize,
    /// Alternative names of any other kind.
    pub other_names: usize,
    /// DER of the subject and of the public key with its algorithm.
    pub subject_der: Vec<u8>,
    pub public_key: Vec<u8>,
    /// DER of the alternative names.
    pub alternative_names: Option<Vec<u8>>,
}

impl Subject {
    /// The subject of a certificate in DER.
    pub fn of_certificate(der: &[u8]) -> Result<Subject, Error> {
        match X509Certificate::from_der(der) {
            Ok(([], certificate)) => Subject::read(certificate.subject()),
            Ok(_) => Err(Error::TrailingData),
            Err(_) => Err(Error::Syntax),
        }
    }

    fn read(name: &X509Name<'_>) -> Result<Subject, Error> {
        let mut common_names = name.iter_common_name();
        let common_name = match (common_names.next(), common_names.next()) {
            (None, _) => String::new(),
            (Some(only), None) => text(only, "common name")?,
            (Some(_), Some(_)) => return Err(Error::SeveralCommonNames),
        };
        let organizations = name.iter_organization();
        Ok(Subject {
            common_name,
            organizations: organizations
                .map(|organization| text(organization, "organization"))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// When a certificate in DER begins to be valid, in seconds since the epoch.
pub fn not_before(der: &[u8]) -> Result<i64, Error> {
    match X509Certificate::from_der(der) {
        Ok((_, certificate)) => Ok(certificate.validity().not_before.timestamp()),
        Err(_) => Err(Error::Syntax),
    }
}

/// The first and the last second, since the epoch, in which a certificate in DER is valid.
pub fn validity(der: &[u8]) -> Result<std::ops::RangeInclusive<i64>, Error> {
    match X509Certificate::from_der(der) {
        Ok((_, certificate)) => {
            let validity = certificate.validity();
            Ok(validity.not_before.timestamp()..=validity.not_after.timestamp())
        }
        Err(_) => Err(Error::Syntax),
    }
}

/// Only the types of text that everybody reads in the same way, and nothing that hides in it.
fn text(value: &AttributeTypeAndValue<'_>, what: &'static str) -> Result<String, Error> {
    let readable = value.as_str().ok();
    let readable = readable.filter(|text| !text.chars().any(char::is_control));
    readable
        .map(str::to_string)
        .ok_or(Error::UnreadableName(what))
}

impl Request {
    /// Reads a request in PEM and checks that whoever made it holds the key. Anything before the
    /// first block is a comment, anything after it is not looked at.
    pub fn parse(pem: &[u8]) -> Result<Request, Error> {
        let block = Pem::iter_from_buffer(pem).next();
        let block = block.and_then(Result::ok).ok_or(Error::NotARequest)?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err(Error::NotARequest);
        }
        let request = match X509CertificationRequest::from_der(&block.contents) {
            Ok(([], request)) => request,
            Ok(_) => return Err(Error::TrailingData),
            Err(_) => return Err(Error::Syntax),
        };
        request.verify_signature().map_err(Error::Signature)?;
        Request::read(&request.certification_request_info)
    }

    fn read(info: &X509CertificationRequestInfo<'_>) -> Result<Request, Error> {
        let mut request = Request {
            subject: Subject::read(&info.subject)?,
            subject_der: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            ..Request::default()
        };
        let mut seen = Vec::new();
        for attribute in info.iter_attributes() {
            let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute()
            else {
                continue;
            };
            for extension in &requested.extensions {
                if seen.contains(&&extension.oid) {
                    return Err(Error::DuplicateExtensions);
                }
                seen.push(&extension.oid);
                if extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME {
                    request.take_names(extension)?;
                }
            }
        }
        Ok(request)
    }

    fn take_names(&mut self, extension: &X509Extension<'_>) -> Result<(), Error> {
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
            return Err(Error::AlternativeNames);
        };
        self.alternative_names = Some(extension.value.to_vec());
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(_) => self.dns_names += 1,
                GeneralName::IPAddress(octets) if matches!(octets.len(), 4 | 16) => {
                    self.addresses += 1;
                }
                GeneralName::RFC822Name(_) => self.emails += 1,
                GeneralName::URI(_) => self.uris += 1,
                GeneralName::IPAddress(_) | GeneralName::Invalid(..) => {
                    return Err(Error::AlternativeNames);
                }
                _ => self.other_names += 1,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value in DER.
    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let mut out = vec![tag];
        match content.len() {
            length @ 0..=127 => out.push(length as u8),
            length => out.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        out.extend(content);
        out
    }

    const COMMON_NAME: u8 = 3;
    const ORGANIZATION: u8 = 10;
    const UTF8: u8 = 0x0c;
    const PRINTABLE: u8 = 0x13;
    const BMP: u8 = 0x1e;

    fn attribute(kind: u8, string: u8, text: &[u8]) -> Vec<u8> {
        let identifier = der(0x06, &[&[0x55, 0x04, kind]]);
        der(0x30, &[&identifier, &der(string, &[text])])
    }

    /// A name of sets of attributes.
    fn name(sets: &[&[Vec<u8>]]) -> Vec<u8> {
        let sets: Vec<Vec<u8>> = sets
            .iter()
            .map(|set| {
                let parts: Vec<&[u8]> = set.iter().map(Vec::as_slice).collect();
                der(0x31, &parts)
            })
            .collect();
        let parts: Vec<&[u8]> = sets.iter().map(Vec::as_slice).collect();
        der(0x30, &parts)
    }

    fn read(sets: &[&[Vec<u8>]]) -> Result<Subject, Error> {
        let der = name(sets);
        let (_, name) = X509Name::from_der(&der).unwrap();
        Subject::read(&name)
    }

    #[test]
    fn a_subject_is_its_one_common_name_and_all_organizations_in_order() {
        let subject = read(&[
            &[attribute(ORGANIZATION, PRINTABLE, b"b")],
            &[
                attribute(COMMON_NAME, UTF8, "jané".as_bytes()),
                attribute(ORGANIZATION, UTF8, b"a"),
            ],
        ]);
        let subject = subject.unwrap();
        assert_eq!(subject.common_name, "jané");
        assert_eq!(subject.organizations, ["b", "a"]);
        assert_eq!(read(&[]), Ok(Subject::default()));
    }

    #[test]
    fn several_common_names_are_refused_wherever_they_stand() {
        let (one, two) = (
            attribute(COMMON_NAME, UTF8, b"system:kube-controller-manager"),
            attribute(COMMON_NAME, PRINTABLE, b"system:node:n"),
        );
        let refused = Err(Error::SeveralCommonNames);
        let alone = std::slice::from_ref;
        assert_eq!(read(&[alone(&one), alone(&two)]), refused);
        assert_eq!(read(&[&[one.clone(), two]]), refused);
        assert_eq!(read(&[alone(&one), alone(&one)]), refused);
    }

    #[test]
    fn names_that_not_everybody_reads_alike_are_refused() {
        let masters: Vec<u8> = "system:masters"
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect();
        for (kind, what) in [(COMMON_NAME, "common name"), (ORGANIZATION, "organization")] {
            for value in [
                attribute(kind, BMP, &masters),
                attribute(kind, UTF8, b"jane\0.example"),
                attribute(kind, UTF8, b"jane\xff"),
                attribute(kind, PRINTABLE, b"jane\n"),
            ] {
                assert_eq!(read(&[&[value]]), Err(Error::UnreadableName(what)));
            }
        }
    }

    /// A request's information with these alternative names, one extension request for each.
    fn with_names(lists: &[&[u8]]) -> Result<Request, Error> {
        let identifier = der(0x06, &[&[0x55, 0x1d, 0x11]]);
        let attributes: Vec<Vec<u8>> = lists
            .iter()
            .map(|names| {
                let value = der(0x04, &[&der(0x30, &[names])]);
                let extensions = der(0x30, &[&der(0x30, &[&identifier, &value])]);
                let requested = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
                der(
                    0x30,
                    &[&der(0x06, &[&requested]), &der(0x31, &[&extensions])],
                )
            })
            .collect();
        let parts: Vec<&[u8]> = attributes.iter().map(Vec::as_slice).collect();
        let key = [
            0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
            0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
        ];
        let key = der(0x30, &[&key, &der(0x03, &[&[0, 4]])]);
        let info = der(
            0x30,
            &[&[0x02, 0x01, 0x00], &name(&[]), &key, &der(0xa0, &parts)],
        );
        let (_, info) = X509CertificationRequestInfo::from_der(&info).unwrap();
        Request::read(&info)
    }

    #[test]
    fn alternative_names_are_counted_by_kind() {
        let dns = der(0x82, &[b"n.example"]);
        let address = der(0x87, &[&[10, 0, 0, 1]]);
        let registered = der(0x88, &[&[0x2a, 0x03]]);
        let request = with_names(&[&[dns, address, registered].concat()]).unwrap();
        assert_eq!(
            (request.dns_names, request.addresses, request.other_names),
            (1, 1, 1)
        );
    }

    #[test]
    fn alternative_names_that_are_asked_for_twice_or_broken_are_refused() {
        let dns = der(0x82, &[b"n.example"]);
        assert_eq!(
            with_names(&[&dns, &der(0x87, &[&[10, 0, 0, 1]])]),
            Err(Error::DuplicateExtensions)
        );
        let broken = der(0x87, &[&[10, 0, 0]]);
        assert_eq!(with_names(&[&broken]), Err(Error::AlternativeNames));
    }

    #[test]
    fn only_the_first_block_counts_and_it_must_be_whole() {
        assert_eq!(Request::parse(b"nonsense"), Err(Error::NotARequest));
        let broken =
            "-----BEGIN CERTIFICATE REQUEST-----\nMA==\n-----END CERTIFICATE REQUEST-----\n";
        assert_eq!(Request::parse(broken.as_bytes()), Err(Error::Syntax));
        let other = broken.replace(" REQUEST", "");
        let both = format!("{other}{broken}");
        assert_eq!(Request::parse(both.as_bytes()), Err(Error::NotARequest));
    }
}
