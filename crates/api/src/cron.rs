//! Cron schedules: five fields, or a descriptor such as `@daily`. What is wrong with one is told in
//! the words of the library that Kubernetes uses. When a schedule is due is the controllers' matter.

/// The fields in their order, with the least and the greatest number and the names they allow.
const FIELDS: [(u64, u64, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (
        1,
        12,
        &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    ),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// What is wrong with a schedule, if anything.
pub fn check(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    for prefix in ["TZ=", "CRON_TZ="] {
        let Some(zoned) = schedule.strip_prefix(prefix) else {
            continue;
        };
        let Some((zone, fields)) = zoned.split_once(' ') else {
            let bound = prefix.len();
            return Err(format!(
                "invalid schedule format: runtime error: slice bounds out of range [{bound}:-1]"
            ));
        };
        if let Err(problem) = check_zone(zone) {
            return Err(format!("provided bad location {zone}: {problem}"));
        }
        rest = fields.trim();
        break;
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
    }
    for (field, (least, greatest, names)) in fields.iter().zip(FIELDS) {
        for expression in field.split(',').filter(|expression| !expression.is_empty()) {
            range(expression, least, greatest, names)?;
        }
    }
    Ok(())
}

/// What is wrong with the name of a time zone, if anything.
pub fn check_zone(zone: &str) -> Result<(), String> {
    match zone {
        "" | "UTC" | "Local" => Ok(()),
        _ if jiff::tz::db().get(zone).is_ok() => Ok(()),
        _ => Err(format!("unknown time zone {zone}")),
    }
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => {
            Ok(())
        }
        _ => match text.strip_prefix("@every ") {
            Some(length) => duration(length)
                .map_err(|problem| format!("failed to parse duration {text}: {problem}")),
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

/// A duration as Go reads one: numbers with units, such as `1h30m`.
fn duration(text: &str) -> Result<(), String> {
    let invalid = || format!("time: invalid duration {}", crate::field::quote(text));
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let number = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(rest.len());
        let digits = &rest[..number];
        let one_point = digits.matches('.').count() <= 1;
        if !digits.contains(|character: char| character.is_ascii_digit()) || !one_point {
            return Err(invalid());
        }
        rest = &rest[number..];
        let unit = rest
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(rest.len());
        match &rest[..unit] {
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {}
            "" => {
                return Err(format!(
                    "time: missing unit in duration {}",
                    crate::field::quote(text)
                ));
            }
            unknown => {
                return Err(format!(
                    "time: unknown unit {} in duration {}",
                    crate::field::quote(unknown),
                    crate::field::quote(text)
                ));
            }
        }
        rest = &rest[unit..];
    }
    Ok(())
}

fn range(expression: &str, least: u64, greatest: u64, names: &[&str]) -> Result<(), String> {
    let parts: Vec<&str> = expression.split('/').collect();
    let bounds: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = match bounds.as_slice() {
        ["*" | "?", ..] => (least, greatest),
        [only] => {
            let number = number_or_name(only, least, names)?;
            (number, number)
        }
        [first, last] => (
            number_or_name(first, least, names)?,
            number_or_name(last, least, names)?,
        ),
        [first, ..] => {
            number_or_name(first, least, names)?;
            return Err(format!("too many hyphens: {expression}"));
        }
        [] => return Err(format!("too many hyphens: {expression}")),
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if bounds.len() == 1 {
                end = greatest;
            }
            step
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    if start < least {
        return Err(format!(
            "beginning of range ({start}) below minimum ({least}): {expression}"
        ));
    }
    if end > greatest {
        return Err(format!(
            "end of range ({end}) above maximum ({greatest}): {expression}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {expression}"
        ));
    }
    if step == 0 {
        return Err(format!(
            "step of range should be a positive number: {expression}"
        ));
    }
    Ok(())
}

fn number_or_name(text: &str, least: u64, names: &[&str]) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match names.iter().position(|name| *name == lower) {
        Some(index) => Ok(least + index as u64),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: {}",
            crate::field::quote(text),
            match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
                true => "value out of range",
                false => "invalid syntax",
            }
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        let ok = |text: &str| assert_eq!(check(text), Ok(()), "{text}");
        for text in [
            "* * * * ?",
            "0 0 1,15 */2 mon-fri",
            "5/10 4 * JAN sun",
            "@daily",
            "@every 1h30m",
            "TZ=UTC 0 * * * *",
        ] {
            ok(text);
        }
        let wrong = |text: &str, expected: &str| {
            assert_eq!(check(text), Err(expected.to_string()), "{text}");
        };
        wrong("a b", "expected exactly 5 fields, found 2: [a b]");
        wrong(
            "x * * * *",
            r#"failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax"#,
        );
        wrong("60 * * * *", "end of range (60) above maximum (59): 60");
        wrong("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        wrong(
            "5-1 * * * *",
            "beginning of range (5) beyond end of range (1): 5-1",
        );
        wrong(
            "*/0 * * * *",
            "step of range should be a positive number: */0",
        );
        wrong("1-2-3 * * * *", "too many hyphens: 1-2-3");
        wrong("@often", "unrecognized descriptor: @often");
        wrong(
            "@every 5",
            r#"failed to parse duration @every 5: time: missing unit in duration "5""#,
        );
    }
}
