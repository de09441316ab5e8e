//! The types of values and expressions, and how names of types and their fields are resolved.

use std::fmt;
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
    /// A type that the checker has yet to find. A checked expression has none.
    Variable(u32),
}

impl Type {
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub fn optional(of: Type) -> Type {
        Type::Opaque(Name::from(OPTIONAL), Arc::from([of]))
    }

    /// The type in an optional.
    pub fn in_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, parameters) if &**name == OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    /// The name without parameters, as `type()` answers it.
    pub fn name(&self) -> &str {
        match self {
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Dyn => "dyn",
            Type::Error => "error",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Type(_) => "type",
            Type::Object(name) | Type::Opaque(name, _) | Type::Param(name) => name,
            Type::Variable(_) => "_var",
        }
    }

    /// The type `type` itself, which has no parameter. A parameter without a name stands in its place.
    pub fn of_types() -> Type {
        Type::Type(Arc::new(Type::Param(Name::from(""))))
    }

    pub(crate) fn is_of_types(&self) -> bool {
        matches!(self, Type::Type(of) if matches!(&**of, Type::Param(name) if name.is_empty()))
    }

    /// A type within, such as the key and the value of a map.
    pub fn parameter(&self, index: usize) -> Option<&Type> {
        match (self, index) {
            (Type::List(item), 0) => Some(item),
            (Type::Map(entry), 0) => Some(&entry.0),
            (Type::Map(entry), 1) => Some(&entry.1),
            (Type::Type(of), 0) if !self.is_of_types() => Some(of),
            (Type::Opaque(_, parameters), index) => parameters.get(index),
            _ => None,
        }
    }

    /// As compile errors show it, which is not as the language itself does.
    pub fn in_errors(&self) -> InErrors<'_> {
        InErrors(self)
    }
}

const OPTIONAL: &str = "optional_type";

/// A type as compile errors show it.
pub struct InErrors<'a>(&'a Type);

impl fmt::Display for InErrors<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Type::Duration => formatter.write_str("duration"),
            Type::Timestamp => formatter.write_str("timestamp"),
            Type::Null => formatter.write_str("null"),
            Type::Error => formatter.write_str("!error!"),
            Type::Variable(number) => write!(formatter, "_var{number}"),
            of => write_with_parameters(of, formatter, |parameter, formatter| {
                write!(formatter, "{}", InErrors(parameter))
            }),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Param(name) => write!(formatter, "<{name}>"),
            Type::Variable(number) => write!(formatter, "<_var{number}>"),
            of => write_with_parameters(of, formatter, |parameter, formatter| {
                write!(formatter, "{parameter}")
            }),
        }
    }
}

fn write_with_parameters(
    of: &Type,
    formatter: &mut fmt::Formatter<'_>,
    write: fn(&Type, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    formatter.write_str(of.name())?;
    let mut index = 0;
    while let Some(parameter) = of.parameter(index) {
        formatter.write_str(if index == 0 { "(" } else { ", " })?;
        write(parameter, formatter)?;
        index += 1;
    }
    if index > 0 {
        formatter.write_str(")")?;
    }
    Ok(())
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
