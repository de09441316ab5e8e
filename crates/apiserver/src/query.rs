//! Query parameters, percent-decoded.

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

    /// Whether `name` is set to what Go's parser takes for true (also when it has no value).
    pub fn flag(&self, name: &str) -> bool {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .is_some_and(|(_, value)| {
                !matches!(value.as_str(), "0" | "false" | "False" | "f" | "F")
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
    fn decodes_values_and_flags() {
        let query = Query::parse(Some(
            "fieldSelector=spec.nodeName%3Da%2Bb&watch&x=1+2&pretty=false",
        ));
        assert_eq!(query.get("fieldSelector"), "spec.nodeName=a+b");
        assert_eq!(query.get("x"), "1 2");
        assert!(query.flag("watch"));
        assert!(!query.flag("pretty"));
        assert!(!query.flag("missing"));
        assert_eq!(decode("100%", true), "100%");
    }
}
