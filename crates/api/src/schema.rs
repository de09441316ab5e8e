//! The shapes of the built-in kinds: what fields they have, how bodies become documents of them,
//! how their lists merge, which defaults they declare.
//!
//! All of it comes from one generated table (`schema/types.tbl`). What a table cannot say belongs to
//! `strategy`.

mod shape;
mod table;

pub use shape::{Shape, type_of};
pub use table::{Definition, Field, Kind, Property, Table, Type, Wire, table};
