//! What the checker makes of a tree: the type of each node and what each name refers to.

use std::sync::Arc;

use crate::ast::{Ast, Constant, Id, Name};
use crate::function::{Function, Overload};
use crate::types::Type;

/// An expression whose types are known. Names in the tree are the resolved ones: `a.b` that names a
/// variable is an identifier, and a function in a namespace has no target.
#[derive(Clone)]
pub struct CheckedAst {
    pub ast: Ast,
    /// Indexed by the number of the node.
    pub types: Vec<Type>,
    /// Indexed by the number of the node.
    pub references: Vec<Option<Reference>>,
}

/// What an identifier, a call or a struct literal refers to.
#[derive(Clone)]
pub enum Reference {
    Variable(Name),
    Constant(Name, Constant),
    /// The name of a type, as a value.
    Type(Name, Type),
    Function {
        function: Arc<Function>,
        /// Those of the function's overloads that the types of the arguments allow, in order.
        overloads: Vec<Arc<Overload>>,
    },
    /// `operand.?field`.
    OptionalSelect,
}

impl CheckedAst {
    pub fn result_type(&self) -> &Type {
        self.type_of(self.ast.root)
    }

    pub fn type_of(&self, id: Id) -> &Type {
        self.types.get(id.0 as usize).unwrap_or(&Type::Dyn)
    }

    pub fn reference(&self, id: Id) -> Option<&Reference> {
        self.references.get(id.0 as usize)?.as_ref()
    }
}
