//! The operations of the machine. Each leaves one value, or one error in its place, on the stack for
//! what it takes.

use std::sync::Arc;

use regex::Regex;

use crate::ast::Name;
use crate::function::{Function, Overload};
use crate::value::Value;

/// The operations of an expression and what they refer to.
#[derive(Default)]
pub struct Code {
    pub operations: Vec<Operation>,
    pub constants: Vec<Value<'static>>,
    pub variables: Vec<Name>,
    pub paths: Vec<Path>,
    pub qualifiers: Vec<Qualifier>,
    pub calls: Vec<Call>,
    pub lists: Vec<List>,
    pub maps: Vec<Map>,
    pub objects: Vec<Object>,
    pub folds: Vec<Fold>,
    pub patterns: Vec<Arc<Regex>>,
    pub refusals: Vec<String>,
}

/// A place in the code. While compiling it is the number of a label.
pub type Target = u32;

#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Constant(u32),
    Variable(u32),
    /// The item, index or key of a comprehension.
    Item(u32),
    /// The second variable of a comprehension.
    SecondItem(u32),
    /// The accumulator of a comprehension, which is computed when it is first asked for.
    Accumulator(u32),
    /// A variable with constant qualifiers, such as `self.spec.replicas`.
    Path(u32),
    /// Begins to qualify the value on the stack: an optional is opened.
    Open(Target),
    Qualify(u32, Target),
    /// Whether the qualifier finds something.
    Test(u32, Target),
    /// Qualifies the second value on the stack by the first.
    QualifyBy {
        is_optional: bool,
        end: Target,
    },
    /// Ends what [`Operation::Open`] began.
    Close {
        charge: Charge,
        is_test: bool,
    },
    /// Of a conditional: goes on, or to `otherwise`, or with an error to `end`.
    Branch {
        otherwise: Target,
        end: Target,
    },
    Jump(Target),
    /// After the first operand of `&&`.
    AndThen(Target),
    And,
    /// After the first operand of `||`.
    OrElse(Target),
    Or,
    NotStrictlyFalse,
    Equal,
    NotEqual,
    /// Whether the value is in a constant list.
    MemberOf(u32),
    /// After the optional of `or`, and of `orValue`, which opens it.
    OptionalOr {
        opens: bool,
        end: Target,
    },
    /// An error ends the call or literal, with `below` values under it.
    Bail {
        below: u32,
        end: Target,
    },
    Call(u32),
    List(u32),
    Map(u32),
    Object(u32),
    /// Takes the range and begins a comprehension.
    FoldStart(u32, Target),
    FoldNext(u32, Target),
    FoldCondition(Target),
    FoldStep(u32, Target),
    FoldEnd(u32),
    /// Ends the code that computes an accumulator's first value.
    Initialized(u32),
    /// Adds to the cost.
    Charge(u32),
    /// Fails.
    Refuse(u32),
    End,
}

/// What the end of an attribute costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    Nothing,
    One,
    /// cel-go takes one back for a presence test, even where it added none.
    LessOne,
}

pub struct Path {
    pub base: Base,
    pub qualifiers: Vec<Qualifier>,
    pub charge: Charge,
    /// The accumulator is handed over, because the step that reads it replaces it.
    pub takes: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Base {
    Variable(u32),
    Item(u32),
    SecondItem(u32),
    Accumulator(u32),
}

#[derive(Clone, Debug)]
pub struct Qualifier {
    pub key: Value<'static>,
    pub is_optional: bool,
    pub is_test: bool,
}

pub struct Call {
    pub function: Arc<Function>,
    /// Where the types of the arguments leave one.
    pub overload: Option<Arc<Overload>>,
    pub arguments: u32,
    pub cost: CallCost,
    /// Libraries are asked for the cost first.
    pub asks_library: bool,
    pub kind: CallKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Plain,
    /// `+`, which extends a list in place where nobody else holds it.
    Add,
    /// The insertion of a key into the map that a comprehension builds.
    MapInsert,
    /// A pattern that is constant, and so has been compiled.
    Matches(u32),
    /// `find` and `findAll` with a constant pattern.
    Finds,
}

/// How the cost of a call is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallCost {
    One,
    /// By the length of the first argument.
    FirstSize,
    /// One for each item of the second argument.
    SecondItems,
    /// By the shorter argument.
    SmallerSize,
    /// By both lengths.
    BothSizes,
    Matches,
    Contains,
}

pub struct List {
    pub count: u32,
    pub optional: Vec<bool>,
}

pub struct Map {
    pub optional: Vec<bool>,
}

pub struct Object {
    pub type_name: Name,
    pub fields: Vec<Name>,
    pub optional: Vec<bool>,
}

pub struct Fold {
    pub has_second_variable: bool,
    pub initial: Initial,
}

/// The first value of an accumulator.
#[derive(Clone, Copy, Debug)]
pub enum Initial {
    Constant(u32),
    /// The code that computes it.
    Code(Target),
}
