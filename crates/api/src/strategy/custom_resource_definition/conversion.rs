//! `spec.conversion`: none, or a webhook with its address and the versions of reviews it speaks.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::document::Value;
use crate::field::{FieldError, Path};
use crate::metadata::names::dns_1035_label;
use crate::repeats::Seen;
use crate::strategy::checks::{self, client_config};

const STRATEGIES: [&str; 2] = ["None", "Webhook"];
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// What an update is not held to, because it was so before.
#[derive(Clone, Copy, Debug)]
pub struct Leniency {
    pub unknown_review_versions: bool,
    pub invalid_bundle: bool,
}

pub fn validate(spec: &Value, leniency: Leniency, path: &Path) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(conversion) = spec.get("conversion").filter(|value| !value.is_null()) else {
        return errors;
    };
    let strategy = conversion.str_at(&["strategy"]);
    if spec.bool_at(&["preserveUnknownFields"]) && strategy != "None" {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid(
            &path.child("strategy"),
            strategy,
            detail,
        ));
    }
    match strategy {
        "" => errors.push(FieldError::required(&path.child("strategy"), "")),
        other => errors.extend(checks::supported(
            other,
            &STRATEGIES,
            &path.child("strategy"),
        )),
    }
    // Upstream's checks know the webhook's fields without the level between.
    let config = conversion.at(&["webhook", "clientConfig"]);
    let config = config.filter(|config| !config.is_null());
    let config_path = path.child("webhookClientConfig");
    let versions = conversion.list_at(&["webhook", "conversionReviewVersions"]);
    let versions_path = path.child("conversionReviewVersions");
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.push(FieldError::forbidden(&config_path, detail));
        }
        if !versions.is_empty() {
            errors.push(FieldError::forbidden(&versions_path, detail));
        }
        return errors;
    }
    match config {
        None => {
            let detail = "required when strategy is set to Webhook";
            errors.push(FieldError::required(&config_path, detail));
        }
        Some(config) => {
            client_config::validate(config, &config_path, &mut errors);
            if !leniency.invalid_bundle {
                errors.extend(bundle_error(config, &config_path));
            }
        }
    }
    review_versions(
        versions,
        leniency.unknown_review_versions,
        &versions_path,
        &mut errors,
    );
    errors
}

/// The error for authorities that cannot be read; none where there are none.
pub fn bundle_error(config: &Value, path: &Path) -> Option<FieldError> {
    let text = config.str_at(&["caBundle"]);
    if text.is_empty() {
        return None;
    }
    let bytes = STANDARD.decode(text).unwrap_or_default();
    let mut found = false;
    for block in Pem::iter_from_buffer(&bytes).map_while(Result::ok) {
        if block.label != "CERTIFICATE" {
            continue;
        }
        found = X509Certificate::from_der(&block.contents).is_ok();
        if !found {
            break;
        }
    }
    (!found).then(|| {
        let detail = "unable to load root certificates: data does not contain any valid RSA or \
                      ECDSA certificates";
        FieldError::invalid(&path.child("caBundle"), text, detail)
    })
}

/// Whether one of the versions of reviews is known, or none is named.
pub fn speaks_known_version(versions: &[Value]) -> bool {
    let mut named = versions.iter().filter_map(Value::as_str);
    versions.is_empty() || named.any(|version| REVIEWS.contains(&version))
}

fn review_versions(
    versions: &[Value],
    unknown_allowed: bool,
    path: &Path,
    errors: &mut Vec<FieldError>,
) {
    if versions.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let mut seen = Seen::new();
    for (index, version) in versions.iter().enumerate() {
        let version = version.as_str().unwrap_or_default();
        if !seen.insert(version) {
            let detail = "duplicate version";
            errors.push(FieldError::invalid(&path.index(index), version, detail));
            continue;
        }
        for detail in dns_1035_label(version) {
            errors.push(FieldError::invalid(&path.index(index), version, detail));
        }
    }
    if !unknown_allowed && !speaks_known_version(versions) {
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.push(FieldError::invalid(path, versions.to_vec(), detail));
    }
}
