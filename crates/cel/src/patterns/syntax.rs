//! Regular expressions in the syntax of RE2, as Go's `regexp` reads it: checked with its rules and
//! words, and written again for the `regex` crate, whose syntax differs in many small points.
//!
//! One pass over the text. Groups are kept on a stack of our own, so depth costs no recursion, and
//! the text that is written grows linearly.

use super::classes;
use super::escapes::{PatternError, Reason, error, escape};

/// The largest repetition count, alone or as the product of nested ones.
const MAX_REPEAT: u64 = 1000;
/// The deepest tree that Go builds.
const MAX_HEIGHT: u32 = 1000;
/// The largest program that Go builds, in instructions.
const MAX_SIZE: u64 = (128 << 20) / 40;

/// Checks an expression and writes it in the syntax of the `regex` crate.
pub(super) fn translate(pattern: &str) -> Result<String, PatternError> {
    let mut parser = Parser {
        whole: pattern,
        output: String::with_capacity(pattern.len() + pattern.len() / 4),
        flags: Flags::default(),
        groups: Vec::new(),
        sequence: Sequence::default(),
    };
    parser.parse()?;
    Ok(parser.output)
}

#[derive(Clone, Copy, Default)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_matches_newline: bool,
    lazy: bool,
}

/// What is known of a part of the tree: its size, its height, and how often its innermost member is
/// repeated.
#[derive(Clone, Copy)]
struct Part {
    size: u64,
    height: u32,
    repeats: u64,
}

const ATOM: Part = Part {
    size: 1,
    height: 1,
    repeats: 1,
};

/// The alternatives of a group up to the place of reading.
#[derive(Default)]
struct Sequence {
    /// The last part, and where its text begins in the output; a repetition applies to it.
    last: Option<(Part, usize)>,
    last_is_repeated: bool,
    last_is_literal: bool,
    /// The parts before the last one of the same alternative.
    members: u32,
    size: u64,
    height: u32,
    repeats: u64,
    /// The alternatives that are complete.
    alternatives: u32,
    alternatives_size: u64,
    alternatives_height: u32,
}

struct Group {
    flags: Flags,
    is_capture: bool,
    outside: Sequence,
    start: usize,
}

struct Parser<'a> {
    whole: &'a str,
    output: String,
    flags: Flags,
    groups: Vec<Group>,
    sequence: Sequence,
}

impl<'a> Parser<'a> {
    fn parse(&mut self) -> Result<(), PatternError> {
        let mut rest = self.whole;
        // The text from the operator on, where the token before was a repetition.
        let mut last_repeat: Option<&'a str> = None;
        while let Some(first) = rest.chars().next() {
            let mut repeat = None;
            match first {
                '(' if rest.starts_with("(?") => rest = self.flags_or_group(rest)?,
                '(' => {
                    self.open(true)?;
                    rest = &rest[1..];
                }
                '|' => {
                    self.sequence.end_alternative();
                    self.output.push('|');
                    rest = &rest[1..];
                }
                ')' => {
                    self.close()?;
                    rest = &rest[1..];
                }
                '^' => {
                    let text = if self.flags.multi_line {
                        "(?m:^)"
                    } else {
                        r"\A"
                    };
                    self.atom(text)?;
                    rest = &rest[1..];
                }
                '$' => {
                    let text = if self.flags.multi_line {
                        "(?m:$)"
                    } else {
                        r"\z"
                    };
                    self.atom(text)?;
                    rest = &rest[1..];
                }
                '.' => {
                    let text = if self.flags.dot_matches_newline {
                        "(?s:.)"
                    } else {
                        r"[^\n]"
                    };
                    self.atom(text)?;
                    rest = &rest[1..];
                }
                '[' => {
                    let (class, after) = classes::bracketed(rest)?;
                    self.class(&class)?;
                    rest = after;
                }
                '*' | '+' | '?' => {
                    repeat = Some(rest);
                    let before = rest;
                    let (min, max) = match first {
                        '*' => (0, None),
                        '+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    let operator = Repeat {
                        text: &rest[..1],
                        min,
                        max,
                        is_counted: false,
                    };
                    rest = self.repeat(&operator, before, &rest[1..], last_repeat)?;
                }
                '{' => match parse_repeat(rest) {
                    None => {
                        self.literal('{')?;
                        rest = &rest[1..];
                    }
                    Some((min, max, after)) => {
                        repeat = Some(rest);
                        let text = &rest[..rest.len() - after.len()];
                        let (Some(min), Some(max)) = (min, max) else {
                            return Err(error(Reason::RepeatCount, text));
                        };
                        let is_valid = min <= MAX_REPEAT
                            && max.is_none_or(|max| max <= MAX_REPEAT && min <= max);
                        if !is_valid {
                            return Err(error(Reason::RepeatCount, text));
                        }
                        let operator = Repeat {
                            text,
                            min,
                            max,
                            is_counted: true,
                        };
                        rest = self.repeat(&operator, rest, after, last_repeat)?;
                    }
                },
                '\\' => rest = self.escaped(rest)?,
                literal => {
                    self.literal(literal)?;
                    rest = &rest[literal.len_utf8()..];
                }
            }
            last_repeat = repeat;
        }
        if !self.groups.is_empty() {
            return Err(error(Reason::MissingParenthesis, self.whole));
        }
        let part = std::mem::take(&mut self.sequence).finish();
        self.check(part)
    }

    fn escaped(&mut self, rest: &'a str) -> Result<&'a str, PatternError> {
        let after = &rest[rest.len().min(2)..];
        match rest.as_bytes().get(1) {
            Some(b'A') => self.atom(r"\A").map(|()| after),
            Some(b'b') => self.atom(r"(?-u:\b)").map(|()| after),
            Some(b'B') => self.atom(r"(?-u:\B)").map(|()| after),
            Some(b'z') => self.atom(r"\z").map(|()| after),
            Some(b'C') => Err(error(Reason::Escape, &rest[..2])),
            Some(b'Q') => {
                let (literals, after) = after.split_once(r"\E").unwrap_or((after, ""));
                for literal in literals.chars() {
                    self.literal(literal)?;
                }
                Ok(after)
            }
            _ => {
                if let Some((class, after)) = classes::escaped(rest)? {
                    self.class(&class)?;
                    return Ok(after);
                }
                let (code, after) = escape(rest)?;
                match char::from_u32(code) {
                    Some(literal) => self.literal(literal)?,
                    // Half of a surrogate pair is no character and matches nothing.
                    None => self.atom(classes::NOTHING)?,
                }
                Ok(after)
            }
        }
    }

    /// `(?P<name>`, `(?<name>`, `(?flags)` and `(?flags:`.
    fn flags_or_group(&mut self, rest: &'a str) -> Result<&'a str, PatternError> {
        let bytes = rest.as_bytes();
        let name_start = if rest.len() > 4 && bytes[2] == b'P' && bytes[3] == b'<' {
            Some(4)
        } else if rest.len() > 3 && bytes[2] == b'<' {
            Some(3)
        } else {
            None
        };
        if let Some(start) = name_start {
            let end = rest
                .find('>')
                .ok_or_else(|| error(Reason::NamedCapture, rest))?;
            let name = rest.get(start..end).unwrap_or_default();
            let is_name = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(error(Reason::NamedCapture, &rest[..=end]));
            }
            self.open(true)?;
            return Ok(&rest[end + 1..]);
        }
        let mut flags = self.flags;
        let (mut is_set, mut saw_flag) = (true, false);
        for (position, character) in rest.char_indices().skip(2) {
            let after = &rest[position + character.len_utf8()..];
            match character {
                'i' => flags.fold_case = is_set,
                'm' => flags.multi_line = is_set,
                's' => flags.dot_matches_newline = is_set,
                'U' => flags.lazy = is_set,
                '-' if is_set => {
                    is_set = false;
                    saw_flag = false;
                    continue;
                }
                ':' | ')' if is_set || saw_flag => {
                    if character == ':' {
                        self.open(false)?;
                    }
                    self.flags = flags;
                    return Ok(after);
                }
                _ => {
                    return Err(error(Reason::PerlSyntax, &rest[..rest.len() - after.len()]));
                }
            }
            saw_flag = true;
        }
        Err(error(Reason::PerlSyntax, rest))
    }

    fn open(&mut self, is_capture: bool) -> Result<(), PatternError> {
        // Each level of captures is one of height.
        if self.groups.len() > MAX_HEIGHT as usize * 2 {
            return Err(error(Reason::NestingDepth, self.whole));
        }
        self.groups.push(Group {
            flags: self.flags,
            is_capture,
            outside: std::mem::take(&mut self.sequence),
            start: self.output.len(),
        });
        self.output.push_str("(?:");
        Ok(())
    }

    fn close(&mut self) -> Result<(), PatternError> {
        let Some(group) = self.groups.pop() else {
            return Err(error(Reason::UnexpectedParenthesis, self.whole));
        };
        let mut part = std::mem::replace(&mut self.sequence, group.outside).finish();
        if group.is_capture {
            part.size = part.size.saturating_add(2);
            part.height += 1;
        }
        self.flags = group.flags;
        self.output.push(')');
        self.sequence.push(part, group.start, false);
        self.check(part)
    }

    fn repeat(
        &mut self,
        operator: &Repeat<'_>,
        before: &'a str,
        mut after: &'a str,
        last_repeat: Option<&'a str>,
    ) -> Result<&'a str, PatternError> {
        let mut lazy = self.flags.lazy;
        if let Some(rest) = after.strip_prefix('?') {
            after = rest;
            lazy = !lazy;
        }
        if let Some(last) = last_repeat {
            let text = &last[..last.len() - after.len()];
            return Err(error(Reason::RepeatOperator, text));
        }
        let text = &before[..before.len() - after.len()];
        let Some((part, start)) = self.sequence.last else {
            return Err(error(Reason::MissingRepeatArgument, text));
        };
        if self.sequence.last_is_repeated {
            self.output.insert_str(start, "(?:");
            self.output.push(')');
        }
        self.output.push_str(operator.text);
        if lazy {
            self.output.push('?');
        }
        let part = operator.apply(part);
        self.sequence.last = Some((part, start));
        self.sequence.last_is_repeated = true;
        self.sequence.last_is_literal = false;
        self.check(part)?;
        let counts = operator.min >= 2 || operator.max.is_some_and(|max| max >= 2);
        if operator.is_counted && counts && part.repeats > MAX_REPEAT {
            return Err(error(Reason::RepeatCount, text));
        }
        Ok(after)
    }

    fn literal(&mut self, literal: char) -> Result<(), PatternError> {
        let start = self.output.len();
        if self.flags.fold_case && literal.is_alphabetic() {
            self.output.push_str("(?i:");
            classes::push_literal(&mut self.output, literal);
            self.output.push(')');
        } else {
            classes::push_literal(&mut self.output, literal);
        }
        self.sequence.push(ATOM, start, true);
        Ok(())
    }

    fn class(&mut self, class: &str) -> Result<(), PatternError> {
        if self.flags.fold_case {
            self.atom(&format!("(?i:{class})"))
        } else {
            self.atom(class)
        }
    }

    fn atom(&mut self, text: &str) -> Result<(), PatternError> {
        let start = self.output.len();
        self.output.push_str(text);
        self.sequence.push(ATOM, start, false);
        Ok(())
    }

    fn check(&self, part: Part) -> Result<(), PatternError> {
        if part.size > MAX_SIZE {
            return Err(error(Reason::TooLarge, self.whole));
        }
        if part.height > MAX_HEIGHT {
            return Err(error(Reason::NestingDepth, self.whole));
        }
        Ok(())
    }
}

impl Sequence {
    fn push(&mut self, part: Part, start: usize, is_literal: bool) {
        if let Some((last, _)) = self.last.take() {
            // Literals beside each other are one node of the tree.
            let is_joined = is_literal && self.last_is_literal;
            self.add(last, u32::from(!is_joined));
        }
        self.last = Some((part, start));
        self.last_is_repeated = false;
        self.last_is_literal = is_literal;
    }

    fn add(&mut self, part: Part, members: u32) {
        self.members += members;
        self.size = self.size.saturating_add(part.size);
        self.height = self.height.max(part.height);
        self.repeats = self.repeats.max(part.repeats);
    }

    fn end_alternative(&mut self) {
        if let Some((last, _)) = self.last.take() {
            self.add(last, 1);
        }
        let height = self.height.max(1) + u32::from(self.members > 1);
        self.alternatives += 1;
        self.alternatives_size = self.alternatives_size.saturating_add(self.size.max(1));
        self.alternatives_height = self.alternatives_height.max(height);
        self.members = 0;
        self.size = 0;
        self.height = 0;
        self.last_is_repeated = false;
        self.last_is_literal = false;
    }

    fn finish(mut self) -> Part {
        self.end_alternative();
        let several = self.alternatives > 1;
        Part {
            size: self
                .alternatives_size
                .saturating_add(u64::from(self.alternatives - 1)),
            height: self.alternatives_height + u32::from(several),
            repeats: self.repeats.max(1),
        }
    }
}

struct Repeat<'a> {
    text: &'a str,
    min: u64,
    max: Option<u64>,
    /// Written with numbers.
    is_counted: bool,
}

impl Repeat<'_> {
    fn apply(&self, part: Part) -> Part {
        let size = match (self.is_counted, self.max) {
            (false, None) => part.size.saturating_add(2 - self.min),
            (false, Some(_)) => part.size.saturating_add(1),
            (true, None) if self.min == 0 => part.size.saturating_add(2),
            (true, None) => part.size.saturating_mul(self.min).saturating_add(1),
            (true, Some(max)) => part.size.saturating_mul(max).saturating_add(max - self.min),
        };
        let repeats = match (self.is_counted, self.max) {
            (false, _) => part.repeats,
            (true, Some(0)) => 1,
            (true, Some(count)) => part.repeats.saturating_mul(count),
            (true, None) => part.repeats.saturating_mul(self.min.max(1)),
        };
        Part {
            size: size.max(1),
            height: part.height + 1,
            repeats,
        }
    }
}

type Counts<'a> = (Option<u64>, Option<Option<u64>>, &'a str);

/// `{min}`, `{min,}` or `{min,max}` with what follows, if the text has that form. A number that is
/// too big is none.
fn parse_repeat(text: &str) -> Option<Counts<'_>> {
    let (min, rest) = parse_count(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (min.map(Some), rest),
        Some(rest) if rest.starts_with('}') => (Some(None), rest),
        Some(rest) => {
            let (max, rest) = parse_count(rest)?;
            (max.map(Some), rest)
        }
    };
    Some((min, max, rest.strip_prefix('}')?))
}

fn parse_count(text: &str) -> Option<(Option<u64>, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return None;
    }
    let count = digits
        .parse()
        .ok()
        .filter(|count: &u64| *count < 1_000_000_000);
    Some((count, rest))
}
