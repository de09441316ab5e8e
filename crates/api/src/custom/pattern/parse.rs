//! Reads a pattern as Go does, and writes it in the syntax of the `regex` crate: the same meaning
//! with the few differences spelled out (ASCII classes, brackets and operators inside classes, octal
//! escapes, `\Q…\E`, braces that are no repetition).

use super::class::{self, push_literal};
use super::error::PatternError;

/// How deeply groups may stand within each other.
const DEEPEST: usize = 1000;
/// The largest count of a repetition.
const MOST_REPEATS: u32 = 1000;

/// The pattern in the other syntax.
pub(super) fn translate(pattern: &str) -> Result<String, PatternError> {
    let mut parser = Parser {
        pattern,
        rest: pattern,
        output: String::with_capacity(pattern.len() + 8),
        groups: 0,
        repeats: vec![1],
    };
    parser.run()?;
    Ok(parser.output)
}

struct Parser<'a> {
    pattern: &'a str,
    rest: &'a str,
    output: String,
    /// How many groups are open.
    groups: usize,
    /// The product of the counts of what repeats inside each open group: counts multiply.
    repeats: Vec<u32>,
}

/// What a repetition can follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Nothing that can repeat.
    Nothing,
    /// Something, that within itself repeats this often at most.
    Something(u32),
    /// A repetition; where its operator starts.
    Repeated(usize),
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Result<(), PatternError> {
        let mut before = Before::Nothing;
        while let Some(sign) = self.rest.chars().next() {
            before = match sign {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => self.copy(1, Before::Nothing),
                '^' | '$' | '.' => self.copy(1, Before::Something(1)),
                '[' => {
                    let length = class::translate(self.rest, &mut self.output)?;
                    self.rest = &self.rest[length..];
                    Before::Something(1)
                }
                '*' | '+' | '?' => self.repeat(1, before, 1)?,
                '{' => match self.counts()? {
                    Some((length, most)) => self.repeat(length, before, most)?,
                    None => self.literal('{'),
                },
                '\\' => self.escape(before)?,
                other => self.literal(other),
            };
        }
        match self.groups {
            0 => Ok(()),
            _ => Err(PatternError::new("missing closing )", self.pattern)),
        }
    }

    fn copy(&mut self, length: usize, before: Before) -> Before {
        self.output.push_str(&self.rest[..length]);
        self.rest = &self.rest[length..];
        before
    }

    fn literal(&mut self, sign: char) -> Before {
        push_literal(&mut self.output, sign);
        self.rest = &self.rest[sign.len_utf8()..];
        Before::Something(1)
    }

    fn position(&self) -> usize {
        self.pattern.len() - self.rest.len()
    }

    /// An operator of `length` bytes that repeats what stands before it up to `most` times.
    fn repeat(&mut self, length: usize, before: Before, most: u32) -> Result<Before, PatternError> {
        let start = self.position();
        let operator = &self.rest[..length];
        let within = match before {
            Before::Nothing => {
                let code = "missing argument to repetition operator";
                return Err(PatternError::new(code, operator));
            }
            Before::Repeated(from) => {
                let both = &self.pattern[from..start + length];
                return Err(PatternError::new(
                    "invalid nested repetition operator",
                    both,
                ));
            }
            Before::Something(within) => within,
        };
        let total = within.saturating_mul(most.max(1));
        if total > MOST_REPEATS {
            return Err(PatternError::new("invalid repeat count", operator));
        }
        if let Some(group) = self.repeats.last_mut() {
            *group = (*group).max(total);
        }
        self.copy(length, before);
        if self.rest.starts_with('?') {
            self.copy(1, before);
        }
        Ok(Before::Repeated(start))
    }

    /// The length of `{n}`, `{n,}` or `{n,m}` at hand and its largest count; other braces stand for
    /// themselves.
    fn counts(&self) -> Result<Option<(usize, u32)>, PatternError> {
        let Some(end) = self.rest.find('}') else {
            return Ok(None);
        };
        let inner = &self.rest[1..end];
        let (least, most) = match inner.split_once(',') {
            None => (inner, Some(inner)),
            Some((least, "")) => (least, None),
            Some((least, most)) => (least, Some(most)),
        };
        let is_number = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_digit())
                && (text == "0" || !text.starts_with('0'))
        };
        if !is_number(least) || !most.is_none_or(is_number) {
            return Ok(None);
        }
        let count = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
        let (least, most) = (count(least), most.map(count));
        let largest = most.unwrap_or(least);
        if least > MOST_REPEATS || largest > MOST_REPEATS || least > largest {
            let part = &self.rest[..=end];
            return Err(PatternError::new("invalid repeat count", part));
        }
        Ok(Some((end + 1, largest)))
    }

    fn open(&mut self) -> Result<Before, PatternError> {
        if self.groups == DEEPEST {
            let code = "expression nests too deeply";
            return Err(PatternError::new(code, self.pattern));
        }
        if self.rest.starts_with("(?") {
            let named = ["(?P<", "(?<"]
                .into_iter()
                .find(|start| self.rest.starts_with(start));
            match named {
                Some(start) => return self.named(start),
                None => return self.flags(),
            }
        }
        self.copy(1, Before::Nothing);
        Ok(self.enter())
    }

    fn enter(&mut self) -> Before {
        self.groups += 1;
        self.repeats.push(1);
        Before::Nothing
    }

    fn named(&mut self, start: &str) -> Result<Before, PatternError> {
        let code = "invalid named capture";
        let Some(end) = self.rest.find('>') else {
            return Err(PatternError::new(code, self.rest));
        };
        let name = &self.rest[start.len()..end];
        let whole = &self.rest[..=end];
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_word) {
            return Err(PatternError::new(code, whole));
        }
        // Captures are not used, and the other syntax allows fewer names.
        self.output.push('(');
        self.rest = &self.rest[end + 1..];
        Ok(self.enter())
    }

    /// `(?i)` for the rest of the group, or `(?i:…)`.
    fn flags(&mut self) -> Result<Before, PatternError> {
        let invalid = |end: usize| {
            let part = &self.rest[..end];
            PatternError::new("invalid or unsupported Perl syntax", part)
        };
        let mut negated = false;
        let mut any = false;
        for (index, sign) in self.rest.char_indices().skip(2) {
            let end = index + sign.len_utf8();
            match sign {
                'i' | 'm' | 's' | 'U' => any = true,
                '-' if negated => return Err(invalid(end)),
                '-' => {
                    negated = true;
                    any = false;
                }
                ':' | ')' => {
                    if negated && !any {
                        return Err(invalid(end));
                    }
                    // `(?)` and `(?:` carry no flags; the first has no other form here.
                    if end == 3 && sign == ')' {
                        self.output.push_str("(?:)");
                        self.rest = &self.rest[end..];
                        return Ok(Before::Nothing);
                    }
                    self.copy(end, Before::Nothing);
                    return Ok(match sign {
                        ':' => self.enter(),
                        _ => Before::Nothing,
                    });
                }
                _ => return Err(invalid(end)),
            }
        }
        Err(invalid(self.rest.len()))
    }

    fn close(&mut self) -> Result<Before, PatternError> {
        if self.groups == 0 {
            return Err(PatternError::new("unexpected )", self.pattern));
        }
        self.groups -= 1;
        let within = self.repeats.pop().unwrap_or(1);
        if let Some(around) = self.repeats.last_mut() {
            *around = (*around).max(within);
        }
        Ok(self.copy(1, Before::Something(within)))
    }

    fn escape(&mut self, before: Before) -> Result<Before, PatternError> {
        let Some(sign) = self.rest[1..].chars().next() else {
            let code = "trailing backslash at end of expression";
            return Err(PatternError::new(code, ""));
        };
        let replaced = match sign {
            'A' => "\\A",
            'z' => "\\z",
            'b' => "(?-u:\\b)",
            'B' => "(?-u:\\B)",
            'Q' => return Ok(self.quoted(before)),
            _ => {
                let length = class::escape(self.rest, &mut self.output)?;
                self.rest = &self.rest[length..];
                return Ok(Before::Something(1));
            }
        };
        self.output.push_str(replaced);
        self.rest = &self.rest[2..];
        Ok(Before::Something(1))
    }

    /// Everything up to `\E` stands for itself.
    fn quoted(&mut self, before: Before) -> Before {
        let text = &self.rest[2..];
        let (inner, rest) = text.split_once("\\E").unwrap_or((text, ""));
        for sign in inner.chars() {
            push_literal(&mut self.output, sign);
        }
        self.rest = rest;
        match inner.is_empty() {
            true => before,
            false => Before::Something(1),
        }
    }
}
