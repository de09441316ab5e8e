//! Numbers in formats, written as for readers of American English: `1,234.500` and `1.5×10⁰³`.

/// Digits after the point where a format does not say how many.
const DEFAULT: i64 = 6;
/// A double has no more digits after its point.
const MOST_DIGITS: usize = 1100;
/// What upstream writes where it does not understand its own format.
const NO_VERB: &str = "%!(NOVERB)";

/// `%f`: digits in groups of three.
pub(super) fn fixed(number: f64, precision: Option<i64>) -> String {
    let precision = precision.unwrap_or(DEFAULT);
    if is_too_large(precision) {
        return NO_VERB.to_owned();
    }
    if let Some(text) = without_digits(number) {
        return text.to_owned();
    }
    let precision = usize::try_from(precision).unwrap_or(0);
    let text = format!("{:.*}", precision.min(MOST_DIGITS), number.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    // The smallest number of digits is kept in a byte, so that a large precision asks for fewer.
    let least = precision % 256;
    let mut fraction = fraction.to_owned();
    while fraction.len() > least && fraction.ends_with('0') {
        fraction.pop();
    }
    while fraction.len() < least {
        fraction.push('0');
    }
    let mut grouped = String::new();
    if number < 0.0 {
        grouped.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(&fraction);
    }
    grouped
}

/// `%e`: six digits after the point; what looks like a precision is the width, as upstream has it.
pub(super) fn scientific(number: f64, width: Option<i64>) -> String {
    let width = width.unwrap_or(DEFAULT);
    if is_too_large(width) {
        return NO_VERB.to_owned();
    }
    let text = match without_digits(number) {
        Some(text) => text.to_owned(),
        None => {
            let text = format!("{:.6e}", number.abs());
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let sign = if number < 0.0 { "-" } else { "" };
            let (exponent_sign, size) = match exponent.strip_prefix('-') {
                Some(size) => ("⁻", size),
                None => ("", exponent),
            };
            format!("{sign}{digits}×10{exponent_sign}{}", raised(size))
        }
    };
    let width = usize::try_from(width % 65_536).unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    format!("{}{text}", " ".repeat(missing))
}

/// Two digits at least, above the line.
fn raised(digits: &str) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = format!("{digits:0>2}");
    let digits = digits.bytes().filter_map(|digit| {
        let digit = usize::from(digit.wrapping_sub(b'0'));
        RAISED.get(digit).copied()
    });
    digits.collect()
}

fn without_digits(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "∞" } else { "-∞" })
    } else {
        None
    }
}

/// Reading a number ends when it is above a million before its last digit.
fn is_too_large(number: i64) -> bool {
    number / 10 > 1_000_000
}
