//! The types of objects.

mod shape;
mod table;

pub use shape::{Shape, type_of};
pub use table::{Definition, Field, Kind, Property, Table, Type, Wire, table};
