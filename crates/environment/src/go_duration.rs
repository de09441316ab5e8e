//! Durations as Go reads and prints them (`1h30m`, `1.5s`, `500ms`), because configuration files,
//! flags, annotations and messages of Kubernetes use this form.

use std::time::Duration;

use thiserror::Error;

/// A text that Go would refuse as a duration, with Go's message.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum InvalidDuration {
    #[error("time: invalid duration {}", quote(.0))]
    Malformed(String),
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit { unit: String, text: String },
}

/// The nanoseconds of a sequence of numbers with units, each with an optional fraction, behind an
/// optional sign. The sum must fit into 64 bits.
pub fn parse(text: &str) -> Result<i64, InvalidDuration> {
    let malformed = || InvalidDuration::Malformed(text.to_owned());
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(malformed());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(malformed());
        }
        let end = after.find(|letter: char| letter.is_ascii_digit() || letter == '.');
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let unit: i128 = match unit {
            "ns" => 1,
            // Unicode has two signs for micro.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(InvalidDuration::MissingUnit(text.to_owned())),
            unit => {
                let (unit, text) = (unit.to_owned(), text.to_owned());
                return Err(InvalidDuration::UnknownUnit { unit, text });
            }
        };
        let whole: u64 = match whole {
            "" => 0,
            whole => whole.parse().map_err(|_| malformed())?,
        };
        total += i128::from(whole) * unit + nanoseconds_of_fraction(fraction, unit as f64);
        if total > -i128::from(i64::MIN) {
            return Err(malformed());
        }
        rest = after;
    }
    let total = if text.starts_with('-') { -total } else { total };
    i64::try_from(total).map_err(|_| malformed())
}

/// The digits behind a decimal point, in floating-point numbers as Go computes them. Digits that do
/// not fit into 63 bits are passed over.
fn nanoseconds_of_fraction(digits: &str, unit: f64) -> i128 {
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let next = value * 10 + u64::from(digit - b'0');
        if value > i64::MAX as u64 / 10 || next > i64::MIN.unsigned_abs() {
            break;
        }
        (value, scale) = (next, scale * 10.0);
    }
    (value as f64 * (unit / scale)) as i128
}

/// A duration that is not negative; `None` for any other text.
pub fn parse_unsigned(text: &str) -> Option<Duration> {
    let nanoseconds = u64::try_from(parse(text).ok()?).ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Nanoseconds as Go prints them: the largest unit below a second that is not zero, or hours,
/// minutes and seconds, with as many digits as the value needs.
pub fn format(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let value = nanoseconds.unsigned_abs();
    let decimal = |value: u64, unit: u64| {
        let digits = unit.ilog10() as usize;
        let text = format!("{}.{:0digits$}", value / unit, value % unit);
        let text = text.trim_end_matches('0');
        text.trim_end_matches('.').to_owned()
    };
    let seconds = value / 1_000_000_000;
    let below_a_minute = decimal(value % 60_000_000_000, 1_000_000_000);
    let text = match (value, seconds / 3600, seconds / 60 % 60) {
        (0, ..) => "0s".to_owned(),
        (..1_000, ..) => format!("{value}ns"),
        (..1_000_000, ..) => format!("{}\u{b5}s", decimal(value, 1_000)),
        (..1_000_000_000, ..) => format!("{}ms", decimal(value, 1_000_000)),
        (_, 0, 0) => format!("{below_a_minute}s"),
        (_, 0, minutes) => format!("{minutes}m{below_a_minute}s"),
        (_, hours, minutes) => format!("{hours}h{minutes}m{below_a_minute}s"),
    };
    format!("{sign}{text}")
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// A text in quotes, with everything but printable ASCII escaped byte by byte, as Go's package
/// `time` does in its errors.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', byte.into()]),
            b' '..=b'~' => quoted.push(byte.into()),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_by_go() {
        for (text, expected) in [
            ("0", 0),
            ("5s", 5_000_000_000),
            ("+5s", 5_000_000_000),
            ("-5s", -5_000_000_000),
            ("-0s", 0),
            ("5.0s", 5_000_000_000),
            ("5.6s", 5_600_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("13ms", 13_000_000),
            ("3h30m", 12_600_000_000_000),
            ("4m10.5s", 250_500_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("9223372036854775807ns", i64::MAX),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_in_the_words_of_go() {
        for (text, expected) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            (".s", "time: invalid duration \".s\""),
            ("+.s", "time: invalid duration \"+.s\""),
            ("1.2.3s", "time: missing unit in duration \"1.2.3s\""),
            ("5", "time: missing unit in duration \"5\""),
            ("1.5", "time: missing unit in duration \"1.5\""),
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("5S", "time: unknown unit \"S\" in duration \"5S\""),
            ("1h 2m", "time: unknown unit \"h \" in duration \"1h 2m\""),
            (
                "5\u{e9}",
                "time: unknown unit \"\\xc3\\xa9\" in duration \"5\\xc3\\xa9\"",
            ),
            ("3000000h", "time: invalid duration \"3000000h\""),
            (
                "9223372036854775808ns",
                "time: invalid duration \"9223372036854775808ns\"",
            ),
        ] {
            assert_eq!(
                parse(text).map_err(|error| error.to_string()),
                Err(expected.to_owned())
            );
        }
        assert_eq!(parse_unsigned("-1s"), None);
        assert_eq!(parse_unsigned("1500ms"), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn durations_are_printed_as_by_go() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (45_000_000, "45ms"),
            (3_300_000_000, "3.3s"),
            (80_000_000_000, "1m20s"),
            (300_000_000_000, "5m0s"),
            (300_001_000_000, "5m0.001s"),
            (3_600_000_000_000, "1h0m0s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format(nanoseconds), text);
        }
    }
}
