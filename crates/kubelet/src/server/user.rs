//! The user who calls the server, and how a client certificate names them.

use api::certificate::Subject;
use rustls_pki_types::CertificateDer;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

/// The user a verified client certificate names: common name, and organizations as groups.
pub fn of_certificate(certificates: Option<&[CertificateDer<'_>]>) -> Option<User> {
    let first = certificates?.first()?;
    let Subject {
        common_name: name,
        organizations: mut groups,
    } = Subject::of_certificate(first).ok()?;
    groups.push("system:authenticated".to_owned());
    (!name.is_empty()).then_some(User { name, groups })
}
