//! Short forms for declaring overloads.

use std::sync::Arc;

use crate::function::{Cost, EvalError, Implementation, Overload};
use crate::types::Type;
use crate::value::Value;

/// A function called as `function(…)`.
pub(crate) fn global<const N: usize>(
    function: &'static str,
    id: &'static str,
    arguments: [Type; N],
    result: Type,
) -> Overload {
    Overload {
        function,
        id,
        is_member: false,
        arguments: arguments.into(),
        result,
        implementation: Implementation::BuiltIn,
        cost: Cost::Fixed,
    }
}

/// A function called as `target.function(…)`.
pub(crate) fn member<const N: usize>(
    function: &'static str,
    id: &'static str,
    arguments: [Type; N],
    result: Type,
) -> Overload {
    Overload {
        is_member: true,
        ..global(function, id, arguments, result)
    }
}

impl Overload {
    pub(crate) fn calls(
        self,
        function: for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, EvalError>,
    ) -> Overload {
        self.implemented(Implementation::Function(function))
    }

    pub(crate) fn implemented(self, implementation: Implementation) -> Overload {
        Overload {
            implementation,
            ..self
        }
    }
}

pub(crate) fn list(item: Type) -> Type {
    Type::List(Arc::new(item))
}

pub(crate) fn map(key: Type, value: Type) -> Type {
    Type::Map(Arc::new((key, value)))
}

pub(crate) fn optional(value: Type) -> Type {
    Type::Opaque("optional_type".into(), [value].into())
}

pub(crate) fn parameter(name: &str) -> Type {
    Type::Param(name.into())
}

pub(crate) fn object(name: &str) -> Type {
    Type::Object(name.into())
}

/// An error with a message of its own.
pub(crate) fn message(text: impl Into<String>) -> EvalError {
    EvalError::Message(text.into())
}
