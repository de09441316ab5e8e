//! Compiles attributes: a variable or another value with fields, keys and indices after it.
//!
//! As in cel-go an attribute is one thing however long it is: it costs one, and each qualifier one.
//! The branches of a conditional and the index of a qualifier, where they are attributes, cost only
//! their qualifiers.

use super::compile::{Compiler, Task};
use super::operation::{Base, Charge, Operation, Qualifier, Target};
use super::qualify;
use crate::ast::{Expr, Id};
use crate::checked::Reference;
use crate::error::EvalError;
use crate::value::{Shared, Value};

/// An attribute taken apart.
struct Attribute {
    root: Root,
    qualifiers: Vec<Part>,
}

enum Root {
    Variable(Base),
    /// Condition and both branches.
    Conditional([Id; 3]),
    /// Any other expression.
    Value(Id),
}

enum Part {
    Constant(Qualifier),
    Index { of: Id, is_optional: bool },
}

impl Compiler<'_> {
    pub fn is_attribute(&self, id: Id) -> bool {
        !self.is_constant(id)
            && match self.checked.ast.expr(id) {
                Expr::Ident(_) | Expr::Select(_) => true,
                Expr::Call(call) => {
                    matches!(&*call.function, "_?_:_" | "_[_]" | "_[?_]" | "_?._")
                }
                _ => false,
            }
    }

    pub fn closed_attribute(&mut self, id: Id) -> Result<(), EvalError> {
        let attribute = self.take_apart(id)?;
        let is_test = matches!(self.checked.ast.expr(id), Expr::Select(select) if select.is_test);
        let charge = match (&attribute.root, is_test) {
            (Root::Conditional(_), true) => Charge::LessOne,
            (Root::Conditional(_), false) | (_, true) => Charge::Nothing,
            (_, false) => Charge::One,
        };
        if let Root::Variable(base) = attribute.root {
            let qualifiers: Option<Vec<Qualifier>> = attribute
                .qualifiers
                .iter()
                .map(|part| match part {
                    Part::Constant(qualifier) => Some(qualifier.clone()),
                    Part::Index { .. } => None,
                })
                .collect();
            if let Some(qualifiers) = qualifiers {
                let path = self.path(base, qualifiers, charge);
                self.code.operations.push(Operation::Path(path));
                return Ok(());
            }
        }
        let end = self.label();
        self.schedule([
            Task::OpenAttribute(id, end),
            Task::Place(end),
            Task::Emit(Operation::Close { charge, is_test }),
        ]);
        Ok(())
    }

    pub fn open_attribute(&mut self, id: Id, end: Target) -> Result<(), EvalError> {
        if !self.is_attribute(id) {
            self.schedule([Task::Expr(id), Task::Emit(Operation::Open(end))]);
            return Ok(());
        }
        let attribute = self.take_apart(id)?;
        let mut tasks = Vec::new();
        match attribute.root {
            Root::Variable(base) => {
                tasks.push(Task::Emit(match base {
                    Base::Variable(variable) => Operation::Variable(variable),
                    Base::Item(fold) => Operation::Item(fold),
                    Base::SecondItem(fold) => Operation::SecondItem(fold),
                    Base::Accumulator(fold) => Operation::Accumulator(fold),
                }));
                tasks.push(Task::Emit(Operation::Open(end)));
            }
            Root::Conditional([condition, then, otherwise]) => {
                let (other, join) = (self.label(), self.label());
                tasks.extend([
                    Task::Expr(condition),
                    Task::Emit(Operation::Branch {
                        otherwise: other,
                        end,
                    }),
                    Task::OpenAttribute(then, end),
                    Task::Emit(Operation::Jump(join)),
                    Task::Place(other),
                    Task::OpenAttribute(otherwise, end),
                    Task::Place(join),
                ]);
            }
            Root::Value(value) => {
                tasks.push(Task::Expr(value));
                tasks.push(Task::Emit(Operation::Open(end)));
            }
        }
        for part in attribute.qualifiers {
            match part {
                Part::Constant(qualifier) => {
                    let is_test = qualifier.is_test;
                    self.code.qualifiers.push(qualifier);
                    let number = (self.code.qualifiers.len() - 1) as u32;
                    tasks.push(Task::Emit(if is_test {
                        Operation::Test(number, end)
                    } else {
                        Operation::Qualify(number, end)
                    }));
                }
                Part::Index { of, is_optional } => {
                    if self.is_attribute(of) {
                        let index_end = self.label();
                        tasks.extend([
                            Task::OpenAttribute(of, index_end),
                            Task::Place(index_end),
                            Task::Emit(Operation::Close {
                                charge: Charge::Nothing,
                                is_test: false,
                            }),
                        ]);
                    } else {
                        tasks.push(Task::Expr(of));
                    }
                    tasks.push(Task::Emit(Operation::QualifyBy { is_optional, end }));
                }
            }
        }
        self.schedule(tasks);
        Ok(())
    }

    /// Walks from the last qualifier to what is qualified.
    fn take_apart(&mut self, id: Id) -> Result<Attribute, EvalError> {
        let checked = self.checked;
        let mut qualifiers = Vec::new();
        let mut node = id;
        let root = loop {
            if self.is_constant(node) || !self.is_attribute(node) {
                break Root::Value(node);
            }
            match checked.ast.expr(node) {
                Expr::Ident(name) => {
                    let name = match checked.reference(node) {
                        Some(Reference::Variable(name)) => name,
                        _ => name,
                    };
                    break Root::Variable(self.base(name));
                }
                // A test is a value of its own where something follows it.
                Expr::Select(select) if select.is_test && node != id => break Root::Value(node),
                Expr::Select(select) => {
                    qualifiers.push(Part::Constant(Qualifier {
                        key: Value::String(Shared::Owned(select.field.clone())),
                        is_optional: false,
                        is_test: select.is_test,
                    }));
                    node = select.operand;
                }
                Expr::Call(call) => match (&*call.function, call.arguments.as_slice()) {
                    ("_?_:_", [condition, then, otherwise]) => {
                        break Root::Conditional([*condition, *then, *otherwise]);
                    }
                    (function, [operand, index]) => {
                        let is_optional = function != "_[_]";
                        qualifiers.push(match self.constants.get(*index) {
                            Some(key) => {
                                qualify::check_key(key)?;
                                Part::Constant(Qualifier {
                                    key: key.clone(),
                                    is_optional,
                                    is_test: false,
                                })
                            }
                            None => Part::Index {
                                of: *index,
                                is_optional,
                            },
                        });
                        node = *operand;
                    }
                    _ => break Root::Value(node),
                },
                _ => break Root::Value(node),
            }
        };
        qualifiers.reverse();
        Ok(Attribute { root, qualifiers })
    }
}
