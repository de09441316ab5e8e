//! CertificateSigningRequests: what is asked, and what approvers and signers answer.

use std::collections::BTreeMap;

use crate::age::{human, object_age};
use crate::document::Value;
use crate::field::{FieldError, Path, quote};
use crate::metadata::names::{self, NameRule};
use crate::repeats::{Seen, repeats};
use crate::resource::{MetadataChecks, Requester, Strategy, generic};

mod pem;

/// In the order in which upstream lists them.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

pub struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    fn namespaced(&self) -> bool {
        false
    }

    /// What the caller wrote there.
    fn record_requester(&self, object: &mut Value, requester: &Requester<'_>) {
        for name in ["username", "uid", "groups", "extra"] {
            object.remove(&["spec", name]);
        }
        object.set(&["spec", "username"], requester.user);
        if !requester.uid.is_empty() {
            object.set(&["spec", "uid"], requester.uid);
        }
        if !requester.groups.is_empty() {
            object.set(&["spec", "groups"], crate::document!(requester.groups));
        }
        if !requester.extra.is_empty() {
            object.set(&["spec", "extra"], crate::document!(requester.extra));
        }
    }

    /// Where upstream's own type counts without a pointer, there is a zero to be seen.
    fn fill_empty(&self, object: &mut Value) {
        object.set(&["spec", "request"], Value::Null);
    }

    /// Its name has no rules of its own.
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn has_status(&self) -> bool {
        true
    }

    fn prepare_update_content(&self, new: &mut Value, old: &Value, subresource: &str) {
        match subresource {
            "" => generic::keep_field(new, old, &["spec"]),
            "status" => {
                for kind in ["Approved", "Denied"] {
                    keep_conditions(new, old, kind);
                }
            }
            "approval" => {
                let conditions = new.at(&["status", "conditions"]).cloned();
                generic::keep_field(new, old, &["spec"]);
                generic::keep_field(new, old, &["status"]);
                match conditions {
                    Some(conditions) => new.set(&["status", "conditions"], conditions),
                    None => drop(new.remove(&["status", "conditions"])),
                }
            }
            _ => {}
        }
    }

    fn stamp(&self, new: &mut Value, old: Option<&Value>, subresource: &str, now: &str) {
        let (Some(old), "status" | "approval") = (old, subresource) else {
            return;
        };
        // Of several equal conditions the first one counts.
        let mut times: BTreeMap<[String; 2], &str> = BTreeMap::new();
        let key = |one: &Value| ["type", "status"].map(|name| one.str_at(&[name]).to_string());
        for one in old.list_at(&["status", "conditions"]) {
            let time = one.str_at(&["lastTransitionTime"]);
            if !time.is_empty() {
                times.entry(key(one)).or_insert(time);
            }
        }
        for condition in new.list_at_mut(&["status", "conditions"]) {
            condition.set_default(&["lastUpdateTime"], now);
            let time = times.get(&key(condition)).copied().unwrap_or(now);
            condition.set_default(&["lastTransitionTime"], time);
        }
    }

    fn validate_content(&self, object: &Value) -> Vec<FieldError> {
        validate(object, None)
    }

    fn validate_update_content(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        let mut errors = validate(new, Some(old));
        changes(new, old, subresource, &mut errors);
        errors
    }

    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::BOTH
    }

    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields = generic::metadata_fields(object, false);
        let signer = object.str_at(&["spec", "signerName"]).to_string();
        fields.push(("spec.signerName", signer));
        fields
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let signer = match object.str_at(&["spec", "signerName"]) {
            "" => "<none>",
            name => name,
        };
        let duration = match object.i64_at(&["spec", "expirationSeconds"]) {
            Some(seconds) => human(seconds),
            None => "<none>".to_string(),
        };
        vec![
            object.str_at(&["metadata", "name"]).into(),
            object_age(object, now).into(),
            signer.into(),
            object.str_at(&["spec", "username"]).into(),
            duration.into(),
            condition_words(object).into(),
        ]
    }
}

fn of_type<'a>(object: &'a Value, kind: &str) -> Vec<&'a Value> {
    let conditions = object.list_at(&["status", "conditions"]).iter();
    conditions
        .filter(|condition| condition.str_at(&["type"]) == kind)
        .collect()
}

/// Signers may not touch what approvers said.
fn keep_conditions(new: &mut Value, old: &Value, kind: &str) {
    let kept: Vec<Value> = of_type(old, kind).into_iter().cloned().collect();
    if kept.len() != of_type(new, kind).len() {
        return;
    }
    let mut kept = kept.into_iter();
    for condition in new.list_at_mut(&["status", "conditions"]) {
        if condition.str_at(&["type"]) == kind
            && let Some(old) = kept.next()
        {
            *condition = old;
        }
    }
}

fn condition_words(object: &Value) -> String {
    let has = |kind: &str| !of_type(object, kind).is_empty();
    let mut words = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_string();
    if has("Failed") {
        words.push_str(",Failed");
    }
    if !object.str_at(&["status", "certificate"]).is_empty() {
        words.push_str(",Issued");
    }
    words
}

/// Checks the whole; what was wrong before is not held against an update.
fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = Path::new("spec");
    let mut errors = Vec::new();
    let request = object.str_at(&["spec", "request"]);
    // Only the subjects for Kubernetes' own signers are checked, because components trust them. An
    // existing request must still be able to fail.
    let is_ours = object
        .str_at(&["spec", "signerName"])
        .starts_with("kubernetes.io/");
    let tolerates_subject = old.is_some() || !is_ours;
    if let Err(error) = pem::request(request)
        && !(tolerates_subject && error.is_about_subject())
    {
        let at = path.child("request");
        let sent = object.at(&["spec", "request"]).cloned();
        let shown = sent.unwrap_or(Value::Null);
        errors.push(FieldError::invalid(&at, shown, error.to_string()));
    }
    usages(object, old, &path.child("usages"), &mut errors);
    let signer = object.str_at(&["spec", "signerName"]);
    let at = path.child("signerName");
    let was_legacy = old.is_some_and(|old| old.str_at(&["spec", "signerName"]) == LEGACY_SIGNER);
    if signer == LEGACY_SIGNER && !was_legacy {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.push(FieldError::invalid(&at, signer, detail));
    } else {
        errors.extend(signer_name(signer, &at));
    }
    let seconds = object.i64_at(&["spec", "expirationSeconds"]);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < 600) {
        let at = path.child("expirationSeconds");
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(&at, seconds, detail));
    }
    conditions(object, old, &mut errors);
    let certificate = object.str_at(&["status", "certificate"]);
    let tolerated = old.is_some_and(|old| {
        let before = old.str_at(&["status", "certificate"]);
        before == certificate || pem::certificates(before).is_err()
    });
    if !tolerated && let Err(error) = pem::certificates(certificate) {
        let at = Path::new("status").child("certificate");
        let shown = "<certificate data>";
        errors.push(FieldError::invalid(&at, shown, error.to_string()));
    }
    errors
}

fn usages(object: &Value, old: Option<&Value>, path: &Path, errors: &mut Vec<FieldError>) {
    let list = |object: &Value| -> Vec<String> {
        let usages = object.list_at(&["spec", "usages"]).iter();
        usages
            .map(|usage| usage.as_str().unwrap_or_default().to_string())
            .collect()
    };
    let usages = list(object);
    if usages.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let before = old.map(list).unwrap_or_default();
    let unknown = |usage: &String| !USAGES.contains(&usage.as_str());
    if !before.iter().any(unknown) {
        for (index, usage) in usages.iter().enumerate() {
            if unknown(usage) {
                let at = path.index(index);
                errors.push(FieldError::not_supported(&at, usage.as_str(), &USAGES));
            }
        }
    }
    if repeats(&before).is_empty() {
        for index in repeats(&usages) {
            let at = path.index(index);
            errors.push(FieldError::duplicate(&at, usages[index].as_str()));
        }
    }
}

/// Checks `domain/path`, each of DNS labels.
fn signer_name(name: &str, path: &Path) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let parts: Vec<&str> = name.split('/').collect();
    let [domain, rest] = parts.as_slice() else {
        let detail =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return vec![FieldError::invalid(path, name, detail)];
    };
    let mut errors = Vec::new();
    if domain.len() > 253 {
        errors.push(FieldError::too_long(path, 253));
    }
    errors.extend(first_wrong_label(domain, names::dns_label, path));
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, *domain, detail));
    }
    errors.extend(first_wrong_label(rest, names::dns_subdomain, path));
    if name.len() > 571 {
        errors.push(FieldError::too_long(path, 571));
    }
    errors
}

fn first_wrong_label(part: &str, check: fn(&str) -> Vec<String>, path: &Path) -> Vec<FieldError> {
    let mut labels = part.split('.').map(|label| (label, check(label)));
    let wrong = labels.find(|(_, wrong)| !wrong.is_empty());
    let (label, wrong) = wrong.unwrap_or_default();
    wrong
        .into_iter()
        .map(|words| {
            let detail = format!("validating label {}: {words}", quote(label));
            FieldError::invalid(path, part, detail)
        })
        .collect()
}

fn conditions(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = Path::new("status").child("conditions");
    let list = object.list_at(&["status", "conditions"]);
    let before = old.map_or(&[][..], |old| old.list_at(&["status", "conditions"]));
    let kind = |condition: &Value| condition.str_at(&["type"]).to_string();
    let had: Vec<String> = before.iter().map(kind).collect();
    let had_repeated = !repeats(&had).is_empty();
    let had: Seen<String> = had.into_iter().collect();
    let had_empty = had.contains(&String::new());
    let had_both = FINAL[..2]
        .iter()
        .all(|name| had.contains(&name.to_string()));
    let mut earlier: Seen<String> = Seen::new();
    for (index, condition) in list.iter().enumerate() {
        let at = path.index(index);
        let (name, status) = (kind(condition), condition.str_at(&["status"]));
        if name.is_empty() && !had_empty {
            errors.push(FieldError::required(&at.child("type"), ""));
        }
        let allowed: &[&str] = match FINAL.contains(&name.as_str()) {
            true => &["True"],
            false => &["False", "True", "Unknown"],
        };
        match status {
            "" => errors.push(FieldError::required(&at.child("status"), "")),
            _ if allowed.contains(&status) => {}
            _ => {
                let at = at.child("status");
                errors.push(FieldError::not_supported(&at, status, allowed));
            }
        }
        let opposite = match name.as_str() {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !had_both && !opposite.is_empty() && earlier.contains(&opposite.to_string()) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&path, name.as_str(), detail));
        }
        if !had_repeated && earlier.contains(&name) {
            errors.push(FieldError::duplicate(&at.child("type"), name.as_str()));
        }
        earlier.insert(name);
    }
}

/// The errors for fields that the subresource must not change.
fn changes(new: &Value, old: &Value, subresource: &str, errors: &mut Vec<FieldError>) {
    let path = Path::new("status").child("conditions");
    let count = |object: &Value, kind: &str| of_type(object, kind).len();
    let mut forbid = |detail: String| errors.push(FieldError::forbidden(&path, detail));
    for kind in FINAL {
        if count(new, kind) < count(old, kind) {
            forbid(format!(
                "updates may not remove a condition of type {kind:?}"
            ));
        }
    }
    if subresource != "approval" {
        for kind in ["Approved", "Denied"] {
            let (new, old) = (of_type(new, kind), of_type(old, kind));
            if new.len() > old.len() {
                forbid(format!("updates may not add a condition of type {kind:?}"));
            } else if new.len() == old.len() && new != old {
                forbid(format!(
                    "updates may not modify a condition of type {kind:?}\n"
                ));
            }
        }
    }
    let at = ["status", "certificate"];
    if new.str_at(&at) != old.str_at(&at) {
        let path = Path::new("status").child("certificate");
        if subresource != "status" {
            let detail = "updates may not set certificate content";
            errors.push(FieldError::forbidden(&path, detail));
        } else if !old.str_at(&at).is_empty() {
            let detail = "updates may not modify existing certificate content";
            errors.push(FieldError::forbidden(&path, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;

    const REQUEST: &str = include_str!("testdata.txt");

    fn request() -> Value {
        document!({"metadata": {"name": "r"}, "spec": {
            "request": REQUEST.trim(), "signerName": "example.com/serving",
            "usages": ["digital signature", "server auth"],
        }})
    }

    fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
        let mut object = request();
        change(&mut object);
        let errors = CertificateSigningRequest.validate_content(&object);
        let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn invalid_certificate_requests_are_rejected() {
        check(|_| {}, &[]);
        check(
            |object| object.set(&["spec", "request"], "bm90IHBlbQ=="),
            &[
                r#"spec.request: Invalid value: "bm90IHBlbQ==": PEM block type must be CERTIFICATE REQUEST"#,
            ],
        );
        check(
            |object| object.set(&["spec", "signerName"], "none"),
            &[
                r#"spec.signerName: Invalid value: "none": must be a fully qualified domain and path of the form 'example.com/signer-name'"#,
            ],
        );
        check(
            |object| object.set(&["spec", "usages"], document!(["signing", "signing"])),
            &[r#"spec.usages[1]: Duplicate value: "signing""#],
        );
        check(
            |object| object.set(&["spec", "expirationSeconds"], 599),
            &[
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
            ],
        );
    }

    #[test]
    fn approvers_and_signers_change_only_their_own_fields() {
        let old = request();
        let approved = document!([{"type": "Approved", "status": "True", "reason": "r"}]);
        let after = |subresource: &str| {
            let mut new = old.clone();
            new.set(&["status", "conditions"], approved.clone());
            new.set(&["spec", "signerName"], "other.com/x");
            let strategy = CertificateSigningRequest;
            strategy.prepare_update(&mut new, &old, subresource);
            strategy.stamp(&mut new, Some(&old), subresource, "2026-01-01T00:00:00Z");
            let errors = strategy.validate_update_content(&new, &old, subresource);
            let texts: Vec<String> = errors.iter().map(FieldError::to_string).collect();
            (new, texts)
        };
        let (new, errors) = after("approval");
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(new.get("spec"), old.get("spec"));
        let condition = &new.list_at(&["status", "conditions"])[0];
        assert_eq!(
            condition.str_at(&["lastUpdateTime"]),
            "2026-01-01T00:00:00Z"
        );
        let (_, errors) = after("status");
        assert_eq!(
            errors,
            [r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#]
        );
    }
}
