//! The Common Expression Language as Kubernetes v1.36 speaks it: parser, type checker, evaluator,
//! static and runtime cost, and the libraries by version. Pure, without I/O.
//!
//! An expression is compiled once and evaluated many times:
//! source → `parse` → [`ast::Ast`] → `check` against an environment → `cost` → `Program` → [`Value`].

pub mod ast;
mod builder;
pub mod checked;
pub mod errors;
pub mod function;
mod macros;
mod names;
pub mod map;
pub mod parse;
pub mod print;
pub mod timestamp;
pub mod types;
pub mod value;

pub use checked::{CheckedAst, Reference};
pub use types::Type;
pub use value::Value;
