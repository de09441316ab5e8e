//! Requests that a node makes for itself in addition to that for its kubelet's client certificate: what its
//! kubelet serves with, and the certificates of its service proxy and of its local-path volumes.
//! Upstream leaves the former to an administrator and gets the latter from elsewhere. Pure.

use std::net::IpAddr;

use x509_parser::extensions::{GeneralName, SubjectAlternativeName};
use x509_parser::prelude::FromDer;

use api::certificate::Request;

use super::request;

/// Who asks, as the API server found out, and what for.
pub struct Asked<'a> {
    pub user: &'a str,
    pub groups: &'a [String],
    pub signer: &'a str,
    pub usages: &'a [String],
    pub request: &'a Request,
}

/// The addresses that are known.
pub struct Addresses {
    /// Those of the Node that asks.
    pub own: Vec<IpAddr>,
    /// Those of other Nodes and of API servers, for which the node gets no certificate.
    pub others: Vec<IpAddr>,
}

/// The node that asks, if it is one that asks for something other than its kubelet's identity.
pub fn node_of<'a>(asked: &Asked<'a>) -> Option<&'a str> {
    let is_node = asked.groups.iter().any(|group| group == "system:nodes");
    let name = asked.user.strip_prefix("system:node:");
    name.filter(|_| is_node && asked.signer != request::KUBELET_CLIENT)
}

/// The words of the approval, if the node may have what it asks for.
pub fn approval(asked: &Asked<'_>, addresses: &Addresses) -> Option<&'static str> {
    let node = node_of(asked)?;
    request::check(asked.request, asked.signer, asked.usages).ok()?;
    match asked.signer {
        request::KUBELET_SERVING => {
            let own = asked.request.subject.common_name == asked.user;
            (own && may_serve_as(asked.request, node, addresses)).then_some(
                "Auto approving a kubelet serving certificate for the node's own addresses.",
            )
        }
        request::API_CLIENT => is_part_of(asked.request, node)
            .then_some("Auto approving a client certificate for a part of the node itself."),
        _ => None,
    }
}

/// The node's service proxy, or what looks after its local-path volumes.
fn is_part_of(request: &Request, node: &str) -> bool {
    let subject = (
        request.subject.common_name.as_str(),
        request.subject.organizations.as_slice(),
    );
    let is_proxy =
        subject.0 == "system:kube-proxy" && *subject.1 == [format!("system:coracle:node:{node}")];
    let is_local_path = subject.0 == format!("system:coracle:local-path:{node}")
        && *subject.1 == ["system:coracle:local-path-nodes".to_string()];
    (is_proxy || is_local_path) && request.alternative_names.is_none()
}

/// Whether every name is the node's, and every address is its own and of no other node.
fn may_serve_as(request: &Request, node: &str, addresses: &Addresses) -> bool {
    let Some(bytes) = &request.alternative_names else {
        return false;
    };
    let Ok((rest, names)) = SubjectAlternativeName::from_der(bytes) else {
        return false;
    };
    rest.is_empty()
        && names.general_names.iter().all(|name| match name {
            GeneralName::DNSName(name) => *name == node,
            GeneralName::IPAddress(bytes) => address(bytes).is_some_and(|address| {
                !address.is_loopback()
                    && addresses.own.contains(&address)
                    && !addresses.others.contains(&address)
            }),
            _ => false,
        })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(bytes));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(user: &str, groups: &[&str], names: &[&str]) -> Request {
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        let subject = &mut parameters.distinguished_name;
        *subject = rcgen::DistinguishedName::new();
        for group in groups {
            subject.push(rcgen::DnType::OrganizationName, *group);
        }
        subject.push(rcgen::DnType::CommonName, user);
        let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
        Request::parse(pem.as_bytes()).unwrap()
    }

    fn is_approved(asker: &str, signer: &str, purpose: &str, request: &Request) -> bool {
        let asked = Asked {
            user: asker,
            groups: &["system:nodes".to_string()],
            signer,
            usages: &["digital signature".to_string(), purpose.to_string()],
            request,
        };
        let addresses = Addresses {
            own: vec!["192.0.2.7".parse().unwrap(), "192.0.2.1".parse().unwrap()],
            others: vec!["192.0.2.1".parse().unwrap()],
        };
        approval(&asked, &addresses).is_some()
    }

    #[test]
    fn a_node_may_serve_under_its_own_name_and_addresses_only() {
        let check = |user: &str, names: &[&str]| {
            let request = request(user, &["system:nodes"], names);
            is_approved(
                "system:node:n",
                request::KUBELET_SERVING,
                "server auth",
                &request,
            )
        };
        assert!(check("system:node:n", &["n", "192.0.2.7"]));
        assert!(!check("system:node:other", &["n", "192.0.2.7"]));
        assert!(!check("system:node:n", &["kubernetes", "192.0.2.7"]));
        assert!(
            !check("system:node:n", &["n", "192.0.2.8"]),
            "not its address"
        );
        assert!(
            !check("system:node:n", &["n", "192.0.2.1"]),
            "another's, too"
        );
        assert!(!check("system:node:n", &["n", "127.0.0.1"]));
        assert!(!check("system:node:n", &[]));
    }

    #[test]
    fn a_node_gets_certificates_for_its_own_names_and_addresses_only() {
        let check = |user: &str, groups: &[&str]| {
            let request = request(user, groups, &[]);
            is_approved(
                "system:node:n",
                request::API_CLIENT,
                "client auth",
                &request,
            )
        };
        assert!(check("system:kube-proxy", &["system:coracle:node:n"]));
        assert!(check(
            "system:coracle:local-path:n",
            &["system:coracle:local-path-nodes"]
        ));
        assert!(!check("system:kube-proxy", &[]), "it could not be revoked");
        assert!(!check("system:kube-proxy", &["system:coracle:node:other"]));
        assert!(!check(
            "system:kube-proxy",
            &["system:coracle:node:n", "system:masters"]
        ));
        assert!(!check(
            "system:coracle:local-path:other",
            &["system:coracle:local-path-nodes"]
        ));
        assert!(!check("kubernetes-admin", &["system:masters"]));
        let admin = request("system:kube-proxy", &["system:coracle:node:n"], &[]);
        assert!(!is_approved(
            "somebody",
            request::API_CLIENT,
            "client auth",
            &admin
        ));
    }
}
