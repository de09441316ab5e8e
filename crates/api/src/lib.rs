//! The Kubernetes object model, pure and without I/O: documents, the catalogue of kinds, schemas,
//! defaulting, validation, selectors, quantities, patches, table columns, `Status` errors.

pub mod catalogue;
pub mod document;
pub mod schema;
pub mod status;

pub use document::{Object, Value};
pub use status::{Cause, Details, Reason, Status};
