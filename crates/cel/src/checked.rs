//! What the checker hands to the cost estimate and to the program: the tree, the type of each node,
//! and what names and calls refer to.

use std::collections::HashMap;

use crate::ast::{Ast, Constant, Id, Name};
use crate::types::Type;

#[derive(Clone, Debug)]
pub struct CheckedAst {
    pub ast: Ast,
    pub types: HashMap<Id, Type>,
    pub references: HashMap<Id, Reference>,
}

/// What an identifier, a selection that is a qualified name, or a call refers to.
#[derive(Clone, Debug, PartialEq)]
pub enum Reference {
    /// A variable, or a type where the node's type is the type of a type.
    Ident(Name),
    /// A constant of the environment, such as an enum value.
    Constant(Name, Constant),
    /// The identifiers of the overloads that fit, in the order of declaration. With more than one,
    /// the values decide.
    Function(Vec<&'static str>),
}

impl CheckedAst {
    /// The type of a node; `dyn` where the checker gave none.
    pub fn type_of(&self, id: Id) -> &Type {
        self.types.get(&id).unwrap_or(&Type::Dyn)
    }

    pub fn result_type(&self) -> &Type {
        self.type_of(self.ast.root)
    }
}
