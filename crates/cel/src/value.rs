//! What an expression reads and results in. Values of the host are read in place: looking at a field
//! of an object and comparing it copies and allocates nothing.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::types::Type;

#[derive(Clone, Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(jiff::Timestamp),
    List(Arc<Vec<Value<'a>>>),
    /// In the order of insertion, without repeated keys.
    Map(Arc<Vec<(Value<'a>, Value<'a>)>>),
    /// A list, map or object of the host.
    Host(HostValue<'a>),
    Optional(Option<Arc<Value<'a>>>),
    Type(Type),
    /// A value of a library, such as an IP address or a quantity.
    Opaque(Arc<dyn Opaque>),
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

    /// Nothing where the two cannot be compared, which is the error "no such overload".
    fn equals(&self, other: &Value<'_>) -> Option<bool>;

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
