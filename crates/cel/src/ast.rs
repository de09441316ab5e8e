//! The tree of an expression. Nodes are in one vector and refer to each other by number, so that
//! neither walking nor dropping a deep tree needs the stack.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of a node. Numbers are given in the order in which cel-go gives them, from 1, because
/// messages and cost reports show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u32);

/// A name shared by the nodes that use it.
pub type Name = Arc<str>;

/// A parsed expression with its macros expanded.
#[derive(Clone, Debug)]
pub struct Ast {
    pub root: Id,
    /// Indexed by `Id`; the first element is unused.
    pub nodes: Vec<Node>,
    /// The calls that macros replaced, by the node that replaced them. The nodes that they refer to
    /// are in `nodes`.
    pub macro_calls: BTreeMap<Id, Expr>,
}

#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins in the source, in code points.
    pub offset: u32,
    pub expr: Expr,
}

#[derive(Clone, Debug)]
pub enum Expr {
    /// A place that no expression took, as after an error.
    Unspecified,
    Constant(Constant),
    Ident(Name),
    Select(Select),
    Call(Call),
    List(ListLiteral),
    Map(Vec<MapEntry>),
    Struct(StructLiteral),
    Comprehension(Box<Comprehension>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Name),
    Bytes(Arc<[u8]>),
}

/// `operand.field`, or `has(operand.field)` where it is a test.
#[derive(Clone, Debug)]
pub struct Select {
    pub operand: Id,
    pub field: Name,
    pub is_test: bool,
}

/// A function or operator; operators have cel-go's names, such as `_+_` and `_?_:_`.
#[derive(Clone, Debug)]
pub struct Call {
    pub function: Name,
    pub target: Option<Id>,
    pub arguments: Vec<Id>,
}

#[derive(Clone, Debug)]
pub struct ListLiteral {
    pub items: Vec<Id>,
    /// The indices of the items written as `?item`.
    pub optional: Vec<u32>,
}

#[derive(Clone, Debug)]
pub struct MapEntry {
    pub id: Id,
    pub key: Id,
    pub value: Id,
    pub is_optional: bool,
}

#[derive(Clone, Debug)]
pub struct StructLiteral {
    pub type_name: Name,
    pub fields: Vec<StructField>,
}

#[derive(Clone, Debug)]
pub struct StructField {
    pub id: Id,
    pub name: Name,
    pub value: Id,
    pub is_optional: bool,
}

/// What macros such as `all` and `map` become: a fold over `range`.
#[derive(Clone, Debug)]
pub struct Comprehension {
    pub range: Id,
    /// The item, or of two variables the index or key.
    pub variable: Name,
    pub second_variable: Option<Name>,
    pub accumulator: Name,
    pub initial: Id,
    pub condition: Id,
    pub step: Id,
    pub result: Id,
}

impl Ast {
    pub fn expr(&self, id: Id) -> &Expr {
        self.nodes
            .get(id.0 as usize)
            .map_or(&Expr::Unspecified, |node| &node.expr)
    }
}
