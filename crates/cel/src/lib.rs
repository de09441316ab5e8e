//! The Common Expression Language as Kubernetes v1.36 speaks it: parser, type checker, evaluator,
//! static and runtime cost, and the libraries by version. Pure, without I/O.
//!
//! An expression is compiled once and evaluated many times:
//! source → `parse` → [`ast::Ast`] → `check` against an environment → `cost` → `Program` → [`Value`].

mod access;
pub mod ast;
mod builder;
pub mod check;
pub mod checked;
pub mod declarations;
pub mod device;
pub mod duration;
pub mod environment;
pub mod error;
pub mod errors;
pub mod estimate;
mod extent;
pub mod function;
mod go_text;
mod host_lists;
pub mod libraries;
mod macros;
mod names;
pub mod numbers;
pub mod parse;
mod patterns;
pub mod print;
mod program;
pub mod standard;
pub mod timestamp;
pub mod types;
pub mod value;
mod work;

pub use checked::{CheckedAst, Reference};
pub use environment::Environment;
pub use error::EvalError;
pub use errors::CompileErrors;
pub use estimate::Estimate;
pub use program::{Limits, Outcome, Program, Variables};
pub use types::Type;
pub use value::Value;
