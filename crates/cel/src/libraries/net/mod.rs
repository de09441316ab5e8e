//! Kubernetes' libraries for IP addresses (`ip`) and ranges of them (`cidr`).

pub(crate) mod address;

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use self::address::{masked, parse_address, parse_prefix};
use crate::function::{EvalError, Overload};
use crate::libraries::declare::{global, member, message};
use crate::libraries::quote::quoted;
use crate::types::Type;
use crate::value::{Opaque, Value};

pub fn ip_type() -> Type {
    Type::Opaque("net.IP".into(), [].into())
}

pub fn cidr_type() -> Type {
    Type::Opaque("net.CIDR".into(), [].into())
}

/// An address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ip(pub IpAddr);

/// A range of addresses, with the bits of the address that it was written with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub bits: u8,
}

pub fn ip_overloads() -> Vec<Overload> {
    vec![
        global("ip", "string_to_ip", [Type::String], ip_type()).calls(ip),
        member("family", "ip_family", [ip_type()], Type::Int).calls(family),
        global(
            "ip.isCanonical",
            "ip_is_canonical",
            [Type::String],
            Type::Bool,
        )
        .calls(is_canonical),
        member(
            "isUnspecified",
            "ip_is_unspecified",
            [ip_type()],
            Type::Bool,
        )
        .calls(|arguments| property(arguments, |address| address.is_unspecified())),
        member("isLoopback", "ip_is_loopback", [ip_type()], Type::Bool)
            .calls(|arguments| property(arguments, |address| address.is_loopback())),
        member(
            "isLinkLocalMulticast",
            "ip_is_link_local_multicast",
            [ip_type()],
            Type::Bool,
        )
        .calls(|arguments| property(arguments, is_link_local_multicast)),
        member(
            "isLinkLocalUnicast",
            "ip_is_link_local_unicast",
            [ip_type()],
            Type::Bool,
        )
        .calls(|arguments| property(arguments, is_link_local_unicast)),
        member(
            "isGlobalUnicast",
            "ip_is_global_unicast",
            [ip_type()],
            Type::Bool,
        )
        .calls(|arguments| property(arguments, is_global_unicast)),
        global("isIP", "is_ip", [Type::String], Type::Bool).calls(is_ip),
        global("string", "ip_to_string", [ip_type()], Type::String).calls(ip_to_string),
    ]
}

pub fn cidr_overloads() -> Vec<Overload> {
    vec![
        global("cidr", "string_to_cidr", [Type::String], cidr_type()).calls(cidr),
        member(
            "containsIP",
            "cidr_contains_ip_string",
            [cidr_type(), Type::String],
            Type::Bool,
        )
        .calls(contains_ip),
        member(
            "containsIP",
            "cidr_contains_ip_ip",
            [cidr_type(), ip_type()],
            Type::Bool,
        )
        .calls(contains_ip),
        member(
            "containsCIDR",
            "cidr_contains_cidr_string",
            [cidr_type(), Type::String],
            Type::Bool,
        )
        .calls(contains_cidr),
        member(
            "containsCIDR",
            "cidr_contains_cidr",
            [cidr_type(), cidr_type()],
            Type::Bool,
        )
        .calls(contains_cidr),
        member("ip", "cidr_ip", [cidr_type()], ip_type()).calls(cidr_ip),
        member(
            "prefixLength",
            "cidr_prefix_length",
            [cidr_type()],
            Type::Int,
        )
        .calls(prefix_length),
        member("masked", "cidr_masked", [cidr_type()], cidr_type()).calls(cidr_masked),
        global("isCIDR", "is_cidr", [Type::String], Type::Bool).calls(is_cidr),
        global("string", "cidr_to_string", [cidr_type()], Type::String).calls(cidr_to_string),
    ]
}

fn ip<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text)] => Ok(parse_ip(text)?.into()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn parse_ip(text: &str) -> Result<Ip, EvalError> {
    let parsed = parse_address(text).map_err(|error| {
        message(format!(
            "IP Address {} parse error during conversion from string: {error}",
            quoted(text)
        ))
    })?;
    if !parsed.zone.is_empty() {
        return Err(message(format!(
            "IP address {} with zone value is not allowed",
            quoted(text)
        )));
    }
    if is_mapped(parsed.address) {
        return Err(mapped(text));
    }
    Ok(Ip(parsed.address))
}

fn parse_cidr(text: &str) -> Result<Cidr, EvalError> {
    // The words stand twice in upstream's message as well.
    const REASON: &str = "network address parse error during conversion from string";
    let (address, bits) =
        parse_prefix(text).map_err(|error| message(format!("{REASON}: {REASON}: {error}")))?;
    if is_mapped(address) {
        let EvalError::Message(reason) = mapped(text) else {
            return Err(EvalError::NoSuchOverload);
        };
        return Err(message(format!("{REASON}: {reason}")));
    }
    Ok(Cidr { address, bits })
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

fn mapped(text: &str) -> EvalError {
    message(format!(
        "IPv4-mapped IPv6 address {} is not allowed",
        quoted(text)
    ))
}

fn is_ip<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(parse_ip(text).is_ok())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_cidr<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(parse_cidr(text).is_ok())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn is_canonical<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(parse_ip(text)?.0.to_string() == **text)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn family<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let is_v4 = address(arguments)?.is_ipv4();
    Ok(Value::Int(if is_v4 { 4 } else { 6 }))
}

fn ip_to_string<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(address(arguments)?.to_string().into())
}

fn property<'a>(
    arguments: &[Value<'a>],
    holds: fn(IpAddr) -> bool,
) -> Result<Value<'a>, EvalError> {
    Ok(Value::Bool(holds(address(arguments)?)))
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// Private addresses count as global, as in Go.
fn is_global_unicast(address: IpAddr) -> bool {
    address != IpAddr::V4(Ipv4Addr::BROADCAST)
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}

fn address(arguments: &[Value<'_>]) -> Result<IpAddr, EvalError> {
    let [Value::Opaque(value)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let ip = value.as_any().downcast_ref::<Ip>();
    ip.map(|ip| ip.0).ok_or(EvalError::NoSuchOverload)
}

fn range<'v>(value: &'v Value<'_>) -> Result<&'v Cidr, EvalError> {
    let Value::Opaque(value) = value else {
        return Err(EvalError::NoSuchOverload);
    };
    let cidr = value.as_any().downcast_ref::<Cidr>();
    cidr.ok_or(EvalError::NoSuchOverload)
}

fn cidr<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    match arguments {
        [Value::String(text)] => Ok(parse_cidr(text)?.into()),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn contains_ip<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [cidr, other] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let other = match other {
        // A text that is no address is no match of any overload; upstream loses the reason.
        Value::String(text) => parse_ip(text).map_err(|_| EvalError::NoSuchOverload)?.0,
        other => address(std::slice::from_ref(other))?,
    };
    let cidr = range(cidr)?;
    let is_same_family = cidr.address.is_ipv4() == other.is_ipv4();
    let is_inside = masked(cidr.address, cidr.bits) == masked(other, cidr.bits.min(width(other)));
    Ok(Value::Bool(is_same_family && is_inside))
}

fn contains_cidr<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [cidr, other] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let parsed;
    let other = match other {
        Value::String(text) => {
            parsed = parse_cidr(text)?;
            &parsed
        }
        other => range(other)?,
    };
    let cidr = range(cidr)?;
    let is_same_family = cidr.address.is_ipv4() == other.address.is_ipv4();
    let is_inside = is_same_family
        && cidr.bits <= other.bits
        && masked(cidr.address, cidr.bits) == masked(other.address, cidr.bits);
    Ok(Value::Bool(is_inside))
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn cidr_ip<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [cidr] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    Ok(Ip(range(cidr)?.address).into())
}

fn prefix_length<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [cidr] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    Ok(Value::Int(range(cidr)?.bits.into()))
}

fn cidr_masked<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [cidr] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let cidr = range(cidr)?;
    let masked = Cidr {
        address: masked(cidr.address, cidr.bits),
        bits: cidr.bits,
    };
    Ok(masked.into())
}

fn cidr_to_string<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [cidr] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    Ok(range(cidr)?.to_string().into())
}

impl Opaque for Ip {
    fn type_of(&self) -> Type {
        ip_type()
    }

    fn equals(&self, other: &Value<'_>) -> Option<bool> {
        let Value::Opaque(other) = other else {
            return None;
        };
        let other = other.as_any().downcast_ref::<Ip>()?;
        Some(self == other)
    }

    fn size(&self) -> Option<u64> {
        Some(u64::from(width(self.0) / 8))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Opaque for Cidr {
    fn type_of(&self) -> Type {
        cidr_type()
    }

    fn equals(&self, other: &Value<'_>) -> Option<bool> {
        let Value::Opaque(other) = other else {
            return None;
        };
        let other = other.as_any().downcast_ref::<Cidr>()?;
        Some(self == other)
    }

    /// The bytes of the prefix.
    fn size(&self) -> Option<u64> {
        Some(u64::from(self.bits.div_ceil(8)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl From<Ip> for Value<'_> {
    fn from(ip: Ip) -> Self {
        Value::Opaque(Arc::new(ip))
    }
}

impl From<Cidr> for Value<'_> {
    fn from(cidr: Cidr) -> Self {
        Value::Opaque(Arc::new(cidr))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

impl fmt::Debug for Ip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ip({})", self.0)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cidr({self})")
    }
}
