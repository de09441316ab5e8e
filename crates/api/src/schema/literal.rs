//! Values with a text form of their own: times, bytes. Each is checked as Go's decoder checks it and
//! written again in its canonical form.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROSECONDS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// A text that is no such value, in the words of Go's decoder.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidLiteral(pub String);

/// RFC 3339 to whole seconds in UTC; a fraction is allowed and dropped.
pub(super) fn time(text: &str) -> Result<String, InvalidLiteral> {
    let moment = instant(text).map_err(|rest| unparsable(text, SECONDS, rest))?;
    Ok(moment
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string())
}

/// RFC 3339 with exactly six digits of fraction, to UTC.
pub(super) fn micro_time(text: &str) -> Result<String, InvalidLiteral> {
    let digits = text.get(19..).map_or(0, |rest| {
        let fraction = rest.strip_prefix('.').unwrap_or_default();
        fraction.bytes().take_while(u8::is_ascii_digit).count()
    });
    let moment = instant(text).map_err(|rest| unparsable(text, MICROSECONDS, rest))?;
    if digits != 6 {
        let rest = text.get(19..).unwrap_or_default();
        return Err(unparsable(text, MICROSECONDS, (rest, ".000000")));
    }
    Ok(moment
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string())
}

/// Base64 with padding; line breaks are skipped.
pub(super) fn bytes(text: &str) -> Result<String, InvalidLiteral> {
    // Go does not mind stray bits in the last character.
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let joined: String;
    let text = match text.contains(['\r', '\n']) {
        true => {
            joined = text.replace(['\r', '\n'], "");
            &joined
        }
        false => text,
    };
    let decoded = LENIENT.decode(text).map_err(|error| {
        let place = match error {
            base64::DecodeError::InvalidByte(place, _) => place,
            base64::DecodeError::InvalidLastSymbol(place, _) => place,
            _ => text.len() - text.len() % 4,
        };
        InvalidLiteral(format!("illegal base64 data at input byte {place}"))
    })?;
    Ok(STANDARD.encode(decoded))
}

fn unparsable(text: &str, layout: &str, (rest, element): (&str, &str)) -> InvalidLiteral {
    InvalidLiteral(format!(
        "parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {element:?}"
    ))
}

/// Follows the layout from left to right; fails with what could not be read and as what.
fn instant(text: &str) -> Result<Timestamp, (&str, &'static str)> {
    let mut position = 0;
    for (element, digits) in [
        ("2006", 4),
        ("-", 0),
        ("01", 2),
        ("-", 0),
        ("02", 2),
        ("T", 0),
        ("15", 2),
        (":", 0),
        ("04", 2),
        (":", 0),
        ("05", 2),
    ] {
        let rest = text.get(position..).unwrap_or_default();
        let matches = match digits {
            0 => rest.starts_with(element),
            _ => rest.len() >= digits && rest.bytes().take(digits).all(|b| b.is_ascii_digit()),
        };
        if !matches {
            return Err((rest, element));
        }
        position += element.len();
    }
    let rest = &text[position..];
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    let offset = zone.as_bytes();
    let is_zone =
        zone == "Z" || (offset.len() == 6 && matches!(offset[0], b'+' | b'-') && offset[3] == b':');
    if !is_zone {
        return Err((zone, "Z07:00"));
    }
    text.parse().map_err(|_| (text, "2006"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(
            time("2020-01-02T03:04:05+02:00").unwrap(),
            "2020-01-02T01:04:05Z"
        );
        assert_eq!(
            time("2020-01-02T03:04:05.9Z").unwrap(),
            "2020-01-02T03:04:05Z"
        );
        assert_eq!(
            micro_time("2020-01-02T03:04:05.123456Z").unwrap(),
            "2020-01-02T03:04:05.123456Z"
        );
    }

    #[test]
    fn bad_times_are_explained_as_in_go() {
        assert_eq!(
            time("abc").unwrap_err().0,
            r#"parsing time "abc" as "2006-01-02T15:04:05Z07:00": cannot parse "abc" as "2006""#
        );
        assert_eq!(
            time("2020-01-01T00:00:00").unwrap_err().0,
            r#"parsing time "2020-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#
        );
        assert_eq!(
            micro_time("2020-01-01T00:00:00Z").unwrap_err().0,
            r#"parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }

    #[test]
    fn bytes_are_base64() {
        assert_eq!(bytes("aGk=\n").unwrap(), "aGk=");
        assert_eq!(
            bytes("***").unwrap_err().0,
            "illegal base64 data at input byte 0"
        );
    }
}
