//! Whether the signer that a certificate request names may sign it. Pure.

use std::collections::BTreeSet;

use api::certificate::Request;
use thiserror::Error;

pub const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
pub const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// How a request breaks the rules of its signer. The messages are those of the request's status.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SignerViolation {
    #[error("only DNS, Email, IP and URI subjectAltNames are allowed")]
    OtherNames,
    #[error("{0} subjectAltNames are not allowed")]
    AltNames(&'static str),
    #[error("DNS or IP subjectAltName is required")]
    NoAltNames,
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    #[error("invalid usage for client certificate: {0}")]
    ClientUsage(String),
    #[error("missing required usage for client certificate: client auth")]
    NoClientUsage,
    #[error("usages did not match [{0}]")]
    Usages(String),
}

/// Whether the signer's rules allow the request.
pub fn check(request: &Request, signer: &str, usages: &[String]) -> Result<(), SignerViolation> {
    // They would be copied into the certificate although nothing has checked them.
    if request.other_names > 0 {
        return Err(SignerViolation::OtherNames);
    }
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
                    return Err(SignerViolation::AltNames(what));
                }
            }
            check_common_name(request)?;
            check_usages(usages, "client auth")
        }
        KUBELET_SERVING => {
            check_node_subject_organization(request)?;
            if request.dns_names + request.addresses == 0 {
                return Err(SignerViolation::NoAltNames);
            }
            for (count, what) in [(request.emails, "Email"), (request.uris, "URI")] {
                if count > 0 {
                    return Err(SignerViolation::AltNames(what));
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
                    return Err(SignerViolation::ClientUsage(usage.clone()));
                }
            }
            match usages.iter().any(|usage| usage == "client auth") {
                true => Ok(()),
                false => Err(SignerViolation::NoClientUsage),
            }
        }
        _ => Ok(()),
    }
}

fn check_node_subject_organization(request: &Request) -> Result<(), SignerViolation> {
    match request.subject.organizations == ["system:nodes"] {
        true => Ok(()),
        false => Err(SignerViolation::Organization),
    }
}

fn check_common_name(request: &Request) -> Result<(), SignerViolation> {
    match request.subject.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err(SignerViolation::CommonName),
    }
}

fn check_usages(usages: &[String], purpose: &str) -> Result<(), SignerViolation> {
    let given: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let needed: BTreeSet<&str> = ["digital signature", purpose].into();
    let with_rsa: BTreeSet<&str> = ["digital signature", "key encipherment", purpose].into();
    match given == needed || given == with_rsa {
        true => Ok(()),
        false => {
            let mut names: Vec<&str> = with_rsa.into_iter().collect();
            names.sort_unstable();
            Err(SignerViolation::Usages(names.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use api::certificate::Subject;

    use super::*;

    fn node() -> Request {
        let subject = Subject {
            common_name: "system:node:n".into(),
            organizations: vec!["system:nodes".into()],
        };
        Request {
            subject,
            ..Request::default()
        }
    }

    fn usages(list: &[&str]) -> Vec<String> {
        list.iter().map(|usage| usage.to_string()).collect()
    }

    #[test]
    fn requests_are_checked_by_the_rules_of_their_signer() {
        let client = usages(&["digital signature", "client auth"]);
        let server = usages(&["digital signature", "server auth"]);
        let failure = |request: &Request, signer: &str, usages: &[String]| {
            let checked = check(request, signer, usages);
            checked.map_or_else(|violation| violation.to_string(), |()| String::new())
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
        let other = Request {
            other_names: 1,
            ..node()
        };
        assert_eq!(
            failure(&other, KUBELET_CLIENT, &client),
            "only DNS, Email, IP and URI subjectAltNames are allowed"
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
