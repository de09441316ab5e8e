//! Expressions over Kubernetes' objects: schemas as types, documents as values, and the rules of
//! custom resources compiled with them. The language itself is the crate `cel`.

pub mod admission;
pub(crate) mod devices;
mod dynamic;
pub mod mutation;
mod names;
mod patch_types;
pub mod policy;
mod rules;
pub mod type_checking;
mod types;
mod values;

#[cfg(test)]
mod tests;

pub use rules::RULES;
