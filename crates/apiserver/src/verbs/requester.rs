//! Whose request it was, in the kinds that record it.

use api::{Resource, Value};

use crate::server::Context;

/// Puts the caller into a CertificateSigningRequest, whatever the caller wrote there.
pub(crate) fn record(context: &Context, resource: &Resource, object: &mut Value) {
    if (&*resource.group, &*resource.kind) != ("certificates.k8s.io", "CertificateSigningRequest") {
        return;
    }
    let identity = &context.identity;
    for name in ["username", "uid", "groups", "extra"] {
        object.remove(&["spec", name]);
    }
    object.set(&["spec", "username"], identity.user.as_str());
    if !identity.uid.is_empty() {
        object.set(&["spec", "uid"], identity.uid.as_str());
    }
    if !identity.groups.is_empty() {
        object.set(&["spec", "groups"], api::document!(identity.groups));
    }
    if !identity.extra.is_empty() {
        object.set(&["spec", "extra"], api::document!(identity.extra));
    }
}
