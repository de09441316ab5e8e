//! Makes the tree of an expression: gives the nodes their numbers in cel-go's order, and collects the
//! errors that are found on the way.

use crate::ast::{Ast, Call, Comprehension, Constant, Expr, Id, ListLiteral, Name, Node, Select};
use crate::errors::Report;

/// The most nodes of an expression in which macros copy parts. The text itself has fewer, but
/// `a.optMap(…).optMap(…)` copies what is before it each time, so that the tree doubles.
const MAX_NODES: usize = 300_000;

#[derive(Default)]
pub struct Builder {
    nodes: Vec<Node>,
    is_too_large: bool,
    pub report: Report,
}

impl Builder {
    pub fn with_capacity(nodes: usize) -> Builder {
        let mut builder = Builder {
            nodes: Vec::with_capacity(nodes),
            is_too_large: false,
            report: Report::default(),
        };
        builder.reserve(0);
        builder
    }

    /// Takes the next number for a node that begins at an offset.
    pub fn reserve(&mut self, offset: u32) -> Id {
        self.add(offset, Expr::Unspecified)
    }

    pub fn add(&mut self, offset: u32, expr: Expr) -> Id {
        let id = Id(self.nodes.len() as u32);
        self.nodes.push(Node { offset, expr });
        id
    }

    pub fn set(&mut self, id: Id, expr: Expr) -> Id {
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.expr = expr;
        }
        id
    }

    pub fn set_offset(&mut self, id: Id, offset: u32) {
        if let Some(node) = self.nodes.get_mut(id.0 as usize) {
            node.offset = offset;
        }
    }

    /// Gives a number back, if it is the last one that was taken.
    pub fn release(&mut self, id: Id) {
        if id.0 as usize + 1 == self.nodes.len() {
            self.nodes.pop();
        }
    }

    pub fn expr(&self, id: Id) -> &Expr {
        self.nodes
            .get(id.0 as usize)
            .map_or(&Expr::Unspecified, |node| &node.expr)
    }

    pub fn offset(&self, id: Id) -> u32 {
        self.nodes.get(id.0 as usize).map_or(0, |node| node.offset)
    }

    /// Reports an error, with a node in the place of what could not be understood.
    pub fn error(&mut self, offset: u32, message: impl Into<String>) -> Id {
        self.report.add(Some(offset), message);
        self.reserve(offset)
    }

    /// Whether the tree is too large for copies; that is reported once.
    fn is_full(&mut self) -> bool {
        if self.nodes.len() < MAX_NODES {
            return false;
        }
        if !self.is_too_large {
            self.is_too_large = true;
            let message = "the macros of the expression expand to too many parts";
            self.report.add(None, message);
        }
        true
    }

    pub fn into_ast(self, root: Id) -> (Ast, Report) {
        let ast = Ast {
            root,
            nodes: self.nodes,
            macro_calls: Default::default(),
        };
        (ast, self.report)
    }
}

/// Makes the nodes of an expanded macro, which all have the place of its call.
pub struct Expander<'a> {
    pub builder: &'a mut Builder,
    offset: u32,
}

impl<'a> Expander<'a> {
    pub fn new(builder: &'a mut Builder, call: Id) -> Expander<'a> {
        let offset = builder.offset(call);
        Expander { builder, offset }
    }

    fn add(&mut self, expr: Expr) -> Id {
        self.builder.add(self.offset, expr)
    }

    pub fn constant(&mut self, value: Constant) -> Id {
        self.add(Expr::Constant(value))
    }

    pub fn bool(&mut self, value: bool) -> Id {
        self.constant(Constant::Bool(value))
    }

    pub fn ident(&mut self, name: &Name) -> Id {
        self.add(Expr::Ident(name.clone()))
    }

    pub fn list(&mut self, items: Vec<Id>) -> Id {
        let optional = Vec::new();
        self.add(Expr::List(ListLiteral { items, optional }))
    }

    pub fn empty_map(&mut self) -> Id {
        self.add(Expr::Map(Vec::new()))
    }

    pub fn call(&mut self, function: &Name, arguments: Vec<Id>) -> Id {
        self.add(Expr::Call(Call {
            function: function.clone(),
            target: None,
            arguments,
        }))
    }

    pub fn member_call(&mut self, function: &str, target: Id, arguments: Vec<Id>) -> Id {
        self.add(Expr::Call(Call {
            function: Name::from(function),
            target: Some(target),
            arguments,
        }))
    }

    pub fn presence_test(&mut self, operand: Id, field: Name) -> Id {
        self.add(Expr::Select(Select {
            operand,
            field,
            is_test: true,
        }))
    }

    pub fn comprehension(&mut self, comprehension: Comprehension) -> Id {
        self.add(Expr::Comprehension(Box::new(comprehension)))
    }

    /// A copy of a tree with numbers of its own. The depth of trees is limited by the parser.
    pub fn copy(&mut self, id: Id) -> Id {
        let offset = self.builder.offset(id);
        let copy = self.builder.reserve(offset);
        if self.builder.is_full() {
            return copy;
        }
        let mut expr = self.builder.expr(id).clone();
        match &mut expr {
            Expr::Unspecified | Expr::Constant(_) | Expr::Ident(_) => {}
            Expr::Select(select) => select.operand = self.copy(select.operand),
            Expr::Call(call) => {
                self.copy_each(&mut call.arguments);
                call.target = call.target.map(|target| self.copy(target));
            }
            Expr::List(list) => self.copy_each(&mut list.items),
            Expr::Map(entries) => {
                for entry in entries {
                    entry.id = self.builder.reserve(self.offset);
                    entry.key = self.copy(entry.key);
                    entry.value = self.copy(entry.value);
                }
            }
            Expr::Struct(literal) => {
                for field in &mut literal.fields {
                    field.id = self.builder.reserve(self.offset);
                    field.value = self.copy(field.value);
                }
            }
            Expr::Comprehension(comprehension) => {
                comprehension.range = self.copy(comprehension.range);
                comprehension.initial = self.copy(comprehension.initial);
                comprehension.condition = self.copy(comprehension.condition);
                comprehension.step = self.copy(comprehension.step);
                comprehension.result = self.copy(comprehension.result);
            }
        }
        self.builder.set(copy, expr)
    }

    fn copy_each(&mut self, ids: &mut [Id]) {
        for id in ids {
            *id = self.copy(*id);
        }
    }
}
