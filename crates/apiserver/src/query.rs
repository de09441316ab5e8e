//! Query parameters, percent-decoded.

use api::Status;

/// The parameters of a request, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: Option<&str>) -> Query {
        Query(
            text.unwrap_or_default()
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name, true), decode(value, true))
                })
                .collect(),
        )
    }

    /// The first value of `name`, or "".
    pub fn get(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    /// Whether `name` is set to anything but `0` and `false`, as upstream reads it: also when it has
    /// no value.
    pub fn flag(&self, name: &str) -> bool {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// The number that `name` is set to, as Go reads it; `None` when it is not set.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, Status> {
        let Some((_, text)) = self.0.iter().find(|(key, _)| key == name) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let problem = match is_number {
                true => "value out of range",
                false => "invalid syntax",
            };
            Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {problem}"))
        })
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Undoes percent-encoding; `plus` also turns `+` into a space, as in queries.
pub(crate) fn decode(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return text.to_string();
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while position < bytes.len() {
        let byte = bytes[position];
        let hex = match byte {
            b'%' => text
                .get(position + 1..position + 3)
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        match (hex, byte) {
            (Some(byte), _) => {
                decoded.push(byte);
                position += 3;
                continue;
            }
            (None, b'+') if plus => decoded.push(b' '),
            (None, byte) => decoded.push(byte),
        }
        position += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// A path without its percent-encoding; `None` where an escape is broken or the result is no UTF-8:
/// such a path has no one reading.
pub(crate) fn decode_path(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    if !bytes.contains(&b'%') {
        return Some(path.to_string());
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digit = |digit: u8| (digit as char).to_digit(16);
        decoded.push((digit(digits[0])? << 4 | digit(digits[1])?) as u8);
        rest = after;
    }
    String::from_utf8(decoded).ok()
}

/// Percent-encodes what is not unreserved.
pub(crate) fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                (byte as char).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        let query = Query::parse(Some("a=5&b=-1&c=x&d=&e=99999999999999999999&a=6"));
        assert_eq!(query.integer("a"), Ok(Some(5)));
        assert_eq!(query.integer("b"), Ok(Some(-1)));
        assert_eq!(query.integer("missing"), Ok(None));
        let told = |name: &str| query.integer(name).unwrap_err().message;
        assert_eq!(told("c"), "strconv.ParseInt: parsing \"x\": invalid syntax");
        assert_eq!(told("d"), "strconv.ParseInt: parsing \"\": invalid syntax");
        let large = "strconv.ParseInt: parsing \"99999999999999999999\": value out of range";
        assert_eq!(told("e"), large);
    }

    #[test]
    fn decodes_values_and_flags() {
        let query = Query::parse(Some(
            "fieldSelector=spec.nodeName%3Da%2Bb&watch&x=1+2&pretty=FALSE&f=f&zero=0",
        ));
        assert_eq!(query.get("fieldSelector"), "spec.nodeName=a+b");
        assert_eq!(query.get("x"), "1 2");
        assert!(query.flag("watch"));
        assert!(!query.flag("pretty"));
        assert!(query.flag("f"));
        assert!(!query.flag("zero"));
        assert!(!query.flag("missing"));
        assert_eq!(decode("100%", true), "100%");
    }
}
