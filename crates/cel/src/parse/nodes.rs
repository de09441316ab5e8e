//! The nodes that both ways of parsing make in the same way.

use super::Syntax;
use super::lexer::Kind;
use super::literal;
use crate::ast::{Call, Constant, Expr, Id, Name, Select};
use crate::builder::Builder;
use crate::macros;
use crate::names;

/// The node of a literal, if a token is one.
pub fn constant(
    builder: &mut Builder,
    kind: Kind,
    text: &str,
    is_negative: bool,
    offset: u32,
) -> Option<Id> {
    let value = match kind {
        Kind::Int => literal::int(text, is_negative).ok_or("invalid int literal"),
        Kind::Uint => literal::uint(text).ok_or("invalid uint literal"),
        Kind::Float => literal::double(text, is_negative).ok_or("invalid double literal"),
        Kind::String => quoted(builder, literal::string(text), offset),
        Kind::Bytes => quoted(builder, literal::bytes(&text[1..]), offset),
        Kind::True => Ok(Constant::Bool(true)),
        Kind::False => Ok(Constant::Bool(false)),
        Kind::Null => Ok(Constant::Null),
        _ => return None,
    };
    Some(match value {
        Ok(value) => builder.add(offset, Expr::Constant(value)),
        Err(message) => builder.error(offset, message),
    })
}

/// A string that cannot be read is reported and taken as it is, as cel-go does.
fn quoted(
    builder: &mut Builder,
    value: Result<Constant, &'static str>,
    offset: u32,
) -> Result<Constant, &'static str> {
    value.or_else(|message| {
        builder.error(offset, message);
        Ok(Constant::Null)
    })
}

/// `operand.field` or `operand.?field`.
pub fn select(
    builder: &mut Builder,
    operand: Id,
    (field, field_offset): (Name, u32),
    dot_offset: u32,
    is_optional: bool,
) -> Id {
    if !is_optional {
        let select = Select {
            operand,
            field,
            is_test: false,
        };
        return builder.add(dot_offset, Expr::Select(select));
    }
    let field = builder.add(field_offset, Expr::Constant(Constant::String(field)));
    let call = Call {
        function: names::OPTIONAL_SELECT.clone(),
        target: None,
        arguments: vec![operand, field],
    };
    builder.add(dot_offset, Expr::Call(call))
}

pub fn call_or_macro(
    builder: &mut Builder,
    syntax: Syntax,
    id: Id,
    function: Name,
    target: Option<Id>,
    arguments: Vec<Id>,
) -> Id {
    let expanded = macros::expand(syntax.macros, builder, id, &function, target, &arguments);
    expanded.unwrap_or_else(|| {
        let call = Call {
            function,
            target,
            arguments,
        };
        builder.set(id, Expr::Call(call))
    })
}

/// A tree of an operator over terms, as flat as it can be. Its depth is the logarithm of their
/// number.
pub fn balance(builder: &mut Builder, function: &Name, terms: &[Id], operators: &[Id]) -> Id {
    let middle = operators.len() / 2;
    let Some(&id) = operators.get(middle) else {
        return terms.first().copied().unwrap_or(Id(0));
    };
    let left = balance(builder, function, &terms[..=middle], &operators[..middle]);
    let right = balance(
        builder,
        function,
        &terms[middle + 1..],
        &operators[middle + 1..],
    );
    let call = Call {
        function: function.clone(),
        target: None,
        arguments: vec![left, right],
    };
    builder.set(id, Expr::Call(call))
}

/// Names that are kept for later versions of the language.
pub fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "as" | "break"
            | "const"
            | "continue"
            | "else"
            | "for"
            | "function"
            | "if"
            | "import"
            | "let"
            | "loop"
            | "package"
            | "namespace"
            | "return"
            | "var"
            | "void"
            | "while"
    )
}
