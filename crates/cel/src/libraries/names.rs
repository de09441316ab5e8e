//! The rules of named formats, with Kubernetes' messages.

use crate::libraries::url::parse::parse_request_uri;

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1123_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

const LABEL_BYTES: usize = 63;
const SUBDOMAIN_BYTES: usize = 253;

/// Upstream has two functions for the message about a length, which count the same.
const CHARACTERS: &str = "characters";
const BYTES: &str = "bytes";

/// A name to which something will be appended may end with a dash: that and the byte before it are
/// taken for a letter, as upstream does.
pub(super) fn without_dash(text: &str) -> Vec<u8> {
    match text.as_bytes() {
        [before @ .., _, b'-'] => [before, b"a"].concat(),
        bytes => bytes.to_vec(),
    }
}

pub(super) fn dns_1123_label(name: &[u8]) -> Vec<String> {
    let mut messages = too_long(name, LABEL_BYTES, CHARACTERS);
    if !is_label(name) {
        messages.push(if is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            mismatch(LABEL_1123_RULE, LABEL_1123, &["my-name", "123-abc"])
        });
    }
    messages
}

pub(super) fn dns_1123_subdomain(name: &[u8]) -> Vec<String> {
    subdomain(name, CHARACTERS)
}

fn subdomain(name: &[u8], unit: &str) -> Vec<String> {
    let mut messages = too_long(name, SUBDOMAIN_BYTES, unit);
    if !is_subdomain(name) {
        messages.push(mismatch(SUBDOMAIN_RULE, SUBDOMAIN, &["example.com"]));
    }
    messages
}

pub(super) fn dns_1035_label(name: &[u8]) -> Vec<String> {
    let mut messages = too_long(name, LABEL_BYTES, CHARACTERS);
    if !is_label(name) || !name[0].is_ascii_lowercase() {
        messages.push(mismatch(
            LABEL_1035_RULE,
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    messages
}

pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let rule = mismatch(LABEL_KEY_RULE, LABEL_KEY, &["MyName", "my.name", "123-abc"]);
    let parts: Vec<&str> = text.split('/').collect();
    let mut messages = Vec::new();
    let name = match parts[..] {
        [name] => name,
        ["", name] => {
            messages.push("prefix part must be non-empty".to_owned());
            name
        }
        [prefix, name] => {
            let prefix = subdomain(prefix.as_bytes(), BYTES);
            messages.extend(
                prefix
                    .iter()
                    .map(|message| format!("prefix part {message}")),
            );
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else {
        let long = too_long(name.as_bytes(), LABEL_BYTES, BYTES);
        messages.extend(long.iter().map(|message| format!("name part {message}")));
    }
    if !is_label_key(name) {
        messages.push(format!("name part {rule}"));
    }
    messages
}

pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut messages = too_long(text.as_bytes(), LABEL_BYTES, BYTES);
    if !text.is_empty() && !is_label_key(text) {
        let examples = ["MyValue", "my_value", "12345"];
        messages.push(mismatch(LABEL_VALUE_RULE, LABEL_VALUE, &examples));
    }
    messages
}

pub(super) fn uri(text: &str) -> Vec<String> {
    match parse_request_uri(text) {
        Ok(_) => Vec::new(),
        Err(error) => vec![error.to_string()],
    }
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12, with or without hyphens between them.
pub(super) fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(b"-").unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else {
            return false;
        };
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// Groups of four characters, of which the last may be padded; at least one.
pub(super) fn is_base64(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits = match bytes {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] => digits,
        digits => digits,
    };
    !bytes.is_empty() && bytes.len().is_multiple_of(4) && digits.iter().all(is_digit)
}

/// `2006-01-02`, a day that exists.
pub(super) fn is_date(text: &str) -> bool {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text.as_bytes() else {
        return false;
    };
    let number = |digits: &[&u8]| {
        digits.iter().try_fold(0_i16, |number, digit| {
            digit
                .is_ascii_digit()
                .then(|| number * 10 + i16::from(**digit - b'0'))
        })
    };
    let (Some(year), Some(month), Some(day)) = (
        number(&[y1, y2, y3, y4]),
        number(&[m1, m2]),
        number(&[d1, d2]),
    ) else {
        return false;
    };
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else {
        return false;
    };
    jiff::civil::Date::new(year, month, day).is_ok()
}

/// A date, the letter T and a time with an offset; the offset's numbers may be any.
pub(super) fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time).is_some_and(|is_time| is_time)
}

fn is_time(text: &str) -> Option<bool> {
    let two = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (clock, rest) = text.split_at_checked(8)?;
    let mut fields = clock.split(':');
    let (hours, minutes, seconds) = (fields.next()?, fields.next()?, fields.next()?);
    if !(two(hours) && two(minutes) && two(seconds)) || fields.next().is_some() {
        return Some(false);
    }
    // Any character stands before the fraction.
    let is_offset = |rest: &str| match rest.strip_prefix(['+', '-']) {
        Some(offset) => offset
            .split_once(':')
            .is_some_and(|(hours, minutes)| two(hours) && two(minutes)),
        None => rest == "z",
    };
    let has_fraction = || {
        let mut characters = rest.chars();
        let first = characters.next()?;
        let after = characters.as_str();
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        Some(first != '\n' && digits > 0 && is_offset(&after[digits..]))
    };
    let is_valid = is_offset(rest) || has_fraction().unwrap_or(false);
    Some(is_valid && hours <= "23" && minutes <= "59" && seconds <= "59")
}

pub(super) fn is_label(name: &[u8]) -> bool {
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    is_bounded(name, is_edge, |byte| is_edge(byte) || *byte == b'-')
}

pub(super) fn is_subdomain(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'.').all(is_label)
}

fn is_label_key(name: &str) -> bool {
    is_bounded(name.as_bytes(), u8::is_ascii_alphanumeric, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
    })
}

/// Whether the first and last byte are of one class and all of another.
fn is_bounded(name: &[u8], is_edge: fn(&u8) -> bool, is_inner: impl Fn(&u8) -> bool) -> bool {
    match (name.first(), name.last()) {
        (Some(first), Some(last)) => is_edge(first) && is_edge(last) && name.iter().all(is_inner),
        _ => false,
    }
}

fn too_long(name: &[u8], most: usize, unit: &str) -> Vec<String> {
    match name.len() > most {
        true => vec![format!("must be no more than {most} {unit}")],
        false => Vec::new(),
    }
}

fn mismatch(rule: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    format!(
        "{rule} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}
