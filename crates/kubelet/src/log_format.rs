//! The CRI log format: `<RFC 3339 time> <stdout|stderr> <P|F> <text>`, one record per line, a
//! line that was too long split into `P` parts closed by an `F`.

/// One parsed record. `text` carries its newline unless the record is a part.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub time: &'a str,
    pub stream: &'a str,
    pub partial: bool,
    pub text: &'a [u8],
}

/// Parses one line without its newline. `None` when it is not in the format.
pub fn parse(line: &[u8]) -> Option<Record<'_>> {
    let (time, rest) = split(line)?;
    let (stream, rest) = split(rest)?;
    let (tags, text) = match split(rest) {
        Some((tags, text)) => (tags, text),
        // An empty message may have lost its trailing space.
        None => (rest, &rest[rest.len()..]),
    };
    let stream = std::str::from_utf8(stream).ok()?;
    if stream != "stdout" && stream != "stderr" {
        return None;
    }
    Some(Record {
        time: std::str::from_utf8(time).ok()?,
        stream,
        partial: tags.split(|byte| *byte == b':').next() == Some(b"P"),
        text,
    })
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == b' ')?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed() {
        let record =
            parse(b"2026-01-02T03:04:05.000000001Z stdout F hello  world").expect("record");
        assert_eq!(record.time, "2026-01-02T03:04:05.000000001Z");
        assert_eq!((record.stream, record.partial), ("stdout", false));
        assert_eq!(record.text, b"hello  world");
        let part = parse(b"2026-01-02T03:04:05Z stderr P half").expect("record");
        assert!(part.partial);
        assert_eq!(
            parse(b"2026-01-02T03:04:05Z stdout F")
                .expect("record")
                .text,
            b""
        );
        assert_eq!(
            parse(b"2026-01-02T03:04:05Z stdout F ")
                .expect("record")
                .text,
            b""
        );
        assert_eq!(parse(b"nonsense"), None);
        assert_eq!(parse(b"2026 nowhere F x"), None);
    }
}
