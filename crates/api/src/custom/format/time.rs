//! Dates, times of day and durations.

/// `2006-01-02`.
pub fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let shape = bytes.len() == 10
        && bytes.iter().enumerate().all(|(place, byte)| match place {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if !shape {
        return false;
    }
    let number = |from: usize, to: usize| text[from..to].parse::<i16>().unwrap_or_default();
    let (month, day) = (number(5, 7) as i8, number(8, 10) as i8);
    jiff::civil::Date::new(number(0, 4), month, day).is_ok()
}

/// A date, `t` and a time of day with a zone. No field of the time is compared with the calendar
/// beyond hours, minutes and seconds.
pub fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some((clock, rest)) = bytes.split_at_checked(8) else {
        return false;
    };
    let pair = |from: usize| clock[from].is_ascii_digit() && clock[from + 1].is_ascii_digit();
    let below = |from: usize, most: &[u8]| pair(from) && &clock[from..from + 2] <= most;
    let is_clock = clock[2] == b':'
        && clock[5] == b':'
        && below(0, b"23")
        && below(3, b"59")
        && below(6, b"59");
    is_clock && (is_zone(rest) || is_zone_after_fraction(&text[8..]))
}

/// Any sign and digits before the zone.
fn is_zone_after_fraction(text: &str) -> bool {
    let mut characters = text.chars();
    if characters.next().is_none_or(|sign| sign == '\n') {
        return false;
    }
    let rest = characters.as_str();
    let zone = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    zone.len() < rest.len() && is_zone(zone.as_bytes())
}

fn is_zone(text: &[u8]) -> bool {
    match text {
        b"z" => true,
        [b'+' | b'-', a, b, b':', c, d] => [a, b, c, d].into_iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

const UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// As Go reads durations, or numbers with units in words anywhere in the text.
pub fn is_duration(text: &str) -> bool {
    duration(text).is_some()
}

/// The nanoseconds of a duration.
pub fn duration(text: &str) -> Option<i64> {
    match is_go_duration(text) {
        true => cel::duration::parse(text),
        false => worded_duration(text),
    }
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    let mut nanoseconds = 0_f64;
    while !rest.is_empty() {
        let is_number = |sign: char| sign.is_ascii_digit() || sign == '.';
        let end = rest.find(|sign| !is_number(sign)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let digits = number.bytes().filter(u8::is_ascii_digit).count();
        if digits == 0 || number.bytes().filter(|byte| *byte == b'.').count() > 1 {
            return false;
        }
        let end = after.find(is_number).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let length = match unit {
            "ns" => 1e0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return false,
        };
        nanoseconds += number.parse::<f64>().unwrap_or_default() * length;
        rest = after;
    }
    nanoseconds <= i64::MAX as f64
}

/// The sum of the numbers whose units are known.
fn worded_duration(text: &str) -> Option<i64> {
    let mut found = None;
    let mut rest = text;
    while let Some(start) = rest.find(|sign: char| sign.is_ascii_digit()) {
        let from = &rest[start..];
        let end = from
            .find(|sign: char| !sign.is_ascii_digit())
            .unwrap_or(from.len());
        let (number, after) = from.split_at(end);
        rest = after;
        let space = |sign: char| matches!(sign, '\t' | '\n' | '\x0c' | '\r' | ' ');
        let after = after.trim_start_matches(space);
        let is_unit = |sign: char| sign.is_ascii_alphabetic() || sign == 'µ';
        let end = after.find(|sign| !is_unit(sign)).unwrap_or(after.len());
        if end == 0 {
            continue;
        }
        let (unit, after) = after.split_at(end);
        rest = after;
        let number = number.parse::<i64>().ok()?;
        let unit = unit.to_lowercase();
        let is_known = |variants: &[&str]| {
            let last = variants.last().copied().unwrap_or_default();
            variants.contains(&unit.as_str()) || unit.starts_with(last)
        };
        let known = UNITS.into_iter().find(|(variants, _)| is_known(variants));
        if let Some((_, length)) = known {
            let sum: i64 = found.unwrap_or_default();
            found = Some(sum.wrapping_add(number.wrapping_mul(length)));
        }
    }
    found
}
