//! The `WWW-Authenticate` header: the kinds of authentication that a registry accepts.

/// One kind of authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: String,
        scope: String,
    },
}

/// Every challenge of one header; what is not understood is left out.
pub fn parse(header: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut rest = header.trim_start();
    while !rest.is_empty() {
        let end = rest.find([' ', ',']).unwrap_or(rest.len());
        let (scheme, after) = rest.split_at(end);
        let (parameters, after) = parameters(after);
        rest = after.trim_start_matches([' ', ',']);
        let value = |name: &str| {
            let found = parameters
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        if scheme.eq_ignore_ascii_case("basic") {
            found.push(Challenge::Basic);
        } else if scheme.eq_ignore_ascii_case("bearer") && !value("realm").is_empty() {
            found.push(Challenge::Bearer {
                realm: value("realm"),
                service: value("service"),
                scope: value("scope"),
            });
        }
    }
    found
}

/// `key="value", key=value …` up to the next scheme.
fn parameters(text: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let start = rest.trim_start_matches([' ', ',']);
        let end = start.find(['=', ' ', ',']).unwrap_or(start.len());
        if !start[end..].starts_with('=') {
            return (found, rest);
        }
        let (key, after) = (&start[..end], &start[end + 1..]);
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find([',', ' ']).unwrap_or(after.len());
                (after[..end].to_owned(), &after[end..])
            }
        };
        found.push((key.to_owned(), value));
        rest = after;
    }
}

/// The text before the closing quote, and the rest after it.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return (value, &text[position + 1..]),
            '\\' => value.extend(characters.next().map(|(_, character)| character)),
            character => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: &str, scope: &str) -> Challenge {
        Challenge::Bearer {
            realm: realm.into(),
            service: service.into(),
            scope: scope.into(),
        }
    }

    #[test]
    fn challenges_are_read() {
        for (header, expected) in [
            ("Basic realm=\"x, y\"", vec![Challenge::Basic]),
            (
                "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\",scope=\"repository:a/b:pull,push\"",
                vec![bearer(
                    "https://auth.docker.io/token",
                    "registry.docker.io",
                    "repository:a/b:pull,push",
                )],
            ),
            (
                "bearer realm=https://a, Basic realm=\"b\"",
                vec![bearer("https://a", "", ""), Challenge::Basic],
            ),
            (
                "Negotiate, Bearer realm=\"a\\\"b\"",
                vec![bearer("a\"b", "", "")],
            ),
            ("Bearer", vec![]),
            ("", vec![]),
            (
                "Bearer realm=\"never closed",
                vec![bearer("never closed", "", "")],
            ),
        ] {
            assert_eq!(parse(header), expected, "{header}");
        }
    }
}
