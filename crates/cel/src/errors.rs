//! The errors of compiling an expression, with their places in the source, as users see them.

use std::fmt;

/// How many errors are kept; of the others only the number is.
const MAX_ERRORS: usize = 100;

/// Longer lines are not shown beside an error.
const MAX_LINE: usize = 16384;

/// What is wrong with an expression. Its text has one paragraph for each error, with the line of the
/// source and a mark below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileErrors {
    source: String,
    errors: Vec<CompileError>,
    total: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// In code points; nothing where the error has no place.
    pub offset: Option<u32>,
    pub message: String,
}

/// Errors as they are found, before it is known whether there are any.
#[derive(Default, Debug)]
pub struct Report {
    errors: Vec<CompileError>,
    total: usize,
}

impl Report {
    pub fn add(&mut self, offset: Option<u32>, message: impl Into<String>) {
        self.total += 1;
        if self.total <= MAX_ERRORS {
            let message = message.into();
            self.errors.push(CompileError { offset, message });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Nothing, if there are no errors.
    pub fn into_result(self, source: &str) -> Result<(), CompileErrors> {
        if self.is_empty() {
            return Ok(());
        }
        Err(self.into_errors(source))
    }

    /// The errors in the order of their places.
    pub fn into_errors(mut self, source: &str) -> CompileErrors {
        self.errors.sort_by_key(|error| error.offset);
        CompileErrors {
            source: source.to_owned(),
            errors: self.errors,
            total: self.total,
        }
    }
}

impl CompileErrors {
    pub fn errors(&self) -> &[CompileError] {
        &self.errors
    }
}

impl std::error::Error for CompileErrors {}

impl fmt::Display for CompileErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                formatter.write_str("\n")?;
            }
            match error.offset {
                Some(offset) => write_with_line(formatter, &self.source, offset, &error.message)?,
                None => write!(formatter, "ERROR: <input>:-1:0: {}", error.message)?,
            }
        }
        if self.total > self.errors.len() {
            let more = self.total - self.errors.len();
            write!(formatter, "\n{more} more errors were truncated")?;
        }
        Ok(())
    }
}

fn write_with_line(
    formatter: &mut fmt::Formatter<'_>,
    source: &str,
    offset: u32,
    message: &str,
) -> fmt::Result {
    let (number, column, line) = line_at(source, offset as usize);
    write!(
        formatter,
        "ERROR: <input>:{number}:{}: {message}",
        // An empty text has no first column.
        column + usize::from(!source.is_empty())
    )?;
    if source.is_empty() || line.len() > MAX_LINE {
        return Ok(());
    }
    let line = line.replace('\t', " ");
    write!(formatter, "\n | {line}\n | ")?;
    let mut characters = line.chars();
    for character in characters.by_ref().take(column) {
        formatter.write_str(if character.is_ascii() { "." } else { "．" })?;
    }
    let is_wide = characters.next().is_some_and(|next| !next.is_ascii());
    formatter.write_str(if is_wide { "＾" } else { "^" })
}

/// The number of the line that holds an offset, the column in it, and its text.
fn line_at(source: &str, offset: usize) -> (usize, usize, &str) {
    let mut start = 0;
    let mut number = 1;
    let mut lines = source.split('\n').peekable();
    while let Some(line) = lines.next() {
        let next = start + line.chars().count() + 1;
        if offset < next || lines.peek().is_none() {
            return (number, offset - start, line);
        }
        start = next;
        number += 1;
    }
    (1, 0, "")
}
