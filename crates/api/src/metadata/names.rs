//! The formats of names, label keys and label values, each check returning upstream's words.

use std::sync::LazyLock;

use regex::Regex;

use crate::field::{FieldError, Path};

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const WITH_UNDERSCORE: &str =
    r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*";
const HTTP_PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const CONFIG_KEY: &str = "[-._a-zA-Z0-9]+";

const QUALIFIED_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| anchored($pattern));
    };
}

pattern!(LABEL_PATTERN, LABEL);
pattern!(SUBDOMAIN_PATTERN, SUBDOMAIN);
pattern!(LABEL_1035_PATTERN, LABEL_1035);
pattern!(UNDERSCORE_PATTERN, WITH_UNDERSCORE);
pattern!(HTTP_PATH_PATTERN, HTTP_PATH);
pattern!(QUALIFIED_PATTERN, QUALIFIED);
pattern!(LABEL_VALUE_PATTERN, LABEL_VALUE);
pattern!(CONFIG_KEY_PATTERN, CONFIG_KEY);

/// What a kind demands of its objects' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    DnsSubdomain,
    /// The same, in the words of the newer checks.
    LongName,
    DnsLabel,
    Dns1035Label,
    /// Anything that can be a segment of a URL path.
    PathSegment,
    /// An IP address in canonical form.
    IpAddress,
}

impl NameRule {
    /// What is wrong with `name`. A prefix (`generateName`) may end in a dash.
    pub fn check(self, name: &str, prefix: bool) -> Vec<String> {
        let masked;
        let masks = !matches!(self, NameRule::PathSegment | NameRule::IpAddress);
        let name = match prefix && masks {
            true => {
                masked = mask_trailing_dash(name);
                masked.as_str()
            }
            false => name,
        };
        match self {
            NameRule::DnsSubdomain => dns_subdomain(name),
            NameRule::LongName => {
                let wrong = dns_subdomain(name).into_iter();
                wrong
                    .map(|words| words.replace("253 characters", "253 bytes"))
                    .collect()
            }
            NameRule::DnsLabel => dns_label(name),
            NameRule::Dns1035Label => dns_1035_label(name),
            NameRule::PathSegment => path_segment(name, prefix),
            NameRule::IpAddress => {
                let errors = crate::addresses::address(name, &Path::new(""));
                errors.into_iter().map(|error| error.detail).collect()
            }
        }
    }
}

pub fn dns_label(name: &str) -> Vec<String> {
    let mut wrong = longer_than(name, 63);
    if !LABEL_PATTERN.is_match(name) {
        wrong.push(match SUBDOMAIN_PATTERN.is_match(name) {
            true => "must not contain dots".to_string(),
            false => pattern_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            ),
        });
    }
    wrong
}

pub fn dns_subdomain(name: &str) -> Vec<String> {
    let mut wrong = longer_than(name, 253);
    if !SUBDOMAIN_PATTERN.is_match(name) {
        wrong.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    wrong
}

/// `*.` and a subdomain.
pub fn wildcard_subdomain(name: &str) -> Vec<String> {
    let mut wrong = longer_than(name, 253);
    let rest = name.strip_prefix("*.");
    if !rest.is_some_and(|rest| SUBDOMAIN_PATTERN.is_match(rest)) {
        wrong.push(pattern_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    wrong
}

/// An identifier of the C language.
pub fn c_identifier(name: &str) -> Vec<String> {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let mut bytes = name.bytes();
    let valid =
        bytes.next().is_some_and(first) && bytes.all(|byte| first(byte) || byte.is_ascii_digit());
    match valid {
        true => Vec::new(),
        false => vec![pattern_error(
            "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
            "[A-Za-z_][A-Za-z0-9_]*",
            &["my_name", "MY_NAME", "MyName"],
        )],
    }
}

/// A subdomain as resolvers search them: underscores are allowed.
pub fn dns_subdomain_with_underscore(name: &str) -> Vec<String> {
    let mut wrong = longer_than(name, 253);
    if !UNDERSCORE_PATTERN.is_match(name) {
        wrong.push(pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            WITH_UNDERSCORE,
            &["example.com"],
        ));
    }
    wrong
}

/// A path below a domain, such as `example.com/manager`.
pub fn domain_prefixed_path(text: &str, path: &Path) -> Vec<FieldError> {
    if text.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    let parts = text.split_once('/');
    let Some((host, rest)) = parts.filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return vec![FieldError::invalid(path, text, detail)];
    };
    let mut errors = super::all_invalid(path, host, dns_subdomain(host));
    if !HTTP_PATH_PATTERN.is_match(rest) {
        let detail = pattern_error("Invalid path", HTTP_PATH, &[]);
        errors.push(FieldError::invalid(path, rest, detail));
    }
    errors
}

pub fn dns_1035_label(name: &str) -> Vec<String> {
    let mut wrong = longer_than(name, 63);
    if !LABEL_1035_PATTERN.is_match(name) {
        wrong.push(pattern_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    wrong
}

pub fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .into_iter()
        .filter(|character| name.contains(character))
        .map(|character| format!("may not contain '{character}'"))
        .collect()
}

/// A label key: an optional DNS prefix and `/`, then a short name.
pub fn qualified_name(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_string());
            } else {
                if prefix.len() > 253 {
                    wrong.push("prefix part must be no more than 253 bytes".to_string());
                }
                if !SUBDOMAIN_PATTERN.is_match(prefix) {
                    let words = dns_subdomain(prefix).pop().unwrap_or_default();
                    wrong.push(format!("prefix part {words}"));
                }
            }
            *name
        }
        _ => {
            let words = pattern_error(
                QUALIFIED_WORDS,
                QUALIFIED,
                &["MyName", "my.name", "123-abc"],
            );
            return vec![format!(
                "a valid label key {words} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_string());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 bytes".to_string());
    }
    if !QUALIFIED_PATTERN.is_match(name) {
        let words = pattern_error(
            QUALIFIED_WORDS,
            QUALIFIED,
            &["MyName", "my.name", "123-abc"],
        );
        wrong.push(format!("name part {words}"));
    }
    wrong
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > 63 {
        wrong.push("must be no more than 63 bytes".to_string());
    }
    if !LABEL_VALUE_PATTERN.is_match(value) {
        wrong.push(pattern_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            LABEL_VALUE,
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

/// A key of a ConfigMap or Secret.
pub fn config_key(key: &str) -> Vec<String> {
    let mut wrong = longer_than(key, 253);
    if !CONFIG_KEY_PATTERN.is_match(key) {
        wrong.push(pattern_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            CONFIG_KEY,
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match key {
        "." => wrong.push("must not be '.'".to_string()),
        ".." => wrong.push("must not be '..'".to_string()),
        _ if key.starts_with("..") => wrong.push("must not start with '..'".to_string()),
        _ => {}
    }
    wrong
}

/// A name of a port: at most 15 of `[-a-z0-9]` with a letter in it.
pub fn port_name(name: &str) -> Vec<String> {
    let mut wrong = longer_than(name, 15);
    let allowed = |byte: u8| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if name.is_empty() || !name.bytes().all(allowed) {
        wrong.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_string(),
        );
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_string());
    }
    if name.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_string());
    }
    if name.starts_with('-') || name.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_string());
    }
    wrong
}

/// A name of an environment variable.
pub fn environment_name(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec!["environment variable name must be non-empty".to_string()];
    }
    let printable = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    match name.bytes().all(printable) {
        true => Vec::new(),
        false => vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_string()],
    }
}

pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

pub fn in_range(number: i64, least: i64, most: i64) -> Vec<String> {
    match (least..=most).contains(&number) {
        true => Vec::new(),
        false => vec![format!("must be between {least} and {most}, inclusive")],
    }
}

/// Words for a failed pattern, with examples.
pub fn pattern_error(words: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|text| format!("'{text}', ")).collect();
    match examples.is_empty() {
        true => format!("{words} (regex used for validation is '{pattern}')"),
        false => format!(
            "{words} (e.g. {}regex used for validation is '{pattern}')",
            examples.join(" or ")
        ),
    }
}

fn longer_than(text: &str, most: usize) -> Vec<String> {
    match text.len() > most {
        true => vec![format!("must be no more than {most} characters")],
        false => Vec::new(),
    }
}

/// A prefix is judged as if something that is no dash followed it.
fn mask_trailing_dash(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut masked = rest.to_string();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => name.to_string(),
    }
}

fn anchored(pattern: &str) -> Regex {
    Regex::new(&format!("^(?:{pattern})$")).expect("a constant pattern compiles")
}
