//! The Common Expression Language as Kubernetes v1.36 speaks it: parser, type checker, evaluator,
//! static and runtime cost, and the libraries by version. Pure, without I/O.
//!
//! An expression is compiled once and evaluated many times:
//! source → `parse` → [`ast::Ast`] → `check` against an environment → `cost` → `Program` → [`Value`].

mod access;
pub mod ast;
pub mod checked;
pub mod duration;
pub mod error;
pub mod function;
mod go_text;
mod host_lists;
pub mod map;
pub mod numbers;
mod patterns;
mod program;
pub mod standard;
pub mod timestamp;
pub mod types;
pub mod value;

pub use checked::{CheckedAst, Reference};
pub use error::EvalError;
pub use program::{Limits, Outcome, Program, Variables};
pub use types::Type;
pub use value::Value;
