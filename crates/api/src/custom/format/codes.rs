//! Identifiers and numbers with a fixed form: UUIDs, book and card numbers, colours, base64.

/// Groups of 8, 4, 4, 4 and 12 hexadecimal digits, each hyphen between them optional. The third
/// group may have to begin with a version, the fourth with the bits of the variant.
pub fn is_uuid(text: &str, version: Option<char>, variant: bool) -> bool {
    let mut characters = text.chars().peekable();
    for (group, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0 {
            characters.next_if_eq(&'-');
        }
        for place in 0..length {
            let Some(character) = characters.next().filter(char::is_ascii_hexdigit) else {
                return false;
            };
            if (group, place) == (2, 0) && version.is_some_and(|version| version != character) {
                return false;
            }
            let variants = ['8', '9', 'a', 'b'];
            if (group, place) == (3, 0)
                && variant
                && !variants.contains(&character.to_ascii_lowercase())
            {
                return false;
            }
        }
    }
    characters.next().is_none()
}

/// Without white space and hyphens.
fn squeezed(text: &str) -> String {
    let between = |c: &char| !matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ' | '-');
    text.chars().filter(between).collect()
}

pub fn is_isbn10(text: &str) -> bool {
    let digits = squeezed(text).into_bytes();
    let all_digits = digits.iter().take(9).all(u8::is_ascii_digit);
    if digits.len() != 10 || !all_digits || !(digits[9].is_ascii_digit() || digits[9] == b'X') {
        return false;
    }
    let value = |digit: u8| {
        if digit == b'X' {
            10
        } else {
            u32::from(digit - b'0')
        }
    };
    let places = digits.iter().zip(1_u32..);
    let sum: u32 = places.map(|(digit, place)| place * value(*digit)).sum();
    sum.is_multiple_of(11)
}

pub fn is_isbn13(text: &str) -> bool {
    let digits = squeezed(text).into_bytes();
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weights = digits[..12].iter().zip([1, 3].into_iter().cycle());
    let sum: u32 = weights
        .map(|(digit, weight)| weight * u32::from(digit - b'0'))
        .sum();
    u32::from(digits[12] - b'0') == (10 - sum % 10) % 10
}

/// The numbers of the large issuers, with their check digit; anything but digits is ignored.
pub fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let starts = |most: usize| {
        digits
            .iter()
            .take(most)
            .fold(0, |number, digit| number * 10 + digit)
    };
    let (one, two, three, four) = (starts(1), starts(2), starts(3), starts(4));
    let known = match digits.len() {
        13 => one == 4,
        14 => (300..=305).contains(&three) || matches!(two, 36 | 38),
        15 => matches!(two, 34 | 37) || matches!(four, 2131 | 1800),
        16 => one == 4 || (51..=55).contains(&two) || four == 6011 || two == 65 || two == 35,
        _ => false,
    };
    let doubled = |digit: u32| if digit >= 5 { digit * 2 - 9 } else { digit * 2 };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            if place % 2 == 1 {
                doubled(*digit)
            } else {
                *digit
            }
        })
        .sum();
    known && sum.is_multiple_of(10)
}

pub fn is_ssn(text: &str) -> bool {
    // The form may leave out the separators, the length may not.
    let bytes = text.as_bytes();
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(place, byte)| match place {
            3 | 6 => matches!(byte, b'-' | b' '),
            _ => byte.is_ascii_digit(),
        })
}

pub fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub fn is_rgb_color(text: &str) -> bool {
    let inner = text
        .strip_prefix("rgb(")
        .and_then(|rest| rest.strip_suffix(')'));
    let Some(inner) = inner else { return false };
    let parts: Vec<&str> = inner.split(',').collect();
    let space = |c: char| matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ');
    parts.len() == 3
        && parts.iter().all(|part| {
            let number = part.trim_matches(space);
            let is_plain = number == "0" || !number.starts_with('0');
            is_plain
                && number.bytes().all(|byte| byte.is_ascii_digit())
                && number.parse::<u8>().is_ok()
        })
}

/// Whole groups of four with padding, at least one.
pub fn is_base64(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.is_empty() || !bytes.len().is_multiple_of(4) {
        return false;
    }
    let padding = bytes.iter().rev().take_while(|byte| **byte == b'=').count();
    let alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    padding <= 2 && bytes[..bytes.len() - padding].iter().all(alphabet)
}
