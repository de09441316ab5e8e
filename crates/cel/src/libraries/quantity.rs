//! Kubernetes' library for quantities of resources.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use quantity::ExactQuantity;

use crate::function::{EvalError, Overload};
use crate::libraries::declare::{global, member, message, object};
use crate::types::Type;
use crate::value::{Opaque, Value};

pub fn quantity_type() -> Type {
    object("kubernetes.Quantity")
}

/// A quantity.
#[derive(Clone)]
pub struct Quantity {
    amount: ExactQuantity,
    /// A sum or difference. It cannot be compared with `==` from the left, as upstream's cannot.
    is_computed: bool,
}

pub fn overloads() -> Vec<Overload> {
    let two = || [quantity_type(), quantity_type()];
    let with_int = || [quantity_type(), Type::Int];
    vec![
        global(
            "quantity",
            "string_to_quantity",
            [Type::String],
            quantity_type(),
        )
        .calls(parse),
        global(
            "isQuantity",
            "is_quantity_string",
            [Type::String],
            Type::Bool,
        )
        .calls(is_quantity),
        global("sign", "quantity_sign", [quantity_type()], Type::Int)
            .calls(|arguments| Ok(Value::Int(one(arguments)?.sign()))),
        member(
            "isGreaterThan",
            "quantity_is_greater_than",
            two(),
            Type::Bool,
        )
        .calls(|arguments| Ok(compare(arguments)?.is_gt().into())),
        member("isLessThan", "quantity_is_less_than", two(), Type::Bool)
            .calls(|arguments| Ok(compare(arguments)?.is_lt().into())),
        member("compareTo", "quantity_compare_to", two(), Type::Int)
            .calls(|arguments| Ok(Value::Int(compare(arguments)? as i64))),
        member(
            "asApproximateFloat",
            "quantity_get_float",
            [quantity_type()],
            Type::Double,
        )
        .calls(|arguments| Ok(Value::Double(one(arguments)?.approximate()))),
        member(
            "asInteger",
            "quantity_get_int",
            [quantity_type()],
            Type::Int,
        )
        .calls(as_integer),
        member(
            "isInteger",
            "quantity_is_integer",
            [quantity_type()],
            Type::Bool,
        )
        .calls(|arguments| Ok(one(arguments)?.as_integer().is_some().into())),
        member("add", "quantity_add", two(), quantity_type()).calls(add),
        member("add", "quantity_add_int", with_int(), quantity_type()).calls(add),
        member("sub", "quantity_sub", two(), quantity_type()).calls(sub),
        member("sub", "quantity_sub_int", with_int(), quantity_type()).calls(sub),
    ]
}

fn parse<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    match ExactQuantity::parse(text) {
        Ok(amount) => Ok(Quantity::from(amount).into()),
        Err(error) => Err(message(error.to_string())),
    }
}

fn is_quantity<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text)] => Ok(ExactQuantity::parse(text).is_ok().into()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn amount<'v>(value: &'v Value<'_>) -> Result<&'v Quantity, EvalError> {
    let Value::Opaque(value) = value else {
        return Err(EvalError::NoSuchOverload);
    };
    let quantity = value.as_any().downcast_ref::<Quantity>();
    quantity.ok_or(EvalError::NoSuchOverload)
}

fn one<'v>(arguments: &'v [Value<'_>]) -> Result<&'v ExactQuantity, EvalError> {
    match arguments {
        [value] => Ok(&amount(value)?.amount),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn compare(arguments: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match arguments {
        [left, right] => Ok(amount(left)?.amount.compare(&amount(right)?.amount)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn as_integer<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match one(arguments)?.as_integer() {
        Some(number) => Ok(Value::Int(number)),
        None => Err(message("cannot convert value to integer")),
    }
}

fn add<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    combined(arguments, ExactQuantity::plus)
}

fn sub<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    combined(arguments, ExactQuantity::minus)
}

fn combined<'a>(
    arguments: &[Value<'a>],
    combine: fn(&ExactQuantity, &ExactQuantity) -> ExactQuantity,
) -> Result<Value<'a>, EvalError> {
    let [left, right] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let left = &amount(left)?.amount;
    let amount = match right {
        Value::Int(number) => combine(left, &ExactQuantity::whole(*number)),
        right => combine(left, &amount(right)?.amount),
    };
    let quantity = Quantity {
        amount,
        is_computed: true,
    };
    Ok(quantity.into())
}

impl From<ExactQuantity> for Quantity {
    fn from(amount: ExactQuantity) -> Quantity {
        Quantity {
            amount,
            is_computed: false,
        }
    }
}

impl From<Quantity> for Value<'_> {
    fn from(quantity: Quantity) -> Self {
        Value::Opaque(Arc::new(quantity))
    }
}

impl Opaque for Quantity {
    fn type_of(&self) -> Type {
        quantity_type()
    }

    fn equals(&self, other: &Value<'_>) -> Option<bool> {
        let other = amount(other).ok().filter(|other| !other.is_computed)?;
        Some(self.amount.compare(&other.amount).is_eq())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "quantity({})", self.amount)
    }
}
