//! Names of properties as identifiers of expressions: `a-b` is written `a__dash__b`.

use std::borrow::Cow;

/// Words of the language, which cannot be identifiers.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const ESCAPES: [(&str, &str); 4] = [
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
];

/// Whether it is a word of the language, which can name a property all the same.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The identifier for a property; nothing for one that expressions cannot name.
pub fn escape(name: &str) -> Option<Cow<'_, str>> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(Cow::Owned(format!("__{name}__")));
    }
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    if name.chars().all(is_plain) && !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let mut escaped = String::with_capacity(name.len() + 16);
    let mut rest = name;
    while let Some(sign) = rest.chars().next() {
        match ESCAPES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            Some((plain, escape)) => {
                escaped.push_str(escape);
                rest = &rest[plain.len()..];
            }
            None if is_plain(sign) => {
                escaped.push(sign);
                rest = &rest[sign.len_utf8()..];
            }
            None => return None,
        }
    }
    Some(Cow::Owned(escaped))
}

/// The property that an identifier names; nothing where it has an escape that there is not.
pub fn unescape(name: &str) -> Option<Cow<'_, str>> {
    if !name.contains("__") {
        return Some(Cow::Borrowed(name));
    }
    let inner = name
        .strip_prefix("__")
        .and_then(|rest| rest.strip_suffix("__"));
    if let Some(word) = inner.filter(|word| RESERVED.contains(word)) {
        return Some(Cow::Borrowed(word));
    }
    let mut plain = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(start) = rest.find("__") {
        let (before, after) = rest.split_at(start);
        plain.push_str(before);
        let known = ESCAPES.iter().find(|(_, escape)| after.starts_with(escape));
        let (sign, escape) = known?;
        plain.push_str(sign);
        rest = &after[escape.len()..];
    }
    plain.push_str(rest);
    Some(Cow::Owned(plain))
}
