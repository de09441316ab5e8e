//! Ages as kubectl prints them: two units at most, e.g. `5m30s`, `3h`, `2d4h`.

use crate::document::Value;

/// The age since an RFC 3339 time, `<unknown>` where there is none.
pub fn age(since: &str, now: jiff::Timestamp) -> String {
    match since.parse::<jiff::Timestamp>() {
        Ok(since) => human(now.as_second() - since.as_second()),
        Err(_) => "<unknown>".to_string(),
    }
}

/// The age of an object.
pub fn object_age(object: &Value, now: jiff::Timestamp) -> String {
    age(object.str_at(&["metadata", "creationTimestamp"]), now)
}

/// Seconds in human form.
pub fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let pair = |first: i64, first_unit: &str, second: i64, second_unit: &str| match second {
        0 => format!("{first}{first_unit}"),
        _ => format!("{first}{first_unit}{second}{second_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_string(),
        -1 | 0 => "0s".to_string(),
        1..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(hours / 24, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{}d", hours / 24),
        63_072_000..252_288_000 => pair(hours / 8760, "y", (hours / 24) % 365, "d"),
        _ => format!("{}y", hours / 8760),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_durations() {
        let check = |seconds, expected: &str| assert_eq!(human(seconds), expected, "{seconds}");
        check(-5, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(125, "2m5s");
        check(601, "10m");
        check(10_799, "179m");
        check(10_800, "3h");
        check(10_860, "3h1m");
        check(28_800, "8h");
        check(172_799, "47h");
        check(172_800, "2d");
        check(180_000, "2d2h");
        check(691_200, "8d");
        check(63_072_000, "2y");
        check(63_072_000 + 86_400, "2y1d");
        check(252_288_000 + 86_400, "8y");
    }
}
