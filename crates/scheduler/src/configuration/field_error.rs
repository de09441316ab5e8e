//! Errors about fields, worded as Kubernetes words them.

use std::fmt::Display;

pub(super) fn invalid(path: &str, value: impl Display, detail: &str) -> String {
    format!("{path}: Invalid value: {value}: {detail}")
}

pub(super) fn required(path: &str, detail: &str) -> String {
    match detail {
        "" => format!("{path}: Required value"),
        detail => format!("{path}: Required value: {detail}"),
    }
}

pub(super) fn duplicate(path: &str, value: &str) -> String {
    format!("{path}: Duplicate value: \"{value}\"")
}

pub(super) fn forbidden(path: &str, detail: &str) -> String {
    format!("{path}: Forbidden: {detail}")
}

pub(super) fn not_supported(path: &str, value: &str, supported: &[&str]) -> String {
    let supported: Vec<String> = supported.iter().map(|name| format!("\"{name}\"")).collect();
    let supported = supported.join(", ");
    format!("{path}: Unsupported value: \"{value}\": supported values: {supported}")
}
