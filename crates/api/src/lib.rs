//! The Kubernetes object model, pure and without I/O: documents, the catalogue of kinds, schemas,
//! defaulting, validation, selectors, quantities, patches, table columns, `Status` errors.

mod addresses;
pub mod age;
pub mod apply;
pub mod catalogue;
pub mod certificate;
pub mod conversion;
pub mod cron;
pub mod custom;
pub mod discovery;
pub mod document;
pub mod expressions;
pub mod features;
pub mod field;
pub mod metadata;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod quota;
mod repeats;
pub mod resource;
pub mod resource_version;
pub mod resources;
pub mod schema;
pub mod selector;
pub mod status;
mod steps;
pub mod strategy;
pub mod table;
pub mod warnings;

pub use ::quantity;
pub use document::{Object, Value};
pub use field::{FieldError, FieldErrorKind};
pub use resource::{Resource, Strategy};
pub use status::{Cause, Details, Reason, Status};
