//! The type checker: finds the type of each node, resolves names and overloads, and says what does
//! not fit, in cel-go's words.
//!
//! It walks the tree by recursion; how deep a tree can be is limited by the parser.

mod calls;
mod format;
mod literals;
#[cfg(test)]
mod tests;
mod unify;
mod validators;

use std::fmt::Display;
use std::mem;

use crate::ast::{Ast, Comprehension, Constant, Expr, Id, Name, Select};
use crate::checked::{CheckedAst, Reference};
use crate::declarations::{Declarations, Declared};
use crate::errors::{CompileErrors, Report};
use crate::names;
use crate::types::Type;
use unify::Unifier;

/// How strict an environment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strictness {
    /// `1 < 1.5` and other comparisons of numbers of two types are allowed.
    pub mixed_comparisons: bool,
    /// Literals that can be checked, such as `duration("x")`, are. That the members of lists and maps
    /// have one type always is.
    pub literals: bool,
    /// The arguments of `"…".format([…])` are checked, and may have several types.
    pub format: bool,
}

/// Checks a parsed expression.
pub fn check(
    source: &str,
    ast: Ast,
    declarations: &Declarations,
    strictness: Strictness,
) -> Result<CheckedAst, CompileErrors> {
    let count = ast.nodes.len();
    let mut checker = Checker {
        declarations,
        types: vec![None; count],
        references: vec![None; count],
        ast,
        scope: Vec::new(),
        mixed_comparisons: strictness.mixed_comparisons,
        unifier: Unifier::default(),
        report: Report::default(),
        qualified: String::new(),
    };
    checker.check(checker.ast.root);
    let (checked, report) = checker.finish();
    report.into_result(source)?;
    let mut report = Report::default();
    validators::check_literals(&checked, strictness, &mut report);
    if strictness.format {
        format::check_formats(&checked, &mut report);
    }
    report.into_result(source)?;
    Ok(checked)
}

struct Checker<'a> {
    declarations: &'a Declarations,
    ast: Ast,
    types: Vec<Option<Type>>,
    references: Vec<Option<Reference>>,
    /// The variables of the comprehensions around the place.
    scope: Vec<(Name, Type)>,
    mixed_comparisons: bool,
    unifier: Unifier,
    report: Report,
    /// A buffer for names with dots.
    qualified: String,
}

impl Checker<'_> {
    fn finish(mut self) -> (CheckedAst, Report) {
        let mut types = Vec::with_capacity(self.types.len());
        for of in &self.types {
            types.push(match of {
                Some(of) => self.unifier.substitute(of, true),
                None => Type::Dyn,
            });
        }
        if self.unifier.is_exhausted() && self.report.is_empty() {
            self.report
                .add(None, "the types of the expression are too complex");
        }
        let checked = CheckedAst {
            ast: self.ast,
            types,
            references: self.references,
        };
        (checked, self.report)
    }

    fn check(&mut self, id: Id) {
        let Some(node) = self.ast.nodes.get_mut(id.0 as usize) else {
            return;
        };
        // The node is taken out while what is below it is checked.
        let mut expr = mem::replace(&mut node.expr, Expr::Unspecified);
        match &mut expr {
            Expr::Unspecified => self.error(id, "unexpected unspecified type: "),
            Expr::Constant(constant) => self.set_type(id, type_of_constant(constant)),
            Expr::Ident(name) => {
                if let Some((name, reference, of)) = self.resolve(name) {
                    self.set_reference(id, reference);
                    self.set_type(id, of);
                    expr = Expr::Ident(name);
                } else {
                    let name = name.clone();
                    self.undeclared(id, &name);
                }
            }
            Expr::Select(select) => {
                if let Some(name) = self.check_select(id, select) {
                    expr = Expr::Ident(name);
                }
            }
            Expr::Call(call) => self.check_call(id, call),
            Expr::List(list) => self.check_list(id, list),
            Expr::Map(entries) => self.check_map(id, entries),
            Expr::Struct(literal) => self.check_struct(id, literal),
            Expr::Comprehension(comprehension) => self.check_comprehension(id, comprehension),
        }
        if let Some(node) = self.ast.nodes.get_mut(id.0 as usize) {
            node.expr = expr;
        }
    }

    /// Checks a node and answers with its type.
    fn checked(&mut self, id: Id) -> Type {
        self.check(id);
        self.type_of(id)
    }

    fn type_of(&self, id: Id) -> Type {
        match self.types.get(id.0 as usize) {
            Some(Some(of)) => of.clone(),
            _ => Type::Error,
        }
    }

    fn set_type(&mut self, id: Id, of: Type) {
        if let Some(slot) = self.types.get_mut(id.0 as usize) {
            *slot = Some(of);
        }
    }

    fn set_reference(&mut self, id: Id, reference: Reference) {
        if let Some(slot) = self.references.get_mut(id.0 as usize) {
            *slot = Some(reference);
        }
    }

    fn error(&mut self, id: Id, message: impl Into<String>) {
        let offset = self.ast.nodes.get(id.0 as usize).map(|node| node.offset);
        self.report.add(offset, message);
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        let message = format!(
            "expected type '{}' but found '{}'",
            shown(expected),
            shown(found)
        );
        self.error(id, message);
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        let container = self.declarations.container();
        let message = format!("undeclared reference to '{name}' (in container '{container}')");
        self.error(id, message);
        self.set_type(id, Type::Error);
    }

    /// What a name refers to: its full name, and its type.
    fn resolve(&self, name: &str) -> Option<(Name, Reference, Type)> {
        let simple = name.strip_prefix('.').unwrap_or(name);
        let local = self
            .scope
            .iter()
            .rev()
            .find(|(local, _)| &**local == simple);
        if let Some((local, of)) = local {
            return Some((
                local.clone(),
                Reference::Variable(local.clone()),
                of.clone(),
            ));
        }
        let (name, declared) = self.declarations.resolve(name)?;
        Some(match declared {
            Declared::Variable(of) => (name.clone(), Reference::Variable(name), of),
            Declared::Constant(value) => {
                let of = type_of_constant(&value);
                (name.clone(), Reference::Constant(name, value), of)
            }
            Declared::Type(of) => {
                let type_of = Type::Type(of.clone().into());
                (name.clone(), Reference::Type(name, of), type_of)
            }
        })
    }

    /// A name with dots, if the expression is one, in the buffer.
    fn qualify(&mut self, id: Id) -> bool {
        match self.ast.expr(id) {
            Expr::Ident(name) => {
                self.qualified.clear();
                self.qualified.push_str(name);
                true
            }
            Expr::Select(select) if !select.is_test => {
                let field = select.field.clone();
                let is_qualified = self.qualify(select.operand);
                self.qualified.push('.');
                self.qualified.push_str(&field);
                is_qualified
            }
            _ => false,
        }
    }

    /// Checks `operand.field`. Answers with a name if that is what it turned out to be.
    fn check_select(&mut self, id: Id, select: &Select) -> Option<Name> {
        if !select.is_test && self.qualify(select.operand) {
            let mut full = mem::take(&mut self.qualified);
            full.push('.');
            full.push_str(&select.field);
            let resolved = self.resolve(&full);
            self.qualified = full;
            if let Some((name, reference, of)) = resolved {
                self.set_reference(id, reference);
                self.set_type(id, of);
                return Some(name);
            }
        }
        let of = self.check_field(id, select.operand, &select.field, false);
        let of = if select.is_test {
            Type::Bool
        } else {
            self.unifier.substitute(&of, false)
        };
        self.set_type(id, of);
        None
    }

    fn check_field(&mut self, id: Id, operand: Id, field: &str, is_optional: bool) -> Type {
        let of = self.checked(operand);
        let of = self.unifier.substitute(&of, false);
        let inner = of.in_optional();
        let result = match inner.unwrap_or(&of) {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(name) => {
                let name = name.clone();
                self.field_type(id, &name, field).unwrap_or(Type::Error)
            }
            variable @ Type::Variable(_) => {
                self.unifier.is_assignable(&Type::Dyn, variable);
                Type::Dyn
            }
            Type::Dyn | Type::Error | Type::Param(_) => Type::Dyn,
            other => {
                let message = format!("type '{}' does not support field selection", shown(other));
                self.error(id, message);
                Type::Dyn
            }
        };
        if is_optional || inner.is_some() {
            Type::optional(result)
        } else {
            result
        }
    }

    fn field_type(&mut self, id: Id, type_name: &str, field: &str) -> Option<Type> {
        if !self.declarations.has_type(type_name) {
            self.error(id, format!("unexpected failed resolution of '{type_name}'"));
            return None;
        }
        let of = self.declarations.field(type_name, field);
        if of.is_none() {
            self.error(id, format!("undefined field '{field}'"));
        }
        of
    }

    fn check_comprehension(&mut self, id: Id, fold: &Comprehension) {
        let range = self.checked(fold.range);
        let initial = self.checked(fold.initial);
        let range = self.unifier.substitute(&range, false);
        let outer = self.scope.len();
        // cel-go forgets here that comparisons of mixed numbers are refused.
        self.mixed_comparisons = true;
        self.scope.push((fold.accumulator.clone(), initial.clone()));
        let (first, second) = match &range {
            Type::List(item) if fold.second_variable.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Error),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Variable(_) | Type::Param(_) => {
                self.unifier.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, \
                     or dynamic)",
                    shown(other)
                );
                self.error(fold.range, message);
                (Type::Error, Type::Error)
            }
        };
        self.scope.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second_variable {
            self.scope.push((name.clone(), second));
        }
        self.check_is(fold.condition, &Type::Bool);
        self.check_is(fold.step, &initial);
        self.scope.truncate(outer + 1);
        let result = self.checked(fold.result);
        self.scope.truncate(outer);
        let result = self.unifier.substitute(&result, false);
        self.set_type(id, result);
    }

    fn check_is(&mut self, id: Id, expected: &Type) {
        let of = self.checked(id);
        if !self.unifier.is_assignable(expected, &of) {
            self.mismatch(id, expected, &of);
        }
    }

    /// `operand.?field`.
    fn check_optional_select(&mut self, id: Id, arguments: &[Id]) {
        let &[operand, field] = arguments else {
            return;
        };
        let Expr::Constant(Constant::String(field)) = self.ast.expr(field) else {
            return;
        };
        let field = field.clone();
        let of = self.check_field(id, operand, &field, true);
        let of = self.unifier.substitute(&of, false);
        self.set_type(id, of);
        self.set_reference(id, Reference::OptionalSelect);
    }

    fn is_optional_select(function: &Name) -> bool {
        **function == **names::OPTIONAL_SELECT
    }
}

fn type_of_constant(constant: &Constant) -> Type {
    match constant {
        Constant::Null => Type::Null,
        Constant::Bool(_) => Type::Bool,
        Constant::Int(_) => Type::Int,
        Constant::Uint(_) => Type::Uint,
        Constant::Double(_) => Type::Double,
        Constant::String(_) => Type::String,
        Constant::Bytes(_) => Type::Bytes,
    }
}

/// The largest type that messages show whole.
const MAX_SHOWN: usize = 10_000;

/// A type for a message, where huge ones are cut short.
fn shown(of: &Type) -> impl Display + '_ {
    let mut left = MAX_SHOWN;
    if is_within(of, &mut left) {
        of.in_errors().to_string()
    } else {
        of.name().to_owned()
    }
}

fn is_within(of: &Type, left: &mut usize) -> bool {
    let Some(less) = left.checked_sub(1) else {
        return false;
    };
    *left = less;
    let mut index = 0;
    while let Some(parameter) = of.parameter(index) {
        if !is_within(parameter, left) {
            return false;
        }
        index += 1;
    }
    true
}
