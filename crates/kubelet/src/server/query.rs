//! Queries of URLs, decoded.

/// Decoded `key=value` pairs of a query.
pub fn pairs(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut result = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = bytes
            .get(index + 1..index + 3)
            .filter(|_| bytes[index] == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (hex, bytes[index]) {
            (Some(byte), _) => {
                result.push(byte);
                index += 2;
            }
            (None, b'+') => result.push(b' '),
            (None, byte) => result.push(byte),
        }
        index += 1;
    }
    String::from_utf8_lossy(&result).into_owned()
}
