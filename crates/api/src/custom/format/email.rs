//! One address as mail has it (RFC 5322): `a@b.c`, `<a@b.c>` or `Some Name <a@b.c>`.

pub fn is_address(text: &str) -> bool {
    let mut parser = Parser { rest: text };
    let found = parser.address();
    parser.space();
    found && parser.rest.is_empty()
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn address(&mut self) -> bool {
        self.space();
        if self.rest.is_empty() {
            return false;
        }
        let before = self.rest;
        if self.specification() {
            return true;
        }
        self.rest = before;
        if !self.rest.starts_with('<') && !self.phrase() {
            return false;
        }
        self.space();
        self.take('<') && self.specification() && self.take('>')
    }

    /// `local@domain`.
    fn specification(&mut self) -> bool {
        self.space();
        let local = match self.rest.starts_with('"') {
            true => self.quoted(),
            false => self.atom(true),
        };
        local && self.take('@') && {
            self.space();
            match self.rest.starts_with('[') {
                true => self.literal(),
                false => self.atom(true),
            }
        }
    }

    /// Words before an address in brackets.
    fn phrase(&mut self) -> bool {
        let mut words = 0;
        loop {
            self.space();
            let before = self.rest;
            let word = match self.rest.starts_with('"') {
                true => self.quoted(),
                false => self.take_while(|sign| is_atom(sign) || sign == '.') > 0,
            };
            if !word {
                self.rest = before;
                return words > 0;
            }
            words += 1;
        }
    }

    fn atom(&mut self, dots: bool) -> bool {
        let before = self.rest;
        let length = self.take_while(|sign| is_atom(sign) || (dots && sign == '.'));
        let atom = &before[..length];
        !atom.is_empty() && !atom.starts_with('.') && !atom.ends_with('.') && !atom.contains("..")
    }

    fn quoted(&mut self) -> bool {
        let mut signs = self.rest.char_indices().skip(1);
        while let Some((index, sign)) = signs.next() {
            match sign {
                '"' => {
                    self.rest = &self.rest[index + 1..];
                    return true;
                }
                '\\' => {
                    if signs
                        .next()
                        .is_none_or(|(_, sign)| !is_visible(sign) && !is_space(sign))
                    {
                        return false;
                    }
                }
                sign if is_visible(sign) || is_space(sign) => {}
                _ => return false,
            }
        }
        false
    }

    fn literal(&mut self) -> bool {
        let Some((inner, rest)) = self.rest[1..].split_once(']') else {
            return false;
        };
        self.rest = rest;
        let address = inner.strip_prefix("IPv6:").unwrap_or(inner);
        address.parse::<std::net::IpAddr>().is_ok()
    }

    fn take(&mut self, sign: char) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn take_while(&mut self, holds: impl Fn(char) -> bool) -> usize {
        let length = self
            .rest
            .find(|sign| !holds(sign))
            .unwrap_or(self.rest.len());
        self.rest = &self.rest[length..];
        length
    }

    /// White space and comments, which nest; a comment without an end is left standing.
    fn space(&mut self) {
        loop {
            self.rest = self.rest.trim_start_matches(is_space);
            if !self.rest.starts_with('(') {
                return;
            }
            let mut depth = 0_usize;
            let mut escaped = false;
            let end = self.rest.char_indices().find(|(_, sign)| {
                match (escaped, sign) {
                    (true, _) => escaped = false,
                    (false, '\\') => escaped = true,
                    (false, '(') => depth += 1,
                    (false, ')') => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            match end {
                Some((index, _)) => self.rest = &self.rest[index + 1..],
                None => return,
            }
        }
    }
}

fn is_space(sign: char) -> bool {
    matches!(sign, ' ' | '\t')
}

fn is_visible(sign: char) -> bool {
    sign.is_ascii_graphic() || !sign.is_ascii()
}

fn is_atom(sign: char) -> bool {
    is_visible(sign) && !r#"()<>[]:;@\,".""#.contains(sign)
}
