//! What a certificate request asks for, and whether its signer may give it. Pure.

use std::collections::BTreeSet;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

pub const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// The parts of a request that matter, some as the bytes they were.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: usize,
    pub addresses: usize,
    pub emails: usize,
    pub uris: usize,
    /// DER of the subject and of the public key with its algorithm.
    pub subject: Vec<u8>,
    pub public_key: Vec<u8>,
    /// DER of the alternative names.
    pub alternative_names: Option<Vec<u8>>,
}

/// Reads a request and checks that whoever made it holds the key.
pub fn parse(pem: &[u8]) -> Result<Request, String> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|error| error.to_string())?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err("PEM block type must be CERTIFICATE REQUEST".to_string());
    }
    let (_, csr) =
        X509CertificationRequest::from_der(&block.contents).map_err(|error| error.to_string())?;
    csr.verify_signature()
        .map_err(|error| format!("unable to verify certificate request signature: {error}"))?;
    let info = &csr.certification_request_info;
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        value.as_str().unwrap_or_default().to_string()
    };
    let mut request = Request {
        common_name: info
            .subject
            .iter_common_name()
            .last()
            .map(text)
            .unwrap_or_default(),
        organizations: info.subject.iter_organization().map(text).collect(),
        subject: info.subject.as_raw().to_vec(),
        public_key: info.subject_pki.raw.to_vec(),
        ..Request::default()
    };
    for attribute in info.iter_attributes() {
        let x509_parser::cri_attributes::ParsedCriAttribute::ExtensionRequest(extensions) =
            attribute.parsed_attribute()
        else {
            continue;
        };
        for extension in &extensions.extensions {
            if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                request.alternative_names = Some(extension.value.to_vec());
                for name in &names.general_names {
                    match name {
                        GeneralName::DNSName(_) => request.dns_names += 1,
                        GeneralName::IPAddress(_) => request.addresses += 1,
                        GeneralName::RFC822Name(_) => request.emails += 1,
                        GeneralName::URI(_) => request.uris += 1,
                        _ => {}
                    }
                }
            }
        }
    }
    Ok(request)
}

/// Whether the signer's rules allow it; the message is what the request's status will say.
pub fn check(request: &Request, signer: &str, usages: &[String]) -> Result<(), String> {
    match signer {
        KUBELET_CLIENT => {
            check_node_subject_organization(request)?;
            for (count, what) in [
                (request.dns_names, "DNS"),
                (request.emails, "Email"),
                (request.addresses, "IP"),
                (request.uris, "URI"),
            ] {
                if count > 0 {
                    return Err(format!("{what} subjectAltNames are not allowed"));
                }
            }
            check_common_name(request)?;
            check_usages(usages, "client auth")
        }
        KUBELET_SERVING => {
            check_node_subject_organization(request)?;
            if request.dns_names + request.addresses == 0 {
                return Err("DNS or IP subjectAltName is required".to_string());
            }
            for (count, what) in [(request.emails, "Email"), (request.uris, "URI")] {
                if count > 0 {
                    return Err(format!("{what} subjectAltNames are not allowed"));
                }
            }
            check_usages(usages, "server auth")?;
            check_common_name(request)
        }
        API_CLIENT => {
            for usage in usages {
                if !matches!(
                    usage.as_str(),
                    "digital signature" | "key encipherment" | "client auth"
                ) {
                    return Err(format!("invalid usage for client certificate: {usage}"));
                }
            }
            match usages.iter().any(|usage| usage == "client auth") {
                true => Ok(()),
                false => {
                    Err("missing required usage for client certificate: client auth".to_string())
                }
            }
        }
        _ => Ok(()),
    }
}

fn check_node_subject_organization(request: &Request) -> Result<(), String> {
    match request.organizations == ["system:nodes"] {
        true => Ok(()),
        false => Err("subject organization is not system:nodes".to_string()),
    }
}

fn check_common_name(request: &Request) -> Result<(), String> {
    match request.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".to_string()),
    }
}

fn check_usages(usages: &[String], purpose: &str) -> Result<(), String> {
    let given: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let needed: BTreeSet<&str> = ["digital signature", purpose].into();
    let with_rsa: BTreeSet<&str> = ["digital signature", "key encipherment", purpose].into();
    match given == needed || given == with_rsa {
        true => Ok(()),
        false => {
            let mut names: Vec<&str> = with_rsa.into_iter().collect();
            names.sort_unstable();
            Err(format!("usages did not match [{}]", names.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Request {
        Request {
            common_name: "system:node:n".into(),
            organizations: vec!["system:nodes".into()],
            ..Request::default()
        }
    }

    fn usages(list: &[&str]) -> Vec<String> {
        list.iter().map(|usage| usage.to_string()).collect()
    }

    #[test]
    fn signers_have_rules() {
        let client = usages(&["digital signature", "client auth"]);
        let server = usages(&["digital signature", "server auth"]);
        let failure = |request: &Request, signer: &str, usages: &[String]| {
            check(request, signer, usages).err().unwrap_or_default()
        };
        assert_eq!(failure(&node(), KUBELET_CLIENT, &client), "");
        assert_eq!(
            failure(&node(), KUBELET_CLIENT, &server),
            "usages did not match [client auth digital signature key encipherment]"
        );
        assert_eq!(
            failure(&node(), KUBELET_SERVING, &server),
            "DNS or IP subjectAltName is required"
        );
        let serving = Request {
            addresses: 1,
            ..node()
        };
        assert_eq!(failure(&serving, KUBELET_SERVING, &server), "");
        assert_eq!(
            failure(&serving, KUBELET_CLIENT, &client),
            "IP subjectAltNames are not allowed"
        );
        let stranger = Request::default();
        assert_eq!(failure(&stranger, API_CLIENT, &client), "");
        assert_eq!(
            failure(&stranger, API_CLIENT, &server),
            "invalid usage for client certificate: server auth"
        );
        assert_eq!(
            failure(&stranger, KUBELET_CLIENT, &client),
            "subject organization is not system:nodes"
        );
        assert_eq!(failure(&stranger, LEGACY, &[]), "");
    }
}
