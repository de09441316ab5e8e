//! Kubernetes' library for regular expressions: `find` and `findAll`; and the regular expressions
//! themselves, which `matches` uses too.

mod classes;
mod syntax;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use self::syntax::{PatternError, Reason};
use crate::function::{EvalError, Implementation, Overload};
use crate::libraries::declare::{list, member};
use crate::types::Type;
use crate::value::Value;

/// What a compiled expression may take. Go allows more, but needs less for the same expression.
const MAX_COMPILED_BYTES: usize = 32 << 20;

/// A compiled regular expression. Matching takes linear time.
#[derive(Clone, Debug)]
pub struct Pattern(regex::Regex);

impl Pattern {
    /// Compiles an expression in RE2's syntax; what it refuses, it refuses in Go's words.
    pub fn compile(pattern: &str) -> Result<Pattern, PatternError> {
        let translated = syntax::translate(pattern)?;
        regex::RegexBuilder::new(&translated)
            .size_limit(MAX_COMPILED_BYTES)
            .nest_limit(4 * syntax::MAX_HEIGHT)
            .build()
            .map(Pattern)
            .map_err(|_| PatternError {
                reason: Reason::TooLarge,
                text: pattern.to_owned(),
            })
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

pub fn overloads() -> Vec<Overload> {
    vec![
        member("find", "string_find_string", [Type::String, Type::String], Type::String)
            .implemented(Implementation::Pattern {
                argument: 1,
                function: find,
            }),
        member(
            "findAll",
            "string_find_all_string",
            [Type::String, Type::String],
            list(Type::String),
        )
        .implemented(Implementation::Pattern {
            argument: 1,
            function: find_all,
        }),
        member(
            "findAll",
            "string_find_all_string_int",
            [Type::String, Type::String, Type::Int],
            list(Type::String),
        )
        .implemented(Implementation::Pattern {
            argument: 1,
            function: find_all,
        }),
    ]
}

fn find<'a>(pattern: &Pattern, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text), ..] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let found = pattern.0.find(text).map(|found| found.range());
    Ok(Value::String(part(text, found.unwrap_or(0..0))))
}

fn find_all<'a>(pattern: &Pattern, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text), _, rest @ ..] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let limit = match rest {
        [] => usize::MAX,
        [Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let found = pattern.0.find_iter(text).take(limit);
    let items = found.map(|found| Value::String(part(text, found.range())));
    Ok(Value::List(items.collect::<Vec<_>>().into()))
}

/// A part of a text, borrowed where the text is.
fn part<'a>(text: &Cow<'a, str>, range: std::ops::Range<usize>) -> Cow<'a, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[range]),
        Cow::Owned(text) => Cow::Owned(text[range].to_owned()),
    }
}
