//! From text to the tree of an expression, as cel-go's parser makes it.
//!
//! Expressions without a syntax error take the short way: a recursive descent that makes the tree at
//! once. All others are parsed again the way ANTLR does, for its words and its recovery.

mod antlr;
mod descent;
mod lexer;
mod literal;
mod nodes;
#[cfg(test)]
mod tests;

use crate::ast::Ast;
use crate::builder::Builder;
use crate::errors::{CompileErrors, Report};
use crate::macros::Macros;
use descent::Parsed;

/// The longest expression, in code points.
const MAX_CODE_POINTS: usize = 100_000;

/// What an environment adds to the grammar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Syntax {
    /// `a.?b`, `a[?b]`, `[?a]`, `{?a: b}`.
    pub optional: bool,
    pub macros: Macros,
}

/// The tree of an expression with its macros expanded.
pub fn parse(source: &str, syntax: Syntax) -> Result<Ast, CompileErrors> {
    if source.len() > MAX_CODE_POINTS {
        let size = source.chars().count();
        if size > MAX_CODE_POINTS {
            let mut report = Report::default();
            report.add(
                None,
                format!(
                    "expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}"
                ),
            );
            return Err(report.into_errors(source));
        }
    }
    let (tokens, unrecognized) = lexer::tokens(source);
    if unrecognized.is_empty() {
        let mut builder = Builder::with_capacity(tokens.len() * 2);
        match descent::parse(source, &tokens, syntax, &mut builder) {
            Parsed::Tree(root) => {
                let (ast, report) = builder.into_ast(root);
                report.into_result(source)?;
                return Ok(ast);
            }
            Parsed::TooDeep(message) => {
                let mut report = Report::default();
                report.add(None, message);
                return Err(report.into_errors(source));
            }
            Parsed::Unknown => {}
        }
    }
    let mut builder = Builder::with_capacity(tokens.len() * 2);
    let root = antlr::parse(source, &tokens, &unrecognized, syntax, &mut builder);
    let (ast, report) = builder.into_ast(root);
    report.into_result(source)?;
    Ok(ast)
}
