//! What an expression reads and results in. Values of the host are read in place: looking at a field
//! of an object and comparing it copies and allocates nothing. Cloning a value never copies text.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::ast::Name;
use crate::error::EvalError;
use crate::map::Map;
use crate::timestamp::Timestamp;
use crate::types::Type;

#[derive(Clone, Debug, Default)]
pub enum Value<'a> {
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Octets<'a>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    List(Arc<Vec<Value<'a>>>),
    Map(Arc<Map<'a>>),
    /// An object that a struct literal made.
    Object(Arc<Object<'a>>),
    /// A list, map or object of the host.
    Host(HostValue<'a>),
    Optional(Option<Arc<Value<'a>>>),
    Type(Type),
    /// A value of a library, such as an IP address or a quantity.
    Opaque(Arc<dyn Opaque>),
}

pub type Text<'a> = Shared<'a, str>;
pub type Octets<'a> = Shared<'a, [u8]>;

/// Borrowed from the host, or computed and shared.
#[derive(Debug)]
pub enum Shared<'a, T: ?Sized> {
    Borrowed(&'a T),
    Owned(Arc<T>),
}

#[derive(Clone, Debug)]
pub struct Object<'a> {
    pub type_name: Name,
    /// The fields that were set, in the order in which they were written.
    pub fields: Vec<(Name, Value<'a>)>,
}

/// A list, map or object of the host: data, and the shape that says how to read it.
#[derive(Clone, Copy)]
pub struct HostValue<'a> {
    pub data: &'a (dyn Any + Send + Sync),
    pub shape: &'a dyn Shape,
}

/// How the host's data of one type is read. A shape knows the declared types below it: it makes a
/// timestamp of a string where the schema says so.
pub trait Shape: Send + Sync {
    fn kind(&self, data: &(dyn Any + Send + Sync)) -> HostKind;

    /// The type that `type()` answers.
    fn type_of(&self, data: &(dyn Any + Send + Sync)) -> Type;

    /// Items of a list, entries of a map, fields that are present in an object.
    fn len(&self, data: &(dyn Any + Send + Sync)) -> usize;

    /// The item at an index of a list, or the value of the entry at an index of a map.
    fn at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<Value<'a>>;

    /// The key of the entry at an index of a map.
    fn key_at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<&'a str>;

    /// The value of a key of a map or a field of an object, if it is present.
    fn get<'a>(&'a self, data: &'a (dyn Any + Send + Sync), key: &str) -> Option<Value<'a>>;

    /// As [`Shape::get`], for hosts whose values are computed when they are read, which can fail.
    fn try_get<'a>(
        &'a self,
        data: &'a (dyn Any + Send + Sync),
        key: &str,
    ) -> Result<Option<Value<'a>>, EvalError> {
        Ok(self.get(data, key))
    }

    /// Whether `key in map`; not the same as `get` where a map answers for every key.
    fn contains(&self, data: &(dyn Any + Send + Sync), key: &str) -> bool {
        self.get(data, key).is_some()
    }

    /// How the items of a list are compared and added (`x-kubernetes-list-type`).
    fn list_type(&self) -> ListType<'_> {
        ListType::Atomic
    }
}

/// `x-kubernetes-list-type`, with the keys of `map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType<'a> {
    Atomic,
    Set,
    Map(&'a [Name]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    List,
    Map,
    Object,
}

/// A value that a library brings. Its debug text is what the judge compares, e.g. `ip(10.0.0.1)`.
pub trait Opaque: Any + fmt::Debug + Send + Sync {
    fn type_of(&self) -> Type;

    /// Nothing where the two cannot be compared, which is the error "no such overload". Inside of
    /// lists and maps it counts as equal, as in cel-go.
    fn equals(&self, other: &Value<'_>) -> Option<bool>;

    /// Whether comparing costs one unit, whatever the size.
    fn is_compared_in_one_step(&self) -> bool {
        true
    }

    /// What costs are computed from, for the types that have a size.
    fn size(&self) -> Option<u64> {
        None
    }

    fn as_any(&self) -> &dyn Any;
}

impl fmt::Debug for HostValue<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HostValue({:?})", self.shape.kind(self.data))
    }
}

impl<T: ?Sized> Clone for Shared<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Shared::Borrowed(value) => Shared::Borrowed(value),
            Shared::Owned(value) => Shared::Owned(Arc::clone(value)),
        }
    }
}

impl<T: ?Sized> Deref for Shared<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Shared::Borrowed(value) => value,
            Shared::Owned(value) => value,
        }
    }
}

impl<'a> Object<'a> {
    pub fn get(&self, field: &str) -> Option<&Value<'a>> {
        self.fields
            .iter()
            .find(|(name, _)| &**name == field)
            .map(|(_, value)| value)
    }
}

impl<'a> Value<'a> {
    pub fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(Arc::new(items))
    }

    pub fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Arc::new(value)))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::String(Shared::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::String(Shared::Owned(text.into()))
    }
}

impl From<Name> for Value<'_> {
    fn from(text: Name) -> Self {
        Value::String(Shared::Owned(text))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(octets: Vec<u8>) -> Self {
        Value::Bytes(Shared::Owned(octets.into()))
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}
