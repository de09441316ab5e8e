//! Kubernetes' library of named formats: `format.dns1123Label().validate(text)`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::function::{EvalError, Overload};
use crate::libraries::declare::{global, list, member, object, optional};
use crate::libraries::names;
use crate::types::Type;
use crate::value::{Opaque, Value};

pub fn format_type() -> Type {
    object("kubernetes.NamedFormat")
}

/// A format that texts can be validated against.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NamedFormat(&'static Format);

struct Format {
    function: &'static str,
    name: &'static str,
    /// What validating costs is computed from the length of a regular expression.
    pattern_size: u64,
    validate: fn(&str) -> Vec<String>,
}

static KNOWN: [Format; 13] = [
    Format {
        function: "format.dns1123Label",
        name: "DNS1123Label",
        pattern_size: 30,
        validate: |text| names::dns_1123_label(text.as_bytes()),
    },
    Format {
        function: "format.dns1123Subdomain",
        name: "DNS1123Subdomain",
        pattern_size: 60,
        validate: |text| names::dns_1123_subdomain(text.as_bytes()),
    },
    Format {
        function: "format.dns1035Label",
        name: "DNS1035Label",
        pattern_size: 30,
        validate: |text| names::dns_1035_label(text.as_bytes()),
    },
    Format {
        function: "format.qualifiedName",
        name: "QualifiedName",
        pattern_size: 60,
        validate: names::qualified_name,
    },
    Format {
        function: "format.dns1123LabelPrefix",
        name: "DNS1123LabelPrefix",
        pattern_size: 30,
        validate: |text| names::dns_1123_label(&names::without_dash(text)),
    },
    Format {
        function: "format.dns1123SubdomainPrefix",
        name: "DNS1123SubdomainPrefix",
        pattern_size: 60,
        validate: |text| names::dns_1123_subdomain(&names::without_dash(text)),
    },
    Format {
        function: "format.dns1035LabelPrefix",
        name: "DNS1035LabelPrefix",
        pattern_size: 30,
        validate: |text| names::dns_1035_label(&names::without_dash(text)),
    },
    Format {
        function: "format.labelValue",
        name: "LabelValue",
        pattern_size: 40,
        validate: names::label_value,
    },
    Format {
        function: "format.uri",
        name: "URI",
        pattern_size: 1103,
        validate: names::uri,
    },
    Format {
        function: "format.uuid",
        name: "uuid",
        pattern_size: 70,
        validate: |text| refused(!names::is_uuid(text), "does not match the UUID format"),
    },
    Format {
        function: "format.byte",
        name: "byte",
        pattern_size: 84,
        validate: |text| refused(!names::is_base64(text), "invalid base64"),
    },
    Format {
        function: "format.date",
        name: "date",
        pattern_size: 71,
        validate: |text| refused(!names::is_date(text), "invalid date"),
    },
    Format {
        function: "format.datetime",
        name: "datetime",
        pattern_size: 71,
        validate: |text| refused(!names::is_date_time(text), "invalid datetime"),
    },
];

fn refused(is_refused: bool, reason: &str) -> Vec<String> {
    match is_refused {
        true => vec![reason.to_owned()],
        false => Vec::new(),
    }
}

pub fn overloads() -> Vec<Overload> {
    let messages = optional(list(Type::String));
    let mut overloads = vec![
        member(
            "validate",
            "format-validate",
            [format_type(), Type::String],
            messages,
        )
        .calls(validate),
        global(
            "format.named",
            "format-named",
            [Type::String],
            optional(format_type()),
        )
        .calls(named),
    ];
    // A function pointer cannot carry which format it stands for, so each has its own.
    let constants: [crate::function::Compute; 13] = [
        |_| Ok(constant(0)),
        |_| Ok(constant(1)),
        |_| Ok(constant(2)),
        |_| Ok(constant(3)),
        |_| Ok(constant(4)),
        |_| Ok(constant(5)),
        |_| Ok(constant(6)),
        |_| Ok(constant(7)),
        |_| Ok(constant(8)),
        |_| Ok(constant(9)),
        |_| Ok(constant(10)),
        |_| Ok(constant(11)),
        |_| Ok(constant(12)),
    ];
    for (format, function) in KNOWN.iter().zip(constants) {
        overloads.push(global(format.function, format.function, [], format_type()).calls(function));
    }
    overloads
}

fn constant<'a>(index: usize) -> Value<'a> {
    Value::Opaque(Arc::new(NamedFormat(&KNOWN[index])))
}

fn named<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::String(name)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let index = KNOWN
        .iter()
        .position(|format| format.function.strip_prefix("format.") == Some(&**name));
    Ok(Value::Optional(
        index.map(|index| Arc::new(constant(index))),
    ))
}

fn validate<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::Opaque(format), Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let Some(format) = format.as_any().downcast_ref::<NamedFormat>() else {
        return Err(EvalError::NoSuchOverload);
    };
    let messages = (format.0.validate)(text);
    if messages.is_empty() {
        return Ok(Value::Optional(None));
    }
    let messages = messages.into_iter().map(Value::from).collect();
    Ok(Value::some(Value::list(messages)))
}

impl NamedFormat {
    pub(crate) fn pattern_size(self) -> u64 {
        self.0.pattern_size
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Format) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl Opaque for NamedFormat {
    fn type_of(&self) -> Type {
        format_type()
    }

    fn equals(&self, other: &Value<'_>) -> Option<bool> {
        let Value::Opaque(other) = other else {
            return None;
        };
        let other = other.as_any().downcast_ref::<NamedFormat>()?;
        Some(self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for NamedFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("kubernetes.NamedFormat")
    }
}
