//! Splits an expression into tokens, with the errors that ANTLR's lexer reports.

/// What a token is, in the order in which the grammar declares them: errors list them so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    Equals = 1,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParenthesis,
    RightParenthesis,
    Dot,
    Comma,
    Minus,
    Exclamation,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float = 31,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    EscapedIdentifier,
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: Kind,
    /// Where its text is, in bytes.
    pub start: u32,
    pub end: u32,
    /// Where it begins, in code points.
    pub offset: u32,
}

impl Token {
    pub fn text<'a>(&self, source: &'a str) -> &'a str {
        source
            .get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// A text that is no token: after how many tokens it was met, and the message.
pub struct Unrecognized {
    pub after: usize,
    /// Where it is, in bytes.
    pub start: usize,
    pub end: usize,
    pub offset: u32,
    pub message: String,
}

/// The tokens of an expression; the last is [`Kind::End`].
pub fn tokens(source: &str) -> (Vec<Token>, Vec<Unrecognized>) {
    let mut lexer = Lexer {
        bytes: source.as_bytes(),
        source,
        position: 0,
        offset: 0,
    };
    let mut tokens = Vec::with_capacity(source.len() / 3 + 1);
    let mut unrecognized = Vec::new();
    loop {
        lexer.skip_hidden();
        let start = lexer.position;
        let offset = lexer.offset;
        let Some(&first) = lexer.bytes.get(start) else {
            tokens.push(Token {
                kind: Kind::End,
                start: start as u32,
                end: start as u32,
                offset,
            });
            return (tokens, unrecognized);
        };
        match lexer.token(first) {
            Ok((kind, end)) => {
                lexer.advance_to(end);
                tokens.push(Token {
                    kind,
                    start: start as u32,
                    end: end as u32,
                    offset,
                });
            }
            // The lexer stops at the first character that no token can go on with, and skips it too.
            Err(stopped_at) => {
                let end = lexer.after_character(stopped_at);
                let text = &source[start..end];
                unrecognized.push(Unrecognized {
                    after: tokens.len(),
                    start,
                    end,
                    offset,
                    message: format!("Syntax error: token recognition error at: '{text}'"),
                });
                lexer.advance_to(end);
            }
        }
    }
}

/// Line breaks and tabs as messages show them.
pub fn escape_whitespace(text: &str) -> String {
    text.replace('\t', "\\t")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
}

struct Lexer<'a> {
    bytes: &'a [u8],
    source: &'a str,
    position: usize,
    offset: u32,
}

impl Lexer<'_> {
    fn at(&self, position: usize) -> u8 {
        self.bytes.get(position).copied().unwrap_or(0)
    }

    fn is_at(&self, position: usize, text: &[u8]) -> bool {
        self.bytes
            .get(position..)
            .is_some_and(|rest| rest.starts_with(text))
    }

    fn advance_to(&mut self, end: usize) {
        let passed = &self.bytes[self.position..end];
        self.offset += passed
            .iter()
            .filter(|byte| !is_continuation(**byte))
            .count() as u32;
        self.position = end;
    }

    /// The place after the character at a place, or the end.
    fn after_character(&self, position: usize) -> usize {
        match self
            .source
            .get(position..)
            .and_then(|rest| rest.chars().next())
        {
            Some(character) => position + character.len_utf8(),
            None => self.bytes.len(),
        }
    }

    fn skip_hidden(&mut self) {
        loop {
            match self.at(self.position) {
                b' ' | b'\t' | b'\r' | b'\n' | 0x0c => {
                    self.position += 1;
                    self.offset += 1;
                }
                b'/' if self.at(self.position + 1) == b'/' => {
                    let rest = &self.bytes[self.position..];
                    let length = rest.iter().position(|byte| *byte == b'\n');
                    self.advance_to(self.position + length.unwrap_or(rest.len()));
                }
                _ => return,
            }
        }
    }

    /// The token that begins here and where it ends, or the place where no token can go on.
    fn token(&self, first: u8) -> Result<(Kind, usize), usize> {
        let start = self.position;
        let second = self.at(start + 1);
        let one = |kind| Ok((kind, start + 1));
        let two = |kind| Ok((kind, start + 2));
        match first {
            b'=' if second == b'=' => two(Kind::Equals),
            b'!' if second == b'=' => two(Kind::NotEquals),
            b'<' if second == b'=' => two(Kind::LessEquals),
            b'>' if second == b'=' => two(Kind::GreaterEquals),
            b'&' if second == b'&' => two(Kind::And),
            b'|' if second == b'|' => two(Kind::Or),
            b'=' | b'&' | b'|' => Err(start + 1),
            b'!' => one(Kind::Exclamation),
            b'<' => one(Kind::Less),
            b'>' => one(Kind::Greater),
            b'[' => one(Kind::LeftBracket),
            b']' => one(Kind::RightBracket),
            b'{' => one(Kind::LeftBrace),
            b'}' => one(Kind::RightBrace),
            b'(' => one(Kind::LeftParenthesis),
            b')' => one(Kind::RightParenthesis),
            b'.' if second.is_ascii_digit() => Ok(self.number(start)),
            b'.' => one(Kind::Dot),
            b',' => one(Kind::Comma),
            b'-' => one(Kind::Minus),
            b'?' => one(Kind::Question),
            b':' => one(Kind::Colon),
            b'+' => one(Kind::Plus),
            b'*' => one(Kind::Star),
            b'/' => one(Kind::Slash),
            b'%' => one(Kind::Percent),
            b'0'..=b'9' => Ok(self.number(start)),
            b'"' | b'\'' => self.quoted(start, false).map(|end| (Kind::String, end)),
            b'`' => self.escaped_identifier(start),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => Ok(self.word(start)),
            _ => Err(start),
        }
    }

    fn digits(&self, from: usize) -> usize {
        self.run(from, |byte| byte.is_ascii_digit())
    }

    fn run(&self, from: usize, matches: fn(&u8) -> bool) -> usize {
        let rest = self.bytes.get(from..).unwrap_or_default();
        from + rest.iter().take_while(|byte| matches(byte)).count()
    }

    fn number(&self, start: usize) -> (Kind, usize) {
        if self.is_at(start, b"0x") {
            let end = self.run(start + 2, u8::is_ascii_hexdigit);
            if end > start + 2 {
                return self.maybe_unsigned(end);
            }
        }
        let whole = self.digits(start);
        let mut end = whole;
        if self.at(whole) == b'.' && self.at(whole + 1).is_ascii_digit() {
            end = self.digits(whole + 1);
        }
        let exponent = end + 1 + usize::from(matches!(self.at(end + 1), b'+' | b'-'));
        if matches!(self.at(end), b'e' | b'E') && self.at(exponent).is_ascii_digit() {
            end = self.digits(exponent);
        }
        if end > whole {
            return (Kind::Float, end);
        }
        self.maybe_unsigned(whole)
    }

    fn maybe_unsigned(&self, end: usize) -> (Kind, usize) {
        match self.at(end) {
            b'u' | b'U' => (Kind::Uint, end + 1),
            _ => (Kind::Int, end),
        }
    }

    /// An identifier, a keyword, or a string with a prefix.
    fn word(&self, start: usize) -> (Kind, usize) {
        let mut quote = start;
        let is_bytes = matches!(self.at(quote), b'b' | b'B');
        quote += usize::from(is_bytes);
        let is_raw = matches!(self.at(quote), b'r' | b'R');
        quote += usize::from(is_raw);
        if quote > start
            && matches!(self.at(quote), b'"' | b'\'')
            && let Ok(end) = self.quoted(quote, is_raw)
        {
            let kind = if is_bytes { Kind::Bytes } else { Kind::String };
            return (kind, end);
        }
        let end = self.run(start, |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let kind = match &self.bytes[start..end] {
            b"in" => Kind::In,
            b"true" => Kind::True,
            b"false" => Kind::False,
            b"null" => Kind::Null,
            _ => Kind::Identifier,
        };
        (kind, end)
    }

    /// The end of a string whose first quote is at a place, or where it cannot go on.
    fn quoted(&self, quote: usize, is_raw: bool) -> Result<usize, usize> {
        let mark = self.at(quote);
        if self.at(quote + 1) == mark && self.at(quote + 2) == mark {
            // Unterminated, its first two quotes are an empty string.
            let triple = [mark; 3];
            return Ok(self
                .string_body(
                    quote + 3,
                    is_raw,
                    |lexer, at| lexer.is_at(at, &triple),
                    |_| false,
                )
                .map_or(quote + 2, |end| end + 3));
        }
        self.string_body(
            quote + 1,
            is_raw,
            |lexer, at| lexer.at(at) == mark,
            |byte| matches!(byte, b'\n' | b'\r'),
        )
        .map(|end| end + 1)
    }

    fn string_body(
        &self,
        from: usize,
        is_raw: bool,
        is_end: impl Fn(&Self, usize) -> bool,
        is_forbidden: fn(u8) -> bool,
    ) -> Result<usize, usize> {
        let mut at = from;
        while at < self.bytes.len() {
            let byte = self.bytes[at];
            if is_end(self, at) {
                return Ok(at);
            }
            if is_forbidden(byte) {
                return Err(at);
            }
            if byte == b'\\' && !is_raw {
                at = self.escape(at)?;
            } else {
                at += 1;
            }
        }
        Err(at)
    }

    /// The place after an escape sequence, or where it cannot go on.
    fn escape(&self, backslash: usize) -> Result<usize, usize> {
        let digits = |from: usize, count: usize, matches: fn(&u8) -> bool| {
            let end = self.run(from, matches).min(from + count);
            if end == from + count {
                Ok(end)
            } else {
                Err(end)
            }
        };
        let at = backslash + 1;
        match self.at(at) {
            b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => {
                Ok(at + 1)
            }
            b'x' | b'X' => digits(at + 1, 2, u8::is_ascii_hexdigit),
            b'u' => digits(at + 1, 4, u8::is_ascii_hexdigit),
            b'U' => digits(at + 1, 8, u8::is_ascii_hexdigit),
            b'0'..=b'3' => digits(at + 1, 2, |byte| matches!(byte, b'0'..=b'7')),
            _ => Err(at),
        }
    }

    fn escaped_identifier(&self, start: usize) -> Result<(Kind, usize), usize> {
        let end = self.run(start + 1, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b' ')
        });
        if end > start + 1 && self.at(end) == b'`' {
            Ok((Kind::EscapedIdentifier, end + 1))
        } else {
            Err(end)
        }
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}
