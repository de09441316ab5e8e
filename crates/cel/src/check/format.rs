//! Checks the clauses of a literal `"…".format([…])` against the types of its arguments.

use super::validators::walk;
use crate::ast::{Call, Constant, Expr, Id};
use crate::checked::CheckedAst;
use crate::errors::Report;
use crate::libraries::strings::clause;
use crate::types::Type;

pub fn check_formats(checked: &CheckedAst, report: &mut Report) {
    let mut problems = Vec::new();
    walk(&checked.ast, |id, expr, _| {
        let Expr::Call(Call {
            function,
            target: Some(target),
            arguments,
        }) = expr
        else {
            return;
        };
        let (Expr::Constant(Constant::String(format)), &[list]) =
            (checked.ast.expr(*target), &arguments[..])
        else {
            return;
        };
        let Expr::List(list) = checked.ast.expr(list) else {
            return;
        };
        if &**function != "format" {
            return;
        }
        let count = list.items.len();
        let problem = match check_clauses(checked, format, &list.items) {
            Ok(used) if used < count => Some((
                id,
                format!(
                    "too many arguments supplied to string.format (expected {used}, got {count})"
                ),
            )),
            Ok(_) => None,
            Err((at, message)) => Some((at.unwrap_or(id), message)),
        };
        problems.extend(problem);
    });
    // cel-go visits what is below a call before the call, which counts for errors at one place: the
    // reverse of the order of `walk`.
    for (at, message) in problems.into_iter().rev() {
        let offset = checked.ast.nodes.get(at.0 as usize).map(|node| node.offset);
        report.add(offset, message);
    }
}

type Problem = (Option<Id>, String);

/// How many arguments the clauses of a format use.
fn check_clauses(checked: &CheckedAst, format: &str, items: &[Id]) -> Result<usize, Problem> {
    let mut used = 0;
    let mut rest = format.as_bytes();
    while let Some(percent) = rest.iter().position(|byte| *byte == b'%') {
        rest = &rest[percent + 1..];
        if let Some(after) = rest.strip_prefix(b"%") {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Err((None, "unexpected end of string".to_owned()));
        }
        let Some(item) = items.get(used) else {
            return Err((None, format!("index {used} out of range")));
        };
        let (_, clause, after) = clause(rest).map_err(|message| {
            let message = format!("could not parse formatting clause: {message}");
            (None, message)
        })?;
        check_argument(checked, clause, *item)
            .map_err(|(at, message)| (Some(at), format!("error during formatting: {message}")))?;
        rest = after;
        used += 1;
    }
    Ok(used)
}

fn check_argument(checked: &CheckedAst, clause: u8, item: Id) -> Result<(), (Id, String)> {
    let of = checked.type_of(item);
    let is_allowed = *of == Type::Dyn
        || match clause {
            b's' => return check_text(checked, item),
            b'd' | b'o' => matches!(of, Type::Int | Type::Uint),
            b'f' | b'e' => matches!(of, Type::Double | Type::String),
            b'b' => matches!(of, Type::Int | Type::Uint | Type::Bool),
            _ => matches!(of, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
    if is_allowed {
        return Ok(());
    }
    let rule = match clause {
        b'd' => "decimal clause can only be used on integers",
        b'o' => "octal clause can only be used on integers",
        b'f' => "fixed-point clause can only be used on doubles",
        b'e' => "scientific clause can only be used on doubles",
        b'b' => "only integers and bools can be formatted as binary",
        _ => "only integers, byte buffers, and strings can be formatted as hex",
    };
    Err((item, format!("{rule}, was given {}", of.name())))
}

/// The string clause also looks at what is in literal lists and maps.
fn check_text(checked: &CheckedAst, item: Id) -> Result<(), (Id, String)> {
    let of = checked.type_of(item);
    if matches!(of, Type::Object(_) | Type::Opaque(..) | Type::Error) {
        let message = format!(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, \
             types, durations, and timestamps, was given {}",
            of.name()
        );
        return Err((item, message));
    }
    match checked.ast.expr(item) {
        Expr::List(list) => list
            .items
            .iter()
            .try_for_each(|item| check_text(checked, *item)),
        Expr::Map(entries) => entries.iter().try_for_each(|entry| {
            check_text(checked, entry.key)?;
            check_text(checked, entry.value)
        }),
        _ => Ok(()),
    }
}
