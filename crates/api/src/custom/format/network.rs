//! Addresses and names of hosts.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use regex::Regex;

/// Letters and symbols of any script; the rest of a host name is ASCII.
static LETTER_OR_SYMBOL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^[\p{S}\p{L}]$").expect("a valid pattern"));
static LETTER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\p{L}$").expect("a valid pattern"));

fn is_sign(character: char) -> bool {
    character.is_ascii_alphanumeric() || is_in(&LETTER_OR_SYMBOL, character)
}

fn is_letter(character: char) -> bool {
    character.is_ascii_alphabetic() || (!character.is_ascii() && is_in(&LETTER, character))
}

fn is_in(class: &Regex, character: char) -> bool {
    class.is_match(character.encode_utf8(&mut [0; 4]))
}

/// One label, in which only the second sign may be a hyphen, or several with a final one of letters.
pub fn is_hostname(text: &str) -> bool {
    if text.len() > 255 || text.split('.').any(|label| label.len() > 63) {
        return false;
    }
    let Some((labels, last)) = text.rsplit_once('.') else {
        let mut signs = text.chars();
        let first = signs.next().is_some_and(is_sign);
        let rest = signs.as_str();
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        return first && rest.chars().count() <= 62 && rest.chars().all(is_sign);
    };
    let is_label = |label: &str| {
        let edge = |sign: Option<char>| sign.is_some_and(is_sign);
        edge(label.chars().next())
            && edge(label.chars().next_back())
            && label.chars().all(|sign| sign == '-' || is_sign(sign))
    };
    labels.split('.').all(is_label)
        && (2..=63).contains(&last.chars().count())
        && last.chars().all(is_letter)
}

/// As Go reads addresses today; those of version 4 may still have leading zeros.
fn parse_sloppy(text: &str) -> Option<usize> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(|_| 128);
    }
    let parts: Vec<&str> = text.split('.').collect();
    let is_part = |part: &str| {
        let digits = part.trim_start_matches('0');
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (digits.is_empty() || digits.parse::<u8>().is_ok())
    };
    (parts.len() == 4 && parts.into_iter().all(is_part)).then_some(32)
}

pub fn is_ipv4(text: &str) -> bool {
    text.contains('.') && parse_sloppy(text).is_some()
}

pub fn is_ipv6(text: &str) -> bool {
    text.contains(':') && text.parse::<Ipv6Addr>().is_ok()
}

pub fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else {
        return false;
    };
    let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let Some(bits) = parse_sloppy(address) else {
        return false;
    };
    let prefix = prefix.trim_start_matches('0');
    digits && (prefix.is_empty() || prefix.parse::<usize>().is_ok_and(|prefix| prefix <= bits))
}

/// Six, eight or twenty bytes: by pairs with `:` or `-`, by fours with `.`, or without a separator.
pub fn is_mac(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (groups, length): (Vec<&[u8]>, usize) = match bytes {
        [_, _, separator @ (b':' | b'-'), ..] => {
            (bytes.split(|byte| byte == separator).collect(), 2)
        }
        [_, _, _, _, b'.', ..] => (bytes.split(|byte| *byte == b'.').collect(), 4),
        _ => (vec![bytes], bytes.len()),
    };
    matches!(groups.len() * length, 12 | 16 | 40)
        && groups
            .iter()
            .all(|digits| digits.len() == length && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Lower case letters, digits and inner hyphens.
pub fn is_name(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let bytes = text.as_bytes();
    is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}
