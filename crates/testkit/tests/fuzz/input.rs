//! Input that no honest client sends.

use api::schema::Definition;

use crate::random::Random;

/// Pieces of which selectors, documents, paths and pointers are made.
const PIECES: [&str; 34] = [
    "a", "app", "!", "=", "==", "!=", " in ", " notin ", "(", ")", ",", "/", "\\", "\"", "'", "{",
    "}", "[", "]", ":", "- ", "\n", "*a", "&a ", "0", "~1", "<<: ", "? ", "|", ">-", "\t", "%",
    "..", "é",
];

/// Text of a few pieces.
pub fn pieces(random: &mut Random) -> String {
    let count = random.below(24);
    (0..count).map(|_| *random.pick(&PIECES)).collect()
}

/// One piece again and again: nesting and length.
pub fn repeated(random: &mut Random) -> String {
    const UNITS: [&str; 14] = [
        "[", "{\"a\":", "[{\"a\":", "- ", "a: ", "{a: ", "&a [", "(", "!", ",a", "a=b,", "/a",
        "..", "%2f",
    ];
    let count = 1 + random.below(3_000);
    let unit = *random.pick(&UNITS);
    let mut text = pieces(random);
    text.push_str(&unit.repeat(count));
    if random.one_in(2) {
        let closing = unit.chars().rev().filter_map(|open| match open {
            '[' => Some(']'),
            '{' => Some('}'),
            '(' => Some(')'),
            _ => None,
        });
        let closing: String = closing.collect();
        text.push('1');
        text.push_str(&closing.repeat(count));
    }
    text
}

/// A map with many keys in an order of its own, as JSON.
pub fn many_keys(random: &mut Random) -> String {
    let count = random.below(2_000);
    let mut keys: Vec<usize> = (0..count).collect();
    match random.below(3) {
        0 => keys.reverse(),
        1 => keys.iter_mut().for_each(|key| *key = random.below(count)),
        _ => {}
    }
    let fields: Vec<String> = keys
        .iter()
        .map(|key| format!("\"k{key:05}\":\"v\""))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// Valid bytes with something done to them.
pub fn damaged(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    for _ in 0..=random.below(3) {
        if damaged.is_empty() {
            break;
        }
        let at = random.below(damaged.len());
        match random.below(6) {
            0 => damaged.truncate(at),
            1 => damaged[at] ^= 1 << random.below(8),
            2 => damaged[at] = random.next() as u8,
            3 => {
                damaged.remove(at);
            }
            4 => {
                let part = random.bytes(8);
                damaged.splice(at..at, part);
            }
            _ => {
                let end = (at + random.below(32)).min(damaged.len());
                let part = damaged[at..end].to_vec();
                damaged.extend(part);
            }
        }
    }
    damaged
}

/// A message whose fields exist, but with wire types and lengths of their own choice.
pub fn hostile(definition: &Definition, random: &mut Random) -> Vec<u8> {
    let numbers: Vec<u32> = definition
        .fields
        .iter()
        .filter_map(|field| field.protobuf.map(|(number, _)| number))
        .collect();
    let mut message = Vec::new();
    if numbers.is_empty() {
        return message;
    }
    for _ in 0..random.below(12) {
        let wire_type = random.below(8) as u8;
        message.extend(key(*random.pick(&numbers), wire_type));
        match wire_type {
            0 => message.extend(varint(random.next())),
            1 => message.extend(random.next().to_le_bytes()),
            5 => message.extend((random.next() as u32).to_le_bytes()),
            _ => {
                let bytes = random.bytes(40);
                let length = match random.one_in(4) {
                    true => random.next(),
                    false => bytes.len() as u64,
                };
                message.extend(varint(length));
                message.extend(bytes);
            }
        }
    }
    message
}

/// A field within itself, `depth` times.
pub fn nested(number: u32, depth: usize) -> Vec<u8> {
    // From the inside out, the lengths first.
    let mut lengths = Vec::with_capacity(depth);
    let mut length = 0;
    for _ in 0..depth {
        lengths.push(length);
        length += key(number, 2).len() + varint(length as u64).len();
    }
    let mut message = Vec::with_capacity(length);
    for length in lengths.into_iter().rev() {
        message.extend(key(number, 2));
        message.extend(varint(length as u64));
    }
    message
}

pub fn key(number: u32, wire_type: u8) -> Vec<u8> {
    varint(u64::from(number) << 3 | u64::from(wire_type))
}

pub fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
