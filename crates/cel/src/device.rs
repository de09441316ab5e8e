//! The environment of device selectors (dynamic resource allocation): the variable `device` with its
//! driver, attributes and capacity, and the limits of such expressions.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::Name;
use crate::environment::Environment;
use crate::function::{SizeBounds, SizeEstimate};
use crate::libraries::quantity::{Quantity, quantity_type};
use crate::libraries::semver::Semver;
use crate::types::{Type, TypeProvider};
use crate::value::{HostKind, HostValue, Shape, Value};

/// What evaluating a selector may cost, and what it may be estimated to cost.
pub const MAX_COST: u64 = 1_000_000;
/// The longest selector.
pub const MAX_EXPRESSION_BYTES: usize = 10 * 1024;

const DEVICE: &str = "device";
const TYPE_NAME: &str = "kubernetes.DRADevice";

/// A device as selectors see it.
#[derive(Clone, Debug, Default)]
pub struct Device {
    pub driver: String,
    pub allows_multiple_allocations: bool,
    /// By domain and identifier.
    pub attributes: BTreeMap<String, BTreeMap<String, Attribute>>,
    pub capacity: BTreeMap<String, BTreeMap<String, Quantity>>,
}

#[derive(Clone, Debug)]
pub enum Attribute {
    Int(i64),
    Bool(bool),
    String(String),
    Version(Semver),
}

/// An environment for selectors on top of one of Kubernetes'.
pub fn environment(base: &Environment) -> Environment {
    base.extend()
        .bindings()
        .provider(Arc::new(DeviceTypes))
        .variable(DEVICE, Type::Object(TYPE_NAME.into()))
        .done()
}

/// The domain and identifier of a qualified name; names without a domain are the driver's.
pub fn split_name<'a>(name: &'a str, driver: &'a str) -> (&'a str, &'a str) {
    name.split_once('/').unwrap_or((driver, name))
}

impl Device {
    /// The value of the variable `device`.
    pub fn variable(&self) -> (&'static str, Value<'_>) {
        (DEVICE, host(self, &DeviceShape))
    }
}

struct DeviceTypes;

impl TypeProvider for DeviceTypes {
    fn has_type(&self, name: &str) -> bool {
        name == TYPE_NAME
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        let by_name = |of: Type| Type::map(Type::String, Type::map(Type::String, of));
        match field {
            _ if type_name != TYPE_NAME => None,
            "driver" => Some(Type::String),
            "allowMultipleAllocations" => Some(Type::Bool),
            "attributes" => Some(by_name(Type::Dyn)),
            "capacity" => Some(by_name(quantity_type())),
            _ => None,
        }
    }

    fn fields(&self, type_name: &str) -> Vec<Name> {
        match type_name == TYPE_NAME {
            true => FIELDS.map(Name::from).into(),
            false => Vec::new(),
        }
    }
}

const FIELDS: [&str; 4] = [
    "driver",
    "allowMultipleAllocations",
    "attributes",
    "capacity",
];

/// How large the parts of a device can be.
pub struct DeviceBounds;

#[derive(Clone, Copy)]
enum Part {
    Device,
    Driver,
    Flag,
    Domains { of_attributes: bool },
    Names { of_attributes: bool },
    Domain,
    Identifier,
    Attribute,
    Quantity,
}

impl Part {
    fn at(self, step: &str) -> Option<Part> {
        match (self, step) {
            (Part::Device, "driver") => Some(Part::Driver),
            (Part::Device, "allowMultipleAllocations") => Some(Part::Flag),
            (Part::Device, "attributes") => Some(Part::Domains {
                of_attributes: true,
            }),
            (Part::Device, "capacity") => Some(Part::Domains {
                of_attributes: false,
            }),
            (Part::Domains { .. }, "@keys") => Some(Part::Domain),
            (Part::Domains { of_attributes }, "@items" | "@values") => {
                Some(Part::Names { of_attributes })
            }
            (Part::Names { .. }, "@keys") => Some(Part::Identifier),
            (
                Part::Names {
                    of_attributes: false,
                },
                "@items" | "@values",
            ) => Some(Part::Quantity),
            // All attributes are of one size, whatever their names.
            (
                Part::Names {
                    of_attributes: true,
                },
                _,
            ) => Some(Part::Attribute),
            _ => None,
        }
    }

    fn most(self) -> u64 {
        match self {
            Part::Driver | Part::Domain => 63,
            Part::Flag => 1,
            Part::Domains { .. } | Part::Names { .. } | Part::Identifier => 32,
            Part::Attribute => 64,
            // Upstream declares no size for these.
            Part::Device | Part::Quantity => 0,
        }
    }
}

impl SizeBounds for DeviceBounds {
    fn size(&self, path: &[Name], _type_of: &Type) -> Option<SizeEstimate> {
        let (first, steps) = path.split_first()?;
        if &**first != DEVICE {
            return None;
        }
        let mut part = Part::Device;
        for step in steps {
            part = part.at(step)?;
        }
        Some(SizeEstimate {
            min: 0,
            max: part.most(),
        })
    }
}

fn host<'a>(data: &'a (dyn Any + Send + Sync), shape: &'a dyn Shape) -> Value<'a> {
    Value::Host(HostValue { data, shape })
}

struct DeviceShape;

impl Shape for DeviceShape {
    fn kind(&self, _: &(dyn Any + Send + Sync)) -> HostKind {
        HostKind::Object
    }

    fn type_of(&self, _: &(dyn Any + Send + Sync)) -> Type {
        Type::map(Type::Dyn, Type::Dyn)
    }

    fn len(&self, _: &(dyn Any + Send + Sync)) -> usize {
        FIELDS.len()
    }

    fn at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<Value<'a>> {
        self.get(data, FIELDS.get(index)?)
    }

    fn key_at<'a>(&'a self, _: &'a (dyn Any + Send + Sync), index: usize) -> Option<&'a str> {
        FIELDS.get(index).copied()
    }

    fn get<'a>(&'a self, data: &'a (dyn Any + Send + Sync), key: &str) -> Option<Value<'a>> {
        let device = data.downcast_ref::<Device>()?;
        match key {
            "driver" => Some(device.driver.as_str().into()),
            "allowMultipleAllocations" => Some(device.allows_multiple_allocations.into()),
            "attributes" => Some(host(&device.attributes, &Domains::<Attribute>::SHAPE)),
            "capacity" => Some(host(&device.capacity, &Domains::<Quantity>::SHAPE)),
            _ => None,
        }
    }
}

/// What is in the inner maps.
trait Member: Any + Send + Sync + Sized {
    fn value(&self) -> Value<'_>;
}

impl Member for Attribute {
    fn value(&self) -> Value<'_> {
        match self {
            Attribute::Int(number) => Value::Int(*number),
            Attribute::Bool(value) => Value::Bool(*value),
            Attribute::String(text) => text.as_str().into(),
            Attribute::Version(version) => version.clone().into(),
        }
    }
}

impl Member for Quantity {
    fn value(&self) -> Value<'_> {
        self.clone().into()
    }
}

/// Maps by domain. A domain that is not there is an empty map, so that looking an attribute up fails
/// with the name of the attribute.
struct Domains<T>(std::marker::PhantomData<T>);

struct Names<T>(std::marker::PhantomData<T>);

impl<T: Member> Domains<T> {
    const SHAPE: Domains<T> = Domains(std::marker::PhantomData);
}

impl<T: Member> Names<T> {
    const SHAPE: Names<T> = Names(std::marker::PhantomData);
}

impl<T: Member> Shape for Domains<T> {
    fn kind(&self, _: &(dyn Any + Send + Sync)) -> HostKind {
        HostKind::Map
    }

    fn type_of(&self, _: &(dyn Any + Send + Sync)) -> Type {
        Type::map(Type::Dyn, Type::Dyn)
    }

    fn len(&self, data: &(dyn Any + Send + Sync)) -> usize {
        domains::<T>(data).map_or(0, BTreeMap::len)
    }

    fn at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<Value<'a>> {
        let names = domains::<T>(data)?.values().nth(index)?;
        Some(host(names, &Names::<T>::SHAPE))
    }

    fn key_at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<&'a str> {
        domains::<T>(data)?.keys().nth(index).map(String::as_str)
    }

    fn get<'a>(&'a self, data: &'a (dyn Any + Send + Sync), key: &str) -> Option<Value<'a>> {
        match domains::<T>(data)?.get(key) {
            Some(names) => Some(host(names, &Names::<T>::SHAPE)),
            None => Some(Value::Map(Arc::default())),
        }
    }

    fn contains(&self, data: &(dyn Any + Send + Sync), key: &str) -> bool {
        domains::<T>(data).is_some_and(|domains| domains.contains_key(key))
    }
}

type ByName<T> = BTreeMap<String, T>;

fn domains<T: Member>(data: &(dyn Any + Send + Sync)) -> Option<&ByName<ByName<T>>> {
    data.downcast_ref()
}

impl<T: Member> Shape for Names<T> {
    fn kind(&self, _: &(dyn Any + Send + Sync)) -> HostKind {
        HostKind::Map
    }

    fn type_of(&self, _: &(dyn Any + Send + Sync)) -> Type {
        Type::map(Type::Dyn, Type::Dyn)
    }

    fn len(&self, data: &(dyn Any + Send + Sync)) -> usize {
        data.downcast_ref::<ByName<T>>().map_or(0, BTreeMap::len)
    }

    fn at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<Value<'a>> {
        let names = data.downcast_ref::<ByName<T>>()?;
        names.values().nth(index).map(T::value)
    }

    fn key_at<'a>(&'a self, data: &'a (dyn Any + Send + Sync), index: usize) -> Option<&'a str> {
        let names = data.downcast_ref::<ByName<T>>()?;
        names.keys().nth(index).map(String::as_str)
    }

    fn get<'a>(&'a self, data: &'a (dyn Any + Send + Sync), key: &str) -> Option<Value<'a>> {
        data.downcast_ref::<ByName<T>>()?.get(key).map(T::value)
    }
}
