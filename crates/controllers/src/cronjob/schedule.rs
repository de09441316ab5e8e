//! Cron schedules: five fields, names, ranges, steps, `@hourly` and the like, `@every 1h30m`, in a
//! time zone. Pure.
//!
//! Times that a zone skips are skipped; times that it has twice are met twice.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("expected exactly 5 fields, found {found}: [{text}]")]
    Fields { found: usize, text: String },
    #[error("failed to parse {what} from {text}")]
    Number { what: &'static str, text: String },
    #[error("{bound} ({value}) {direction} {limit}: {text}")]
    Range {
        bound: &'static str,
        value: u32,
        direction: &'static str,
        limit: u32,
        text: String,
    },
    #[error("step of range should be a positive number: {0}")]
    Step(String),
    #[error("unrecognized descriptor: {0}")]
    Descriptor(String),
    #[error("failed to parse duration {0}")]
    Duration(String),
    #[error("unknown time zone {0}")]
    Zone(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    Fields {
        minutes: Field,
        hours: Field,
        days: Field,
        months: Field,
        weekdays: Field,
        zone: TimeZone,
    },
    /// A fixed pause, counted from whole seconds.
    Every(SignedDuration),
}

/// The numbers a field allows, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    bits: u64,
    /// Given as `*`: says nothing.
    any: bool,
}

impl Field {
    fn allows(self, number: u32) -> bool {
        self.bits & (1 << number) != 0
    }
}

struct Bounds {
    least: u32,
    most: u32,
    names: &'static [&'static str],
    /// The number of the first name.
    first_name: u32,
}

const MINUTES: Bounds = bounds(0, 59);
const HOURS: Bounds = bounds(0, 23);
const DAYS: Bounds = bounds(1, 31);
const MONTHS: Bounds = Bounds {
    least: 1,
    most: 12,
    names: &[
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ],
    first_name: 1,
};
const WEEKDAYS: Bounds = Bounds {
    least: 0,
    most: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    first_name: 0,
};
/// A schedule that matches nothing within this time matches nothing at all, e.g. February 30.
const LONGEST_SEARCH_YEARS: i16 = 5;

const fn bounds(least: u32, most: u32) -> Bounds {
    Bounds {
        least,
        most,
        names: &[],
        first_name: 0,
    }
}

impl Schedule {
    /// `zone` is that of the CronJob; a `TZ=` in the text itself goes before it.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Schedule, Error> {
        let mut text = text.trim();
        let mut zone = zone.map(str::to_owned);
        for prefix in ["TZ=", "CRON_TZ="] {
            if let Some(rest) = text.strip_prefix(prefix) {
                let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                zone = Some(name.to_owned());
                text = rest.trim();
                break;
            }
        }
        let zone = match zone.as_deref() {
            None | Some("" | "UTC") => TimeZone::UTC,
            Some(name) => find_zone(name).ok_or_else(|| Error::Zone(name.to_owned()))?,
        };
        if text.starts_with('@') {
            return descriptor(text, zone);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(Error::Fields {
                found: fields.len(),
                text: fields.join(" "),
            });
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

    /// The first time after `after`; nothing when there is none within years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let whole = Timestamp::from_second(after.as_second()).ok()?;
        let (minutes, hours, days, months, weekdays, zone) = match self {
            Schedule::Every(pause) => return whole.checked_add(*pause).ok(),
            Schedule::Fields {
                minutes,
                hours,
                days,
                months,
                weekdays,
                zone,
            } => (minutes, hours, days, months, weekdays, zone),
        };
        let day_allowed = |date: Date| {
            let by_day = days.allows(date.day().unsigned_abs().into());
            let weekday = date.weekday().to_sunday_zero_offset();
            let by_weekday = weekdays.allows(weekday.unsigned_abs().into());
            if days.any || weekdays.any {
                by_day && by_weekday
            } else {
                by_day || by_weekday
            }
        };
        let start = whole.checked_add(SignedDuration::from_secs(1)).ok()?;
        let mut at = start.to_zoned(zone.clone());
        let last_year = at.year() + LONGEST_SEARCH_YEARS;
        while at.year() <= last_year {
            let date = at.date();
            if !months.allows(date.month().unsigned_abs().into()) {
                let next = date.first_of_month().checked_add(Span::new().months(1));
                at = midnight(next.ok()?, zone)?;
            } else if !day_allowed(date) {
                at = midnight(date.tomorrow().ok()?, zone)?;
            } else if !hours.allows(at.hour().unsigned_abs().into()) {
                at = later(&at, 3600)?;
            } else if !minutes.allows(at.minute().unsigned_abs().into()) || at.second() != 0 {
                at = later(&at, 60)?;
            } else {
                return Some(at.timestamp());
            }
        }
        None
    }
}

pub fn find_zone(name: &str) -> Option<TimeZone> {
    TimeZone::get(name).ok()
}

fn midnight(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.at(0, 0, 0, 0).to_zoned(zone.clone()).ok()
}

/// The next full unit of `seconds` on the zone's clock, in elapsed time.
fn later(at: &Zoned, seconds: i64) -> Option<Zoned> {
    let into_hour = i64::from(at.minute()) * 60 + i64::from(at.second());
    let step = seconds - into_hour % seconds;
    at.checked_add(SignedDuration::from_secs(step)).ok()
}

fn descriptor(text: &str, zone: TimeZone) -> Result<Schedule, Error> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let Some(pause) = text.strip_prefix("@every ") else {
                return Err(Error::Descriptor(text.to_owned()));
            };
            let pause = duration(pause).ok_or_else(|| Error::Duration(text.to_owned()))?;
            return Ok(Schedule::Every(pause));
        }
    };
    let Schedule::Fields {
        minutes,
        hours,
        days,
        months,
        weekdays,
        ..
    } = Schedule::parse(fields, None)?
    else {
        return Err(Error::Descriptor(text.to_owned()));
    };
    Ok(Schedule::Fields {
        minutes,
        hours,
        days,
        months,
        weekdays,
        zone,
    })
}

/// Go's notation, e.g. `1h30m` or `1.5h`; whole seconds, at least one.
fn duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        let factor = match &rest[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number * factor;
        rest = &rest[unit..];
    }
    Some(SignedDuration::from_secs((seconds as i64).max(1)))
}

fn field(text: &str, bounds: &Bounds) -> Result<Field, Error> {
    let mut field = Field {
        bits: 0,
        any: false,
    };
    for part in text.split(',') {
        let one = range(part, bounds)?;
        field.bits |= one.bits;
        field.any |= one.any;
    }
    Ok(field)
}

fn range(text: &str, bounds: &Bounds) -> Result<Field, Error> {
    let (span, step) = match text.split_once('/') {
        Some((span, step)) => (span, Some(step)),
        None => (text, None),
    };
    let (mut any, single) = (matches!(span, "*" | "?"), !span.contains('-'));
    let (first, mut last) = if any {
        (bounds.least, bounds.most)
    } else {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        (number(first, bounds)?, number(last, bounds)?)
    };
    let step = match step {
        None => 1,
        Some(step) => {
            if single && !any {
                last = bounds.most;
            }
            let step: u32 = step.parse().map_err(|_| Error::Number {
                what: "int",
                text: step.to_owned(),
            })?;
            any &= step <= 1;
            step
        }
    };
    let out_of_range = |bound, value, direction, limit| Error::Range {
        bound,
        value,
        direction,
        limit,
        text: text.to_owned(),
    };
    if first < bounds.least {
        let least = bounds.least;
        return Err(out_of_range(
            "beginning of range",
            first,
            "below minimum",
            least,
        ));
    }
    if last > bounds.most {
        let most = bounds.most;
        return Err(out_of_range("end of range", last, "above maximum", most));
    }
    if first > last {
        let bound = "beginning of range";
        return Err(out_of_range(bound, first, "beyond end of range", last));
    }
    if step == 0 {
        return Err(Error::Step(text.to_owned()));
    }
    let bits = (first..=last)
        .step_by(step as usize)
        .fold(0, |bits, number| bits | 1 << number);
    Ok(Field { bits, any })
}

fn number(text: &str, bounds: &Bounds) -> Result<u32, Error> {
    let name = text.to_ascii_lowercase();
    if let Some(position) = bounds.names.iter().position(|one| *one == name) {
        return Ok(position as u32 + bounds.first_name);
    }
    text.parse().map_err(|_| Error::Number {
        what: "int",
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: &str, zone: Option<&str>, after: &str, expected: &[&str]) {
        let schedule = Schedule::parse(schedule, zone).unwrap();
        let mut at: Timestamp = after.parse().unwrap();
        for expected in expected {
            at = schedule.next(at).unwrap();
            assert_eq!(at, expected.parse().unwrap(), "{schedule:?}");
        }
    }

    #[test]
    fn fields_ranges_steps_and_names() {
        check(
            "*/15 * * * *",
            None,
            "2026-01-01T00:00:00Z",
            &["2026-01-01T00:15:00Z"],
        );
        check(
            "* * * * *",
            None,
            "2026-01-01T00:00:30Z",
            &["2026-01-01T00:01:00Z"],
        );
        check(
            "5,35 9-10 * * mon-fri",
            None,
            "2026-01-02T10:05:00Z",
            &["2026-01-02T10:35:00Z", "2026-01-05T09:05:00Z"],
        );
        check(
            "0 0 29 feb *",
            None,
            "2026-01-01T00:00:00Z",
            &["2028-02-29T00:00:00Z"],
        );
        check(
            "30/10 0 * * *",
            None,
            "2026-01-01T00:00:00Z",
            &[
                "2026-01-01T00:30:00Z",
                "2026-01-01T00:40:00Z",
                "2026-01-01T00:50:00Z",
                "2026-01-02T00:30:00Z",
            ],
        );
        // Day and weekday both given: either will do.
        check(
            "0 0 13 * fri",
            None,
            "2026-01-10T00:00:00Z",
            &["2026-01-13T00:00:00Z", "2026-01-16T00:00:00Z"],
        );
        // A step makes the star say something.
        check(
            "0 0 */10 * fri",
            None,
            "2026-01-01T00:00:00Z",
            &[
                "2026-01-02T00:00:00Z",
                "2026-01-09T00:00:00Z",
                "2026-01-11T00:00:00Z",
            ],
        );
    }

    #[test]
    fn descriptors() {
        check(
            "@hourly",
            None,
            "2026-01-01T00:10:00Z",
            &["2026-01-01T01:00:00Z"],
        );
        check(
            "@weekly",
            None,
            "2026-01-01T00:10:00Z",
            &["2026-01-04T00:00:00Z"],
        );
        check(
            "@yearly",
            None,
            "2026-01-01T00:10:00Z",
            &["2027-01-01T00:00:00Z"],
        );
        check(
            "@every 1h30m",
            None,
            "2026-01-01T00:10:00.7Z",
            &["2026-01-01T01:40:00Z", "2026-01-01T03:10:00Z"],
        );
    }

    #[test]
    fn zones_with_their_gaps_and_repetitions() {
        let new_york = Some("America/New_York");
        check(
            "30 9 * * *",
            new_york,
            "2026-01-01T00:00:00Z",
            &["2026-01-01T14:30:00Z"],
        );
        check(
            "TZ=Asia/Tokyo 0 9 * * *",
            new_york,
            "2026-01-01T01:00:00Z",
            &["2026-01-02T00:00:00Z"],
        );
        // 2:30 does not exist on March 8.
        check(
            "30 2 * * *",
            new_york,
            "2026-03-07T08:00:00Z",
            &["2026-03-09T06:30:00Z"],
        );
        // 1:30 exists twice on November 1.
        check(
            "30 1 * * *",
            new_york,
            "2026-11-01T00:00:00Z",
            &[
                "2026-11-01T05:30:00Z",
                "2026-11-01T06:30:00Z",
                "2026-11-02T06:30:00Z",
            ],
        );
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "@sometimes",
            "@every",
            "@every x",
        ] {
            assert!(Schedule::parse(text, None).is_err(), "{text:?}");
        }
        let unknown = Schedule::parse("* * * * *", Some("Moon/Crater"));
        assert_eq!(unknown, Err(Error::Zone("Moon/Crater".to_owned())));
        let never = Schedule::parse("0 0 30 feb *", None).unwrap();
        assert_eq!(never.next("2026-01-01T00:00:00Z".parse().unwrap()), None);
    }
}
