//! The types of values and expressions, and how names of types and their fields are resolved.

use std::sync::Arc;

use crate::ast::Name;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    /// Known only when the expression runs.
    Dyn,
    /// Of an expression with an error in it, so that one mistake is reported once.
    Error,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// An object with declared fields, by its name; a [`TypeProvider`] knows them.
    Object(Name),
    /// A type of a library, such as `net.IP`, `kubernetes.Quantity` or `optional_type(int)`.
    Opaque(Name, Arc<[Type]>),
    /// The type of a type.
    Type(Arc<Type>),
    /// A parameter of a generic function, such as `T`.
    Param(Name),
}

/// Resolves the types that a host declares, such as the fields of a custom resource.
pub trait TypeProvider: Send + Sync {
    /// Whether a type of this name is declared.
    fn has_type(&self, name: &str) -> bool;

    /// The type of a field of a declared type.
    fn field(&self, type_name: &str, field: &str) -> Option<Type>;

    /// The names of the fields of a declared type.
    fn fields(&self, type_name: &str) -> Vec<Name>;

    /// The value of a constant such as an enum value.
    fn constant(&self, _name: &str) -> Option<i64> {
        None
    }
}
