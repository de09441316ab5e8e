//! Lengths of time as Go reads and writes them, in nanoseconds.

/// As Go's `time.ParseDuration`: `1h30m`, `-1.5s`, `0`.
pub fn parse(text: &str) -> Option<i64> {
    let (is_negative, mut rest) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if rest == b"0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    // Like Go, one more than the largest is allowed until the sign is known.
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let whole_digits = digits(rest);
        let whole = whole_digits.iter().try_fold(0u64, |value, byte| {
            value
                .checked_mul(10)?
                .checked_add(u64::from(byte - b'0'))
                .filter(|value| *value <= 1 << 63)
        })?;
        rest = &rest[whole_digits.len()..];
        let mut fraction: &[u8] = &[];
        if let [b'.', after @ ..] = rest {
            fraction = digits(after);
            rest = &after[fraction.len()..];
        }
        if whole_digits.is_empty() && fraction.is_empty() {
            return None;
        }
        let length = rest
            .iter()
            .position(|byte| *byte == b'.' || byte.is_ascii_digit())
            .unwrap_or(rest.len());
        let unit = unit(&rest[..length])?;
        rest = &rest[length..];
        let mut value = whole.checked_mul(unit).filter(|value| *value <= 1 << 63)?;
        if !fraction.is_empty() {
            value += part_of(fraction, unit);
        }
        sum = sum.checked_add(value).filter(|sum| *sum <= 1 << 63)?;
    }
    if is_negative {
        0i64.checked_sub_unsigned(sum)
    } else {
        i64::try_from(sum).ok()
    }
}

/// As `string()` shows it: seconds with as many digits as the number needs.
pub fn in_seconds(nanoseconds: i64) -> String {
    format!("{}s", seconds(nanoseconds))
}

/// As Go's `time.Duration.String`: `1h0m0s`, `1.5ms`.
pub fn go_text(nanoseconds: i64) -> String {
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    let text = match total {
        0..1_000 => format!("{total}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(total, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(total, 1_000_000)),
        _ => {
            let minutes = total / 60_000_000_000;
            let seconds = decimal(total % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// As Go computes them: whole seconds and the rest are converted apart.
fn seconds(nanoseconds: i64) -> f64 {
    (nanoseconds / 1_000_000_000) as f64 + (nanoseconds % 1_000_000_000) as f64 / 1e9
}

fn decimal(value: u64, unit: u64) -> String {
    if value.is_multiple_of(unit) {
        return (value / unit).to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{:0width$}", value % unit);
    format!("{}.{}", value / unit, digits.trim_end_matches('0'))
}

fn digits(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    &text[..count]
}

fn unit(name: &[u8]) -> Option<u64> {
    Some(match std::str::from_utf8(name).ok()? {
        "ns" => 1,
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// A decimal fraction of a unit. Digits that no longer fit are dropped.
fn part_of(fraction: &[u8], unit: u64) -> u64 {
    let (mut value, mut scale) = (0u64, 1f64);
    for byte in fraction {
        if value > (i64::MAX as u64) / 10 {
            break;
        }
        let next = value * 10 + u64::from(byte - b'0');
        if next > 1 << 63 {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}
