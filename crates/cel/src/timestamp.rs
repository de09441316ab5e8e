//! Moments from year 1 to 9999 to the nanosecond. Unlike jiff's, they reach the end of 9999 and
//! remember the offset that they were written with, because `string()` shows it.

use std::fmt;

use crate::error::EvalError;

/// The first and last second that cel-go allows, from the Unix epoch.
pub const MIN_SECONDS: i64 = -62_135_596_800;
pub const MAX_SECONDS: i64 = 253_402_300_799;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// From the Unix epoch.
    pub seconds: i64,
    pub nanoseconds: u32,
    /// East of UTC, in seconds. It takes no part in comparisons of the language.
    pub offset: i32,
}

/// A moment as a calendar and a clock show it somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: i64,
    /// From 1.
    pub month: i64,
    /// From 1.
    pub day: i64,
    /// From 1.
    pub day_of_year: i64,
    /// From 0, which is Sunday.
    pub day_of_week: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

impl Timestamp {
    /// Reads what Go's `time.Parse` accepts as RFC 3339: the hour may have one digit, the fraction may
    /// follow a comma, and the offset may reach 24 hours.
    pub fn parse(text: &str) -> Option<Timestamp> {
        let mut rest = text.as_bytes();
        let year = number(&mut rest, 4)?;
        expect(&mut rest, b'-')?;
        let month = number(&mut rest, 2)?;
        expect(&mut rest, b'-')?;
        let day = number(&mut rest, 2)?;
        expect(&mut rest, b'T')?;
        let hour = match rest {
            [_, b':', ..] => number(&mut rest, 1)?,
            _ => number(&mut rest, 2)?,
        };
        expect(&mut rest, b':')?;
        let minute = number(&mut rest, 2)?;
        expect(&mut rest, b':')?;
        let second = number(&mut rest, 2)?;
        let nanoseconds = fraction(&mut rest);
        let offset = offset(&mut rest)?;
        let is_valid = rest.is_empty()
            && (1..=12).contains(&month)
            && (1..=days_in(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        is_valid.then(|| Timestamp {
            seconds: days_from_epoch(year, month, day) * 86_400
                + hour * 3600
                + minute * 60
                + second
                - i64::from(offset),
            nanoseconds,
            offset,
        })
    }

    pub fn civil(&self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let (days, clock) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = date_of(days);
        Civil {
            year,
            month,
            day,
            day_of_year: days - days_from_epoch(year, 1, 1) + 1,
            // The epoch was a Thursday.
            day_of_week: (days + 4).rem_euclid(7),
            hour: clock / 3600,
            minute: clock / 60 % 60,
            second: clock % 60,
        }
    }

    /// Seconds east of UTC at this moment, in a zone by name or as `+hh:mm`, read as cel-go does.
    pub fn offset_in(&self, zone: &str) -> Result<i64, EvalError> {
        if let Some((hours, minutes)) = zone.split_once(':') {
            let hours_east = go_int(hours)?;
            let minutes = go_int(minutes)?;
            let minutes = if zone.starts_with('-') {
                -minutes
            } else {
                minutes
            };
            // As in Go, the sum wraps around rather than fails; it is narrowed so that moments stay
            // in a range where the calendar is exact.
            let offset = hours_east.wrapping_mul(60).wrapping_add(minutes);
            return Ok(offset.clamp(-MAX_OFFSET_MINUTES, MAX_OFFSET_MINUTES) * 60);
        }
        // "Local" is the zone of the server's machine, which is UTC for us.
        if matches!(zone, "" | "UTC" | "Local") {
            return Ok(0);
        }
        if zone.starts_with(['/', '\\']) || zone.contains("..") {
            return Err(EvalError::Message("time: invalid location name".to_owned()));
        }
        let unknown = || EvalError::Message(format!("unknown time zone {zone}"));
        let known = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
        // Go looks for files, and so takes names only in the right case.
        if known.iana_name() != Some(zone) {
            return Err(unknown());
        }
        let seconds = self.seconds.clamp(
            jiff::Timestamp::MIN.as_second(),
            jiff::Timestamp::MAX.as_second(),
        );
        let at = jiff::Timestamp::from_second(seconds).map_err(|_| unknown())?;
        Ok(i64::from(known.to_offset(at).seconds()))
    }
}

/// As RFC 3339 with its own offset and as many digits of the second as it needs.
impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.civil(i64::from(self.offset));
        write!(
            formatter,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
        )?;
        if self.nanoseconds != 0 {
            let digits = format!("{:09}", self.nanoseconds);
            write!(formatter, ".{}", digits.trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return formatter.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(formatter, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// So that no moment leaves the years that the arithmetic of the calendar can hold.
const MAX_OFFSET_MINUTES: i64 = 1 << 40;

fn number(rest: &mut &[u8], digits: usize) -> Option<i64> {
    let (taken, left) = rest.split_at_checked(digits)?;
    *rest = left;
    taken.iter().try_fold(0, |value, byte| {
        byte.is_ascii_digit()
            .then(|| value * 10 + i64::from(byte - b'0'))
    })
}

fn expect(rest: &mut &[u8], byte: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[byte])?;
    Some(())
}

/// Nanoseconds of a fraction, of which further digits are dropped.
fn fraction(rest: &mut &[u8]) -> u32 {
    let [b'.' | b',', digits @ ..] = *rest else {
        return 0;
    };
    let count = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if count == 0 {
        return 0;
    }
    *rest = &digits[count..];
    (0..9).fold(0, |value, place| {
        let digit = digits[..count]
            .get(place)
            .map_or(0, |byte| u32::from(byte - b'0'));
        value * 10 + digit
    })
}

fn offset(rest: &mut &[u8]) -> Option<i32> {
    let sign = match rest {
        [b'Z', left @ ..] => {
            *rest = left;
            return Some(0);
        }
        [b'+', left @ ..] => {
            *rest = left;
            1
        }
        [b'-', left @ ..] => {
            *rest = left;
            -1
        }
        _ => return None,
    };
    let hours = number(rest, 2)?;
    expect(rest, b':')?;
    let minutes = number(rest, 2)?;
    if hours > 24 || minutes > 60 {
        return None;
    }
    i32::try_from(sign * (hours * 3600 + minutes * 60)).ok()
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the Gregorian calendar, which repeats every 400 years. Years are counted
/// from March, so that the leap day is the last one.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let from_march = days + 719_468;
    let era = from_march.div_euclid(146_097);
    let day_of_era = from_march.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// As Go's `strconv.Atoi`, with its errors.
fn go_int(text: &str) -> Result<i64, EvalError> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse::<i64>().map_err(|error| {
        let reason = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        EvalError::Message(format!("strconv.Atoi: parsing {text:?}: {reason}"))
    })
}
