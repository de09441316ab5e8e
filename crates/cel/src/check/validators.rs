//! What Kubernetes checks of an expression whose types are right: literals of durations, timestamps
//! and regular expressions, and that all members of a literal list or map have one type.

use super::Strictness;
use crate::ast::{Ast, Constant, Expr, Id};
use crate::checked::{CheckedAst, Reference};
use crate::errors::Report;
use crate::function::Implementation;
use crate::types::Type;
use crate::value::{Shared, Value};

pub fn check_literals(checked: &CheckedAst, strictness: Strictness, report: &mut Report) {
    let mut validator = Validator { checked, report };
    walk(&checked.ast, |id, expr, is_in_format| match expr {
        Expr::Call(call) => {
            if let (true, Some(argument)) = (strictness.literals, call.arguments.first()) {
                validator.check_argument(id, &call.function, *argument);
            }
        }
        Expr::List(_) | Expr::Map(_) if is_in_format && strictness.format => {}
        Expr::List(list) => {
            let optional = |index: usize| list.optional.contains(&(index as u32));
            let mut first = None;
            for (index, item) in list.items.iter().enumerate() {
                let of = validator.member_type(*item, optional(index));
                if !validator.check_same(*item, &mut first, of) {
                    break;
                }
            }
        }
        Expr::Map(entries) => {
            let mut key = None;
            let mut value = None;
            for entry in entries {
                let key_type = validator.member_type(entry.key, false);
                let value_type = validator.member_type(entry.value, entry.is_optional);
                validator.check_same(entry.key, &mut key, key_type);
                validator.check_same(entry.value, &mut value, value_type);
            }
        }
        _ => {}
    });
}

struct Validator<'a, 'r> {
    checked: &'a CheckedAst,
    report: &'r mut Report,
}

impl<'a> Validator<'a, '_> {
    fn error(&mut self, id: Id, message: String) {
        let node = self.checked.ast.nodes.get(id.0 as usize);
        self.report.add(node.map(|node| node.offset), message);
    }

    fn member_type(&self, id: Id, is_optional: bool) -> &'a Type {
        let of = self.checked.type_of(id);
        match of.in_optional() {
            Some(inner) if is_optional => inner,
            _ => of,
        }
    }

    fn check_same(&mut self, id: Id, first: &mut Option<&'a Type>, of: &'a Type) -> bool {
        let expected = *first.get_or_insert(of);
        if expected == of {
            return true;
        }
        let message = format!(
            "expected type '{}' but found '{}'",
            expected.in_errors(),
            of.in_errors()
        );
        self.error(id, message);
        false
    }

    fn check_argument(&mut self, call: Id, function: &str, argument: Id) {
        let Expr::Constant(constant) = self.checked.ast.expr(argument) else {
            return;
        };
        let is_valid = match (function, constant) {
            ("duration" | "timestamp", constant) => self.has_value(call, constant),
            ("matches", Constant::String(pattern)) => crate::patterns::compile(pattern).is_ok(),
            _ => true,
        };
        if !is_valid {
            self.error(argument, format!("invalid {function} argument"));
        }
    }

    /// Whether a conversion of a constant has a value.
    fn has_value(&self, call: Id, constant: &Constant) -> bool {
        let Some(Reference::Function { overloads, .. }) = self.checked.reference(call) else {
            return true;
        };
        let value = value_of(constant);
        overloads
            .iter()
            .any(|overload| match overload.implementation {
                Implementation::BuiltIn => true,
                Implementation::Function(compute) | Implementation::Singleton(compute) => {
                    compute(std::slice::from_ref(&value)).is_ok()
                }
            })
    }
}

fn value_of(constant: &Constant) -> Value<'_> {
    match constant {
        Constant::Null => Value::Null,
        Constant::Bool(value) => Value::Bool(*value),
        Constant::Int(value) => Value::Int(*value),
        Constant::Uint(value) => Value::Uint(*value),
        Constant::Double(value) => Value::Double(*value),
        Constant::String(value) => Value::String(Shared::Borrowed(value)),
        Constant::Bytes(value) => Value::Bytes(Shared::Borrowed(value)),
    }
}

/// Visits all nodes, each with whether it is within a call of `format`.
pub fn walk<'a>(ast: &'a Ast, mut visit: impl FnMut(Id, &'a Expr, bool)) {
    let mut left = vec![(ast.root, false)];
    while let Some((id, is_in_format)) = left.pop() {
        let expr = ast.expr(id);
        visit(id, expr, is_in_format);
        let mut is_below = is_in_format;
        let mut add = |id: Id, is_below: bool| left.push((id, is_below));
        match expr {
            Expr::Unspecified | Expr::Constant(_) | Expr::Ident(_) => {}
            Expr::Select(select) => add(select.operand, is_below),
            Expr::Call(call) => {
                is_below |= &*call.function == "format";
                for id in call.target.iter().chain(&call.arguments) {
                    add(*id, is_below);
                }
            }
            Expr::List(list) => list.items.iter().for_each(|id| add(*id, is_below)),
            Expr::Map(entries) => {
                for entry in entries {
                    add(entry.key, is_below);
                    add(entry.value, is_below);
                }
            }
            Expr::Struct(literal) => {
                for field in &literal.fields {
                    add(field.value, is_below);
                }
            }
            Expr::Comprehension(fold) => {
                for id in [
                    fold.range,
                    fold.initial,
                    fold.condition,
                    fold.step,
                    fold.result,
                ] {
                    add(id, is_below);
                }
            }
        }
    }
}
