//! Reads a schedule. What is wrong with one is said in the words of the library that Kubernetes uses.

use environment::go_duration;
use jiff::{SignedDuration, tz::TimeZone};

use super::{Error, Field, Schedule, find_zone};
use crate::field::quote;

/// The numbers that a field allows, and names for them from the least on.
struct Bounds {
    least: u64,
    greatest: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = bounds(0, 59, &[]);
const HOURS: Bounds = bounds(0, 23, &[]);
const DAYS: Bounds = bounds(1, 31, &[]);
const MONTHS: Bounds = bounds(
    1,
    12,
    &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
);
const WEEKDAYS: Bounds = bounds(0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]);

const fn bounds(least: u64, greatest: u64, names: &'static [&'static str]) -> Bounds {
    Bounds {
        least,
        greatest,
        names,
    }
}

/// Reads five fields or a descriptor, for the zone that the text names or else for `zone`.
pub(super) fn schedule(text: &str, zone: TimeZone) -> Result<Schedule, Error> {
    let (mut rest, mut zone) = (text, zone);
    for prefix in ["TZ=", "CRON_TZ="] {
        let Some(zoned) = text.strip_prefix(prefix) else {
            continue;
        };
        let Some((name, fields)) = zoned.split_once(' ') else {
            let bound = prefix.len();
            return Err(Error(format!(
                "invalid schedule format: runtime error: slice bounds out of range [{bound}:-1]"
            )));
        };
        zone = find_zone(name)
            .map_err(|problem| Error(format!("provided bad location {name}: {problem}")))?;
        rest = fields.trim();
        break;
    }
    match rest.starts_with('@') {
        true => descriptor(rest, zone),
        false => fields(rest, zone),
    }
}

fn fields(text: &str, zone: TimeZone) -> Result<Schedule, Error> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minutes, hours, days, months, weekdays] = fields[..] else {
        return Err(Error(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        )));
    };
    Ok(Schedule::Fields {
        minutes: field(minutes, &MINUTES)?,
        hours: field(hours, &HOURS)?,
        days: field(days, &DAYS)?,
        months: field(months, &MONTHS)?,
        weekdays: field(weekdays, &WEEKDAYS)?,
        zone,
    })
}

fn descriptor(text: &str, zone: TimeZone) -> Result<Schedule, Error> {
    let meant = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(pause) = text.strip_prefix("@every ") else {
                return Err(Error(format!("unrecognized descriptor: {text}")));
            };
            let pause = go_duration::parse(pause)
                .map_err(|problem| Error(format!("failed to parse duration {text}: {problem}")))?;
            let seconds = SignedDuration::from_nanos(pause).as_secs().max(1);
            return Ok(Schedule::Every(SignedDuration::from_secs(seconds)));
        }
    };
    fields(meant, zone)
}

/// A list of ranges; empty ones are passed over.
fn field(text: &str, bounds: &Bounds) -> Result<Field, Error> {
    let mut field = Field::default();
    for expression in text.split(',').filter(|expression| !expression.is_empty()) {
        let one = range(expression, bounds)?;
        field.bits |= one.bits;
        field.is_any |= one.is_any;
    }
    Ok(field)
}

fn range(expression: &str, bounds: &Bounds) -> Result<Field, Error> {
    let (least, greatest) = (bounds.least, bounds.greatest);
    let parts: Vec<&str> = expression.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let mut is_any = false;
    let (first, mut last) = match ends.as_slice() {
        ["*" | "?", ..] => {
            is_any = true;
            (least, greatest)
        }
        [only] => {
            let number = number_or_name(only, bounds)?;
            (number, number)
        }
        [first, last] => (
            number_or_name(first, bounds)?,
            number_or_name(last, bounds)?,
        ),
        [first, ..] => {
            number_or_name(first, bounds)?;
            return Err(Error(format!("too many hyphens: {expression}")));
        }
        [] => return Err(Error(format!("too many hyphens: {expression}"))),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            // `5/10` means from five on.
            if ends.len() == 1 {
                last = greatest;
            }
            is_any &= step <= 1;
            step
        }
        _ => return Err(Error(format!("too many slashes: {expression}"))),
    };
    if first < least {
        return Err(Error(format!(
            "beginning of range ({first}) below minimum ({least}): {expression}"
        )));
    }
    if last > greatest {
        return Err(Error(format!(
            "end of range ({last}) above maximum ({greatest}): {expression}"
        )));
    }
    if first > last {
        return Err(Error(format!(
            "beginning of range ({first}) beyond end of range ({last}): {expression}"
        )));
    }
    if step == 0 {
        return Err(Error(format!(
            "step of range should be a positive number: {expression}"
        )));
    }
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    let numbers = (first..=last).step_by(step);
    Ok(Field {
        bits: numbers.fold(0, |bits, number| bits | 1 << number),
        is_any,
    })
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, Error> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(index) => Ok(bounds.least + index as u64),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, Error> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(Error(format!(
            "negative number ({number}) not allowed: {text}"
        ))),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => Err(Error(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: {}",
            quote(text),
            match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
                true => "value out of range",
                false => "invalid syntax",
            }
        ))),
    }
}
