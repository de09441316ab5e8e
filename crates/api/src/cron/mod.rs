//! Cron schedules: five fields, or a descriptor such as `@daily` or `@every 1h30m`, in a time zone.
//! The API server checks them and the CronJob controller follows them; both read them here.
//!
//! Upstream decides in `github.com/robfig/cron/v3` (`ParseStandard`, `SpecSchedule.Next`): a day is
//! due by its number or by its weekday if both are given. Times that a zone skips are skipped; times
//! that it has twice are met twice.

mod parse;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// A schedule or a time zone that cannot be read. The text is what upstream answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    bits: u64,
    /// Given as `*`, which says nothing.
    is_any: bool,
}

impl Field {
    fn allows(self, number: u32) -> bool {
        self.bits & (1 << number) != 0
    }
}

/// A schedule that matches nothing within this time matches nothing at all, e.g. February 30.
const LONGEST_SEARCH_YEARS: i16 = 5;

impl Schedule {
    /// Reads a schedule for a zone, UTC if none is given; a `TZ=` in the text goes before it.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Schedule, Error> {
        let zone = zone.map_or(Ok(TimeZone::UTC), find_zone)?;
        parse::schedule(text, zone)
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
            if days.is_any || weekdays.is_any {
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

/// The time zone of this name. `Local` is UTC: the cluster has no other clock.
pub fn find_zone(name: &str) -> Result<TimeZone, Error> {
    match name {
        "" | "UTC" | "Local" => Ok(TimeZone::UTC),
        _ => TimeZone::get(name).map_err(|_| Error(format!("unknown time zone {name}"))),
    }
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
    fn cron_fields_accept_ranges_steps_and_names() {
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

    /// What the API server accepts, the controller follows.
    #[test]
    fn odd_schedules_mean_what_upstream_reads_in_them() {
        let new_year = "2026-01-01T00:00:00Z";
        check("1,,2 * * * *", None, new_year, &["2026-01-01T00:01:00Z"]);
        check("*-5 0 * * *", None, new_year, &["2026-01-01T00:01:00Z"]);
        check("@every 0", None, new_year, &["2026-01-01T00:00:01Z"]);
        check("@every -5m", None, new_year, &["2026-01-01T00:00:01Z"]);
        check("@every 1.5h", None, new_year, &["2026-01-01T01:30:00Z"]);
        check("@every 1500ms", None, new_year, &["2026-01-01T00:00:01Z"]);
        check(
            "TZ=Local 0 9 * * *",
            None,
            new_year,
            &["2026-01-01T09:00:00Z"],
        );
    }

    #[test]
    fn errors_are_upstreams() {
        let check = |text: &str, expected: &str| {
            let error = Schedule::parse(text, None).expect_err(text);
            assert_eq!(error.to_string(), expected, "{text}");
        };
        check("a b", "expected exactly 5 fields, found 2: [a b]");
        check(
            "x * * * *",
            r#"failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax"#,
        );
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check(
            "5-1 * * * *",
            "beginning of range (5) beyond end of range (1): 5-1",
        );
        check(
            "*/0 * * * *",
            "step of range should be a positive number: */0",
        );
        check("1-2-3 * * * *", "too many hyphens: 1-2-3");
        check("1/2/3 * * * *", "too many slashes: 1/2/3");
        check("@often", "unrecognized descriptor: @often");
        check(
            "@every 5",
            r#"failed to parse duration @every 5: time: missing unit in duration "5""#,
        );
        check(
            "@every 9999999h",
            r#"failed to parse duration @every 9999999h: time: invalid duration "9999999h""#,
        );
        check(
            "TZ=Moon/Crater * * * * *",
            "provided bad location Moon/Crater: unknown time zone Moon/Crater",
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
        let unknown = unknown.map_err(|error| error.to_string());
        assert_eq!(unknown, Err("unknown time zone Moon/Crater".to_owned()));
        let never = Schedule::parse("0 0 30 feb *", None).unwrap();
        assert_eq!(never.next("2026-01-01T00:00:00Z".parse().unwrap()), None);
    }
}
