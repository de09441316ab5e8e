//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: who may approve or
//! sign for a signer, and that nobody asks for `system:masters` this way.

use api::certificate::{self, Request};
use api::{Status, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Admitted, Operation};
use crate::authorization::Attributes;
use crate::identity::MASTERS;

const GROUP: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub(super) fn validate(admitted: &Admitted<'_>) -> Result<(), Status> {
    if !admitted.is(GROUP, "CertificateSigningRequest") {
        return Ok(());
    }
    let signer = |request: &Value| request.str_at(&["spec", "signerName"]).to_string();
    match (admitted.subresource, admitted.operation, admitted.old) {
        ("", Operation::Create, _) if signer(admitted.object) == CLIENT_SIGNER => {
            check_subject(admitted)
        }
        ("approval", Operation::Update, Some(old)) => {
            let signer = signer(old);
            match may(admitted, "approve", &signer) {
                true => Ok(()),
                false => Err(admitted.forbidden(format_args!(
                    "user not permitted to approve requests with signerName {signer:?}"
                ))),
            }
        }
        ("status", Operation::Update, Some(old)) => {
            let same = |field: &str| {
                let path = ["status", field];
                old.at(&path) == admitted.object.at(&path)
            };
            let signer = signer(old);
            match same("certificate") && same("conditions") || may(admitted, "sign", &signer) {
                true => Ok(()),
                false => Err(admitted.forbidden(format_args!(
                    "user not permitted to sign requests with signerName {signer:?}"
                ))),
            }
        }
        _ => Ok(()),
    }
}

/// By the signer's whole name, or by its domain.
fn may(admitted: &Admitted<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer.to_string(), format!("{domain}/*")]
        .into_iter()
        .any(|name| {
            let attributes = Attributes {
                verb: verb.to_string(),
                is_resource: true,
                group: GROUP.to_string(),
                resource: "signers".to_string(),
                name,
                ..Attributes::default()
            };
            let context = admitted.context;
            let authorizer = &context.server.authorizer;
            authorizer
                .allows(&context.identity, &attributes)
                .is_allowed()
        })
}

fn check_subject(admitted: &Admitted<'_>) -> Result<(), Status> {
    let request = admitted.object.str_at(&["spec", "request"]);
    match organizations(request) {
        Err(problem) => Err(admitted.forbidden(format_args!("failed to parse CSR: {problem}"))),
        Ok(groups) if groups.iter().any(|group| group == MASTERS) => Err(admitted.forbidden(
            format_args!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed"),
        )),
        Ok(_) => Ok(()),
    }
}

/// The organizations in the subject of a request in PEM, itself in base64.
fn organizations(request: &str) -> Result<Vec<String>, certificate::Error> {
    let pem = STANDARD.decode(request).unwrap_or_default();
    Ok(Request::parse(&pem)?.subject.organizations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_request_are_its_organizations() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let name = &mut parameters.distinguished_name;
        name.push(rcgen::DnType::OrganizationName, MASTERS);
        let request = parameters.serialize_request(&key).unwrap().pem().unwrap();
        assert_eq!(
            organizations(&STANDARD.encode(request)),
            Ok(vec![MASTERS.to_string()])
        );
        assert!(organizations("nonsense").is_err());
    }
}
