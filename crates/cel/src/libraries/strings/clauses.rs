//! The clauses of formats, such as `%s` and `%.3f`.

/// Reads a clause after its percent sign: its precision, its letter, and what follows it.
pub(crate) fn clause(text: &[u8]) -> Result<(Option<i64>, u8, &[u8]), String> {
    let mut rest = text;
    let mut precision = None;
    if let Some(digits) = rest.strip_prefix(b".") {
        let count = digits
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, after) = digits.split_at(count);
        if after.is_empty() {
            let problem = "could not find end of precision specifier";
            return Err(format!("error while parsing precision: {problem}"));
        }
        let digits = String::from_utf8_lossy(digits);
        let number = digits.parse::<i64>().map_err(|_| {
            let problem = match digits.is_empty() {
                true => "invalid syntax",
                false => "value out of range",
            };
            format!(
                "error while parsing precision: error while converting precision to integer: \
                 strconv.Atoi: parsing \"{digits}\": {problem}"
            )
        })?;
        precision = Some(number);
        rest = after;
    }
    match rest.split_first() {
        Some((letter @ (b's' | b'd' | b'f' | b'e' | b'b' | b'x' | b'X' | b'o'), after)) => {
            Ok((precision, *letter, after))
        }
        other => {
            let letter = other.map_or('\0', |(letter, _)| char::from(*letter));
            Err(format!("unrecognized formatting clause \"{letter}\""))
        }
    }
}
