//! The state of a certificate request, and how long it is kept. Pure.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

/// How long a request is kept after it was signed, denied or failed.
const SETTLED_SECONDS: i64 = 3600;
/// How long a request is kept that is neither approved nor denied.
const PENDING_SECONDS: i64 = 24 * 3600;

/// Whether a node asks.
pub fn is_of_a_node(csr: &CertificateSigningRequest) -> bool {
    let user = csr.spec.username.as_deref().unwrap_or_default();
    user.starts_with("system:node:")
}

/// Whether the request's condition of this type is `True`.
pub fn has_condition(csr: &CertificateSigningRequest, kind: &str) -> bool {
    let status = csr.status.as_ref();
    status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

fn is_issued(csr: &CertificateSigningRequest) -> bool {
    let certificate = csr
        .status
        .as_ref()
        .and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

/// Whether it was signed, denied or failed, so that nothing more happens to it.
pub fn is_settled(csr: &CertificateSigningRequest) -> bool {
    is_issued(csr) || has_condition(csr, "Denied") || has_condition(csr, "Failed")
}

/// How long the request is still kept.
pub fn seconds_left(csr: &CertificateSigningRequest, now: i64) -> i64 {
    let conditions = csr
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let settled = conditions
        .iter()
        .filter(|condition| condition.type_ != "Approved" || is_issued(csr))
        .filter_map(|condition| condition.last_update_time.as_ref())
        .map(|time| time.0.as_second())
        .min();
    let created = csr.metadata.creation_timestamp.as_ref();
    let created = created.map_or(now, |time| time.0.as_second());
    match (settled, conditions.is_empty()) {
        (Some(since), _) => since + SETTLED_SECONDS - now,
        (None, true) => created + PENDING_SECONDS - now,
        // Approved and waiting for a signer that is not us.
        (None, false) => SETTLED_SECONDS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csr(status: serde_json::Value) -> CertificateSigningRequest {
        serde_json::from_value(serde_json::json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"request": "", "signerName": "x"}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn old_requests_are_deleted_after_an_hour_or_a_day() {
        let at = "1970-01-01T01:00:00Z";
        let condition = |kind: &str| serde_json::json!([{"type": kind, "status": "True", "lastUpdateTime": at}]);
        assert_eq!(seconds_left(&csr(serde_json::json!({})), 0), 24 * 3600);
        let denied = csr(serde_json::json!({"conditions": condition("Denied")}));
        assert_eq!(seconds_left(&denied, 3600), 3600);
        let approved = csr(serde_json::json!({"conditions": condition("Approved")}));
        assert_eq!(seconds_left(&approved, 100_000), 3600);
        let issued = csr(serde_json::json!({
            "conditions": condition("Approved"), "certificate": "YQ=="}));
        assert_eq!(seconds_left(&issued, 7200), 0);
        assert!(is_settled(&issued) && is_settled(&denied) && !is_settled(&approved));
    }
}
