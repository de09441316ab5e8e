//! Conversions between numbers that lose nothing, their errors, and numbers as Go writes them.

use std::cmp::Ordering;
use std::fmt::Write;

use crate::error::EvalError;

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

pub fn int_overflow() -> EvalError {
    EvalError::Message("integer overflow".to_owned())
}

pub fn uint_overflow() -> EvalError {
    EvalError::Message("unsigned integer overflow".to_owned())
}

pub fn timestamp_overflow() -> EvalError {
    EvalError::Message("timestamp overflow".to_owned())
}

/// Truncates. cel-go refuses the smallest integer too.
pub fn double_to_int(number: f64) -> Option<i64> {
    (number > -TWO_TO_63 && number < TWO_TO_63).then_some(number as i64)
}

pub fn double_to_uint(number: f64) -> Option<u64> {
    (0.0..TWO_TO_64).contains(&number).then_some(number as u64)
}

pub fn lossless_int(number: f64) -> Option<i64> {
    double_to_int(number).filter(|whole| *whole as f64 == number)
}

pub fn lossless_uint(number: f64) -> Option<u64> {
    double_to_uint(number).filter(|whole| *whole as f64 == number)
}

/// Neither is NaN.
pub fn compare_doubles(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

pub fn compare_double_int(left: f64, right: i64) -> Ordering {
    if left < -TWO_TO_63 {
        Ordering::Less
    } else if left > TWO_TO_63 {
        Ordering::Greater
    } else {
        compare_doubles(left, right as f64)
    }
}

pub fn compare_double_uint(left: f64, right: u64) -> Ordering {
    if left < 0.0 {
        Ordering::Less
    } else if left > TWO_TO_64 {
        Ordering::Greater
    } else {
        compare_doubles(left, right as f64)
    }
}

pub fn compare_int_uint(left: i64, right: u64) -> Ordering {
    match u64::try_from(left) {
        Ok(left) => left.cmp(&right),
        Err(_) => Ordering::Less,
    }
}

/// As Go's `%g` writes it: the fewest digits that read back as the same number, with an exponent
/// below 1e-4 and from 1e+06 (or the given power of ten).
pub fn go_double(number: f64) -> String {
    go_double_from(number, 6)
}

/// As [`go_double`], with an exponent from ten to the power of `exponent_from`.
pub fn go_double_from(number: f64, exponent_from: i32) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= exponent_from {
        let sign = if exponent < 0 { '-' } else { '+' };
        let mut text = digits.to_owned();
        // Writing to a string does not fail.
        let _ = write!(text, "e{sign}{:02}", exponent.abs());
        text
    } else {
        format!("{number}")
    }
}

/// As Go's `strconv.ParseFloat` reads it.
pub fn parse_go_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_special = ["inf", "infinity", "nan"]
        .iter()
        .any(|special| unsigned.eq_ignore_ascii_case(special));
    if is_special {
        if unsigned.eq_ignore_ascii_case("nan") {
            return (unsigned.len() == text.len()).then_some(f64::NAN);
        }
        let is_negative = text.starts_with('-');
        return Some(if is_negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        });
    }
    let digits = unsigned.strip_prefix("0x");
    if let Some(digits) = digits.or_else(|| unsigned.strip_prefix("0X")) {
        return parse_hexadecimal(digits)
            .map(|value| if text.starts_with('-') { -value } else { value });
    }
    let is_plain = unsigned
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    if !is_plain || !unsigned.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// `1.8p3` after `0x`; the exponent is required. Nothing where it has more digits than fit exactly.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 || whole.len() + fraction.len() > 13 {
        return None;
    }
    let mut value = 0u64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16 + u64::from(digit.to_digit(16)?);
    }
    let scale = exponent.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    let scaled = value as f64 * 2f64.powi(scale);
    scaled.is_finite().then_some(scaled)
}
