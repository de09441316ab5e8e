//! Quantities as the expression language sees them: with the text they were written with, and with
//! the difference between small numbers, which count as integers, and decimals, which do not.
//!
//! Decimals have 38 digits. What needs more loses its last ones.

use std::cmp::Ordering;
use std::fmt;

use crate::{Error, Format};

/// A quantity that remembers how it was written.
#[derive(Clone, Debug)]
pub struct ExactQuantity {
    amount: Amount,
    format: Format,
    /// The text, where it is in canonical form or as good as that.
    text: Option<Box<str>>,
}

/// `value × 10^scale`.
#[derive(Clone, Copy, Debug)]
enum Amount {
    Small { value: i64, scale: i32 },
    Decimal { value: i128, scale: i32 },
}

/// The smallest amount is a billionth.
const SMALLEST_SCALE: i32 = -9;
/// Numbers with so many digits are small.
const SMALL_DIGITS: usize = 18;

impl ExactQuantity {
    pub fn parse(text: &str) -> Result<ExactQuantity, Error> {
        if text.is_empty() {
            return Err(Error::Format);
        }
        if text == "0" {
            return Ok(ExactQuantity::small(0, 0, Format::DecimalSi, Some(text)));
        }
        let parts = Parts::split(text)?;
        let (exponent, mut format) = interpret(parts.suffix).ok_or(Error::Suffix)?;
        let digits = parts.whole.len() + parts.fraction.len();
        let (factor, scale, is_short) = match (format, exponent) {
            (Format::BinarySi, exponent) => {
                // The digits that a power of two has, roughly.
                let most = 14 - (exponent as f32 * 3.0 / 10.0) as i32;
                let is_short = parts.fraction.is_empty() && parts.whole.len() as i32 <= most;
                (1_i64 << exponent, 0, is_short)
            }
            (_, exponent) => (1, exponent, digits <= SMALL_DIGITS),
        };
        let scale = scale.wrapping_sub(parts.fraction.len() as i32);
        if is_short && scale >= SMALLEST_SCALE {
            let shifted = format!("{}{}", parts.whole, parts.fraction);
            let value: i64 = shifted.parse().map_err(|_| Error::Number)?;
            if let Some(product) = value.checked_mul(factor) {
                let is_kept = match format {
                    Format::BinarySi => value & 7 != 0,
                    _ => scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
                };
                let value = if parts.is_negative { -product } else { product };
                return Ok(ExactQuantity::small(
                    value,
                    scale,
                    format,
                    is_kept.then_some(text),
                ));
            }
        }
        let (mut value, scale) = parts.decimal(exponent, format)?;
        let largest = i128::from(i64::MAX);
        let mut amount = Decimal { value, scale }.rounded(SMALLEST_SCALE);
        if format == Format::BinarySi {
            let one = Decimal { value: 1, scale: 0 };
            let most = Decimal {
                value: largest,
                scale: 0,
            };
            if amount.compare(most).is_gt() {
                amount = most;
            }
            if amount.compare(one).is_lt() && amount.value > 0 {
                format = Format::DecimalSi;
            }
        }
        value = amount.value;
        Ok(ExactQuantity {
            amount: Amount::Decimal {
                value: if parts.is_negative { -value } else { value },
                scale: amount.scale,
            },
            format,
            text: None,
        })
    }

    /// A whole number, as functions add and subtract it.
    pub fn whole(value: i64) -> ExactQuantity {
        ExactQuantity::small(value, 0, Format::DecimalExponent, None)
    }

    fn small(value: i64, scale: i32, format: Format, text: Option<&str>) -> ExactQuantity {
        ExactQuantity {
            amount: Amount::Small { value, scale },
            format,
            text: text.map(Box::from),
        }
    }

    /// The amount where it is kept as a small whole number; `1000m` is not, though it is one.
    pub fn as_integer(&self) -> Option<i64> {
        match self.amount {
            Amount::Small { value, scale } if scale >= 0 => scaled_up(value, scale),
            _ => None,
        }
    }

    pub fn sign(&self) -> i64 {
        match self.amount {
            Amount::Small { value, .. } => value.signum(),
            Amount::Decimal { value, .. } => value.signum() as i64,
        }
    }

    /// The number, not always the nearest.
    pub fn approximate(&self) -> f64 {
        let (base, exponent) = match self.amount {
            Amount::Small { value, scale } => (value as f64, scale),
            Amount::Decimal { value, scale } => (value as f64, scale),
        };
        match exponent {
            0 => base,
            exponent => base * power_of_ten(exponent),
        }
    }

    pub fn plus(&self, other: &ExactQuantity) -> ExactQuantity {
        self.sum(other, other.amount, other.decimal())
    }

    pub fn minus(&self, other: &ExactQuantity) -> ExactQuantity {
        // The smallest number has no opposite and stays, as upstream's does.
        let small = match other.amount {
            Amount::Small { value, scale } => Amount::Small {
                value: value.wrapping_neg(),
                scale,
            },
            decimal @ Amount::Decimal { .. } => decimal,
        };
        let Decimal { value, scale } = other.decimal();
        let value = value.saturating_neg();
        self.sum(other, small, Decimal { value, scale })
    }

    fn sum(&self, other: &ExactQuantity, small: Amount, decimal: Decimal) -> ExactQuantity {
        let amount = small_sum(self.amount, small).unwrap_or_else(|| {
            let Decimal { value, scale } = self.decimal().plus(decimal);
            Amount::Decimal { value, scale }
        });
        ExactQuantity {
            amount,
            format: if self.sign() == 0 {
                other.format
            } else {
                self.format
            },
            text: None,
        }
    }

    pub fn compare(&self, other: &ExactQuantity) -> Ordering {
        self.decimal().compare(other.decimal())
    }

    fn decimal(&self) -> Decimal {
        Decimal::from(self.amount)
    }

    fn canonical(&self) -> String {
        if self.sign() == 0 {
            return "0".to_owned();
        }
        let decimal = self.decimal();
        let is_binary = self.format == Format::BinarySi
            && decimal
                .absolute()
                .compare(Decimal {
                    value: 1024,
                    scale: 0,
                })
                .is_ge();
        if is_binary && let Some(whole) = decimal.whole() {
            let (mut number, mut power) = (whole, 0);
            while number % 1024 == 0 {
                number /= 1024;
                power += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            return format!("{number}{}", suffix.get(power).unwrap_or(&""));
        }
        let Decimal {
            mut value,
            mut scale,
        } = decimal;
        while value % 10 == 0 {
            value /= 10;
            scale = scale.wrapping_add(1);
        }
        let mut number = value.to_string();
        while scale % 3 != 0 {
            number.push('0');
            scale = scale.wrapping_sub(1);
        }
        if self.format == Format::DecimalExponent {
            return match scale {
                0 => number,
                _ => format!("{number}e{scale}"),
            };
        }
        let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let index = usize::try_from((i64::from(scale) + 9) / 3).ok();
        let suffix = index
            .filter(|_| scale >= -9)
            .and_then(|index| suffixes.get(index));
        // Beyond the last suffix upstream writes none.
        format!("{number}{}", suffix.unwrap_or(&""))
    }
}

impl fmt::Display for ExactQuantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => formatter.write_str(text),
            None => formatter.write_str(&self.canonical()),
        }
    }
}

/// The sum of two small amounts, where it is one.
fn small_sum(left: Amount, right: Amount) -> Option<Amount> {
    let (
        Amount::Small { value, scale },
        Amount::Small {
            value: other,
            scale: other_scale,
        },
    ) = (left, right)
    else {
        return None;
    };
    if other == 0 {
        return Some(left);
    }
    if value == 0 {
        return Some(right);
    }
    let lowest = scale.min(other_scale);
    let value = scaled_up(value, scale.wrapping_sub(lowest))?;
    let other = scaled_up(other, other_scale.wrapping_sub(lowest))?;
    Some(Amount::Small {
        value: value.checked_add(other)?,
        scale: lowest,
    })
}

fn scaled_up(value: i64, scale: i32) -> Option<i64> {
    if value == 0 {
        return Some(0);
    }
    let factor = u32::try_from(scale)
        .ok()
        .and_then(|scale| 10_i64.checked_pow(scale));
    value.checked_mul(factor?)
}

/// Go's powers of ten, which are products of two from tables and so not always the nearest.
fn power_of_ten(exponent: i32) -> f64 {
    let exact = |exponent: u32| {
        format!("1e{exponent}")
            .parse::<f64>()
            .unwrap_or(f64::INFINITY)
    };
    let size = exponent.unsigned_abs();
    match exponent {
        309.. => f64::INFINITY,
        0..=308 => exact(size / 32 * 32) * exact(size % 32),
        -323..0 => {
            let power: f64 = format!("1e-{}", size / 32 * 32).parse().unwrap_or(0.0);
            power / exact(size % 32)
        }
        _ => 0.0,
    }
}

#[derive(Clone, Copy)]
struct Decimal {
    value: i128,
    scale: i32,
}

impl From<Amount> for Decimal {
    fn from(amount: Amount) -> Decimal {
        match amount {
            Amount::Small { value, scale } => Decimal {
                value: value.into(),
                scale,
            },
            Amount::Decimal { value, scale } => Decimal { value, scale },
        }
    }
}

impl Decimal {
    /// Away from zero to a scale.
    fn rounded(self, scale: i32) -> Decimal {
        if self.scale >= scale || self.value == 0 {
            return self;
        }
        let drop = scale.wrapping_sub(self.scale).unsigned_abs();
        let Some(divisor) = 10_i128.checked_pow(drop) else {
            return Decimal {
                value: self.value.signum(),
                scale,
            };
        };
        let (quotient, rest) = (self.value / divisor, self.value % divisor);
        Decimal {
            value: quotient + rest.signum(),
            scale,
        }
    }

    fn absolute(self) -> Decimal {
        Decimal {
            value: self.value.saturating_abs(),
            scale: self.scale,
        }
    }

    /// The number, where it has no fraction and fits.
    fn whole(self) -> Option<i128> {
        let power = 10_i128.checked_pow(self.scale.unsigned_abs())?;
        match self.scale {
            0.. => self.value.checked_mul(power),
            _ => (self.value % power == 0).then(|| self.value / power),
        }
    }

    fn plus(self, other: Decimal) -> Decimal {
        if self.value == 0 {
            return other;
        }
        if other.value == 0 {
            return self;
        }
        let lowest = self.scale.min(other.scale);
        let at_lowest = |decimal: Decimal| {
            let raise = decimal.scale.checked_sub(lowest)?.unsigned_abs();
            decimal.value.checked_mul(10_i128.checked_pow(raise)?)
        };
        let sum = at_lowest(self)
            .zip(at_lowest(other))
            .and_then(|(left, right)| left.checked_add(right));
        match sum {
            Some(value) => Decimal {
                value,
                scale: lowest,
            },
            // Too far apart for 38 digits: the larger one remains.
            None if self.absolute().compare(other.absolute()).is_ge() => self,
            None => other,
        }
    }

    fn compare(self, other: Decimal) -> Ordering {
        let signs = self.value.signum().cmp(&other.value.signum());
        if signs.is_ne() || self.value == 0 {
            return signs;
        }
        let order = compare_magnitudes(self, other);
        if self.value < 0 {
            order.reverse()
        } else {
            order
        }
    }
}

/// Of two numbers that are not zero, without regard to their signs.
fn compare_magnitudes(left: Decimal, right: Decimal) -> Ordering {
    let digits = |value: i128| i64::from(value.unsigned_abs().ilog10());
    let highest = |decimal: Decimal| digits(decimal.value) + i64::from(decimal.scale);
    let order = highest(left).cmp(&highest(right));
    if order.is_ne() {
        return order;
    }
    // Both have the same highest place, so that both fit when written with the same number of digits.
    let places = digits(left.value).max(digits(right.value));
    let aligned = |decimal: Decimal| {
        let raise = (places - digits(decimal.value)) as u32;
        decimal
            .value
            .unsigned_abs()
            .saturating_mul(10_u128.saturating_pow(raise))
    };
    aligned(left).cmp(&aligned(right))
}

/// The parts of a text as upstream splits it.
struct Parts<'a> {
    is_negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there is a digit at all.
    has_digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Parts<'a>, Error> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let stripped = unsigned.trim_start_matches('0');
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = stripped.split_at(digits(stripped));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        crate::check_suffix_shape(suffix)?;
        Ok(Parts {
            is_negative: text.starts_with('-'),
            whole: if whole.is_empty() { "0" } else { whole },
            fraction,
            suffix,
            has_digits: digits(unsigned) > 0 || !fraction.is_empty(),
        })
    }

    /// The number without its sign, with the suffix applied.
    fn decimal(&self, exponent: i32, format: Format) -> Result<(i128, i32), Error> {
        if !self.has_digits {
            return Err(Error::Number);
        }
        let (mut value, mut scale, mut is_rest) = (0_i128, 0_i32, false);
        for (index, digit) in self.whole.bytes().chain(self.fraction.bytes()).enumerate() {
            let is_fraction = index >= self.whole.len();
            let next = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(i128::from(digit - b'0')));
            // Leaves room for the factor of a binary suffix.
            match next.filter(|next| *next < i128::MAX >> 1) {
                Some(next) if !is_rest => {
                    value = next;
                    scale -= i32::from(is_fraction);
                }
                _ => {
                    is_rest = true;
                    scale = scale.saturating_add(i32::from(!is_fraction));
                }
            }
        }
        match format {
            Format::BinarySi => Ok((value.saturating_mul(1 << exponent), scale)),
            _ => Ok((value, scale.saturating_add(exponent))),
        }
    }
}

/// The exponent of a suffix, of two or ten as the format says. Large ones wrap around, as upstream's.
fn interpret(suffix: &str) -> Option<(i32, Format)> {
    // `Ei` begins as an exponent does and is none.
    let digits = suffix.strip_prefix(['e', 'E']);
    let exponent = digits.and_then(|digits| digits.parse::<i64>().ok());
    let (base, exponent, format) = match exponent {
        Some(exponent) => (10, exponent as i32, Format::DecimalExponent),
        None => crate::interpret(suffix).ok()?,
    };
    debug_assert_eq!(base == 2, format == Format::BinarySi);
    Some((exponent, format))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> ExactQuantity {
        ExactQuantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_text_is_kept_where_upstream_keeps_it() {
        for (text, expected) in [
            ("+5", "+5"),
            ("1e+3", "1e+3"),
            ("5.", "5."),
            ("000001", "000001"),
            ("1.Ki", "1.Ki"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            (".5", "500m"),
            ("k", "0"),
            ("-.", "0"),
            ("1000000E", "1"),
            ("100000000000000000000", "100E"),
            ("1.0000000000000000000000001", "1000000001n"),
            ("0.0001Ki", "102400u"),
            ("8Ei", "9223372036854775807"),
            ("12345678901234567890e-15", "12345678901235e-9"),
            ("1e40", "10e39"),
        ] {
            assert_eq!(quantity(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn only_small_numbers_without_a_fraction_in_their_text_are_integers() {
        for (text, expected) in [
            ("1000m", None),
            ("1.0", None),
            ("1Ki", Some(1024)),
            ("1.5Ki", None),
            ("1k", Some(1000)),
            ("9223372036854775807", None),
            ("999999999999999999", Some(999_999_999_999_999_999)),
        ] {
            assert_eq!(quantity(text).as_integer(), expected, "{text}");
        }
    }

    #[test]
    fn sums_keep_the_format_of_the_left_side_unless_it_is_zero() {
        let sum = |left: &str, right: &str| quantity(left).plus(&quantity(right)).to_string();
        assert_eq!(sum("0Ki", "1.5"), "1500m");
        assert_eq!(sum("1Ki", "1500m"), "1025500m");
        assert_eq!(sum("1023Ki", "1k"), "1048552");
        assert_eq!(sum("500m", "500m"), "1");
        assert_eq!(sum("1e40", "1"), "10e39");
        let one = quantity("1");
        let smallest = ExactQuantity::whole(i64::MIN);
        assert_eq!(one.minus(&smallest).to_string(), "-9223372036854775807");
        let largest = quantity("9223372036854775807");
        let sum = largest.plus(&ExactQuantity::whole(1));
        assert_eq!(sum.to_string(), "9223372036854775808");
    }

    #[test]
    fn amounts_of_any_scale_are_ordered() {
        let compare = |left: &str, right: &str| quantity(left).compare(&quantity(right));
        assert_eq!(compare("1Gi", "1G"), Ordering::Greater);
        assert_eq!(compare("1e400", "1e399"), Ordering::Greater);
        assert_eq!(compare("-1e400", "1n"), Ordering::Less);
        assert_eq!(compare("1000m", "1"), Ordering::Equal);
        assert_eq!(compare("1e-300", "1n"), Ordering::Equal);
        assert_eq!(compare("0.1", "100m"), Ordering::Equal);
    }
}
