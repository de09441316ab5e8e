//! Resource quantities: `500m`, `1.5Gi`, `2e3`. Exact to a billionth, rounded away from zero below.

mod exact;

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Sub};

pub use self::exact::ExactQuantity;

/// How a quantity was written, and so is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `12M`
    #[default]
    DecimalSi,
    /// `12Mi`
    BinarySi,
    /// `12e6`
    DecimalExponent,
}

/// An amount in billionths; what does not fit saturates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANO: i128 = 1_000_000_000;

impl Quantity {
    pub fn parse(text: &str) -> Result<Quantity, Error> {
        let (negative, rest) = match text.as_bytes().first() {
            None => return Err(Error::Format),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = rest.split_at(digits(rest));
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let suffix = rest;
        check_suffix_shape(suffix)?;
        if whole.is_empty() && fraction.is_empty() {
            // A sign or a dot alone has no number in it.
            return Err(if suffix.is_empty() && !text.contains('.') {
                Error::Format
            } else {
                Error::Number
            });
        }
        let (base, exponent, format) = interpret(suffix)?;
        let nanos = magnitude(whole, fraction, base, exponent);
        let (nanos, format) = match format {
            // Upstream caps binary amounts at the largest 64-bit number and prints fractions decimal.
            Format::BinarySi => (
                nanos.min(i128::from(i64::MAX) * NANO),
                match nanos < NANO && nanos > 0 {
                    true => Format::DecimalSi,
                    false => Format::BinarySi,
                },
            ),
            other => (nanos, other),
        };
        Ok(Quantity {
            nanos: if negative { -nanos } else { nanos },
            format,
        })
    }

    pub fn from_units(units: i64, format: Format) -> Quantity {
        Quantity {
            nanos: i128::from(units) * NANO,
            format,
        }
    }

    pub fn from_milli(milli: i64) -> Quantity {
        Quantity {
            nanos: i128::from(milli) * 1_000_000,
            format: Format::DecimalSi,
        }
    }

    /// Rounded up to thousandths, the finest amount that resources are counted in.
    pub fn rounded_to_milli(self) -> Quantity {
        let (milli, rest) = (self.nanos / 1_000_000, self.nanos % 1_000_000);
        Quantity {
            nanos: (milli + rest.signum()).saturating_mul(1_000_000),
            format: self.format,
        }
    }

    /// Whole units, rounded up.
    pub fn value(self) -> i64 {
        self.scaled(NANO)
    }

    /// Thousandths, rounded up.
    pub fn milli(self) -> i64 {
        self.scaled(1_000_000)
    }

    /// The amount where it is a whole number.
    pub fn whole(self) -> Option<i64> {
        self.is_integer().then(|| self.value())
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it has no fraction.
    pub fn is_integer(self) -> bool {
        self.nanos % NANO == 0
    }

    pub fn format(self) -> Format {
        self.format
    }

    fn scaled(self, unit: i128) -> i64 {
        let (mut quotient, rest) = (self.nanos / unit, self.nanos % unit);
        match rest.signum() {
            1 => quotient += 1,
            -1 => quotient -= 1,
            _ => {}
        }
        quotient.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Quantity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Quantity) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Quantity {
    type Output = Quantity;

    /// Keeps the format of the left side unless that is zero.
    fn add(self, other: Quantity) -> Quantity {
        Quantity {
            nanos: self.nanos.saturating_add(other.nanos),
            format: if self.is_zero() {
                other.format
            } else {
                self.format
            },
        }
    }
}

impl Sub for Quantity {
    type Output = Quantity;

    fn sub(self, other: Quantity) -> Quantity {
        Quantity {
            nanos: self.nanos.saturating_sub(other.nanos),
            format: if self.is_zero() {
                other.format
            } else {
                self.format
            },
        }
    }
}

impl std::str::FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Quantity, Error> {
        Quantity::parse(text)
    }
}

/// The canonical text: no fraction, the largest suffix that keeps it exact.
impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return formatter.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANO;
        if self.format == Format::BinarySi && !small && self.is_integer() {
            let (mut number, mut power) = (self.nanos / NANO, 0);
            while number % 1024 == 0 && power < 6 {
                number /= 1024;
                power += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power];
            return write!(formatter, "{number}{suffix}");
        }
        let (mut number, mut exponent) = (self.nanos, -9);
        while number % 1000 == 0 && (exponent < 18 || self.format == Format::DecimalExponent) {
            number /= 1000;
            exponent += 3;
        }
        match (self.format, exponent) {
            (_, 0) => write!(formatter, "{number}"),
            (Format::DecimalExponent, _) => write!(formatter, "{number}e{exponent}"),
            _ => {
                let index = (exponent + 9) / 3;
                let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][index as usize];
                write!(formatter, "{number}{suffix}")
            }
        }
    }
}

fn check_suffix_shape(suffix: &str) -> Result<(), Error> {
    let rest = suffix.trim_start_matches(|character| "eEinumkKMGTP".contains(character));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    match rest.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(()),
        false => Err(Error::Format),
    }
}

fn interpret(suffix: &str) -> Result<(u32, i32, Format), Error> {
    let decimal = |exponent| Ok((10, exponent, Format::DecimalSi));
    let binary = |exponent| Ok((2, exponent, Format::BinarySi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(Error::Suffix)?;
            let exponent: i64 = exponent.parse().map_err(|_| Error::Suffix)?;
            let exponent = exponent.clamp(-1000, 1000) as i32;
            Ok((10, exponent, Format::DecimalExponent))
        }
    }
}

/// `whole.fraction × base^exponent` in nanos, rounded up.
fn magnitude(whole: &str, fraction: &str, base: u32, exponent: i32) -> i128 {
    let mut number: i128 = 0;
    // Digits beyond what fits only matter for rounding up.
    let mut scale = 0i32;
    let mut lost = false;
    for (index, digit) in whole.bytes().chain(fraction.bytes()).enumerate() {
        let after_point = index >= whole.len();
        let next = number
            .checked_mul(10)
            .and_then(|number| number.checked_add(i128::from(digit - b'0')));
        // Leave room for the binary factor and the nano scale.
        match next.filter(|next| *next < 1 << 70) {
            Some(next) => {
                number = next;
                scale -= i32::from(after_point);
            }
            None => {
                lost |= digit != b'0';
                scale += i32::from(!after_point);
            }
        }
    }
    if number == 0 {
        return 0;
    }
    let mut power = scale + 9;
    if base == 2 {
        match number.checked_mul(1i128 << exponent) {
            Some(product) => number = product,
            None => return i128::MAX,
        }
    } else {
        power += exponent;
    }
    while power > 0 {
        match number.checked_mul(10) {
            Some(product) => number = product,
            None => return i128::MAX,
        }
        power -= 1;
    }
    while power < 0 {
        lost |= number % 10 != 0;
        number /= 10;
        power += 1;
        if number == 0 {
            break;
        }
    }
    number + i128::from(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text() {
        let check = |text: &str, expected: &str| {
            let quantity = Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(quantity.to_string(), expected, "{text}");
            assert_eq!(Quantity::parse(expected).unwrap(), quantity, "{text}");
        };
        check("0", "0");
        check("0.0", "0");
        check("-0", "0");
        check("1", "1");
        check("100m", "100m");
        check("1000m", "1");
        check("1500m", "1500m");
        check("1.5", "1500m");
        check("0.5", "500m");
        check(".5", "500m");
        check("5.", "5");
        check("0.0001", "100u");
        check("0.0000000001", "1n");
        check("100000", "100k");
        check("12345", "12345");
        check("1e3", "1e3");
        check("1E3", "1e3");
        check("12e6", "12e6");
        check("1e-3", "1e-3");
        check("1Ki", "1Ki");
        check("1024Ki", "1Mi");
        check("1000Ki", "1000Ki");
        check("0.5Gi", "512Mi");
        check("1.5Gi", "1536Mi");
        check("0.5Ki", "512");
        check("128Mi", "128Mi");
        check("8Ei", "9223372036854775807");
        check("1E", "1E");
        check("-1500m", "-1500m");
        check("+3k", "3k");
        check("1000k", "1M");
        check("18446744073709551616", "18446744073709551616");
    }

    #[test]
    fn errors() {
        let check = |text: &str, expected: Error| {
            assert_eq!(Quantity::parse(text), Err(expected), "{text}");
        };
        check("", Error::Format);
        check("1 Gi", Error::Format);
        check("1X", Error::Format);
        check("1.1.1", Error::Format);
        check("1ii", Error::Suffix);
        check("1K", Error::Suffix);
        check("1mi", Error::Suffix);
        check("1e", Error::Suffix);
        check(".", Error::Number);
    }

    #[test]
    fn comparison_and_arithmetic() {
        let quantity = |text| Quantity::parse(text).unwrap();
        assert!(quantity("1Gi") > quantity("1G"));
        assert_eq!(quantity("1000m"), quantity("1"));
        assert_eq!((quantity("1Gi") + quantity("512Mi")).to_string(), "1536Mi");
        assert_eq!((quantity("1") - quantity("100m")).to_string(), "900m");
        assert_eq!((quantity("0") + quantity("1Gi")).to_string(), "1Gi");
        assert_eq!(quantity("100m").milli(), 100);
        assert_eq!(quantity("0.1m").milli(), 1);
        assert_eq!(quantity("1500m").value(), 2);
        assert_eq!(quantity("64Mi").value(), 64 << 20);
        assert_eq!(Quantity::from_milli(250).to_string(), "250m");
        assert!(!quantity("1500m").is_integer());
    }
}
