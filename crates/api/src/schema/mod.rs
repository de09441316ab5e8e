//! The shapes of the built-in kinds: what fields they have, how bodies become documents of them,
//! how their lists merge, which defaults they declare.
//!
//! All of it comes from one generated table (`schema/types.tbl`). What a table cannot say belongs to
//! `strategy`.

mod check;
mod decode;
mod defaults;
mod empty;
mod literal;
mod node;
mod problem;
mod shape;
mod table;

pub use decode::{
    Target, conform, decode, decode_as, decode_json, decode_json_as, parse_json, parse_untyped,
    repeated_fields, restore, strict_error, strict_yaml_error, unhandled, unrecognized,
};
pub use defaults::{apply_declared_defaults, defaults, normalise};
pub(crate) use empty::is_left_out;
pub use empty::{Empties, forget_empty};
pub use node::SyntaxError;
pub use problem::{FieldProblem, TypeError, UnknownField};
pub use shape::{Shape, type_of};
pub(crate) use table::JSON_SCHEMA;
pub use table::{Definition, Field, Kind, Property, Table, Type, Wire, table};

/// The name of the schema of a kind, e.g. `io.k8s.api.core.v1.Pod`.
pub fn definition_of(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    let definition = table().of_kind(group, version, kind)?;
    Some(definition.name)
}
