//! How a user or a group is written in an image, a pod, `/etc/passwd` or `/etc/group`. This is the
//! only place that reads it, so that what is checked (`runAsNonRoot`) is what will run.

/// The largest user and group id that Kubernetes knows. The kernel takes 2^32-1 for "leave it as it
/// is", which would leave a process with root's id.
pub const LARGEST: u32 = i32::MAX as u32;

/// A user or a group as an image or a pod writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id<'a> {
    Number(u32),
    /// A number that no user can have; with its value, if that fits.
    OutOfRange(Option<i64>),
    /// Anything else, also nothing at all.
    Name(&'a str),
}

/// What looks like a number is one: it is never looked up as a name, even where it is out of
/// range.
pub fn read(text: &str) -> Id<'_> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Id::Name(text);
    }
    // A number with space around it is not accepted as one.
    match trimmed.parse::<i64>() {
        Ok(value) if trimmed.len() == text.len() => match in_range(value) {
            Some(id) => Id::Number(id),
            None => Id::OutOfRange(Some(value)),
        },
        _ => Id::OutOfRange(None),
    }
}

pub fn in_range(value: i64) -> Option<u32> {
    u32::try_from(value).ok().filter(|id| *id <= LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_number_is_never_a_name() {
        for (text, expected) in [
            ("0", Id::Number(0)),
            ("00", Id::Number(0)),
            ("+0", Id::Number(0)),
            ("-0", Id::Number(0)),
            ("1000", Id::Number(1000)),
            ("2147483647", Id::Number(2_147_483_647)),
            ("2147483648", Id::OutOfRange(Some(2_147_483_648))),
            ("4294967295", Id::OutOfRange(Some(4_294_967_295))),
            ("4294967296", Id::OutOfRange(Some(4_294_967_296))),
            ("-1", Id::OutOfRange(Some(-1))),
            ("99999999999999999999", Id::OutOfRange(None)),
            (" 0", Id::OutOfRange(None)),
            ("0\t", Id::OutOfRange(None)),
            ("", Id::Name("")),
            ("0x0", Id::Name("0x0")),
            ("root", Id::Name("root")),
            ("-", Id::Name("-")),
            ("--1", Id::Name("--1")),
        ] {
            assert_eq!(read(text), expected, "{text:?}");
        }
    }
}
