//! Texts to addresses and ranges with the strictness of Go's `netip`: no leading zeros, no brackets,
//! and its messages.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::libraries::quote::quoted;

/// An address and, of an IPv6 address, its zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed<'a> {
    pub address: IpAddr,
    pub zone: &'a str,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("ParseAddr({}): {reason}", quoted(text))]
    Text { text: String, reason: &'static str },
    #[error("ParseAddr({}): {reason} (at {})", quoted(text), quoted(at))]
    TextAt {
        text: String,
        reason: &'static str,
        at: String,
    },
}

/// Why a text is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PrefixError {
    #[error("netip.ParsePrefix({}): no '/'", quoted(text))]
    NoSlash { text: String },
    #[error("netip.ParsePrefix({}): {reason}", quoted(text))]
    Address { text: String, reason: AddressError },
    #[error(
        "netip.ParsePrefix({}): IPv6 zones cannot be present in a prefix",
        quoted(text)
    )]
    Zone { text: String },
    #[error(
        "netip.ParsePrefix({}): bad bits after slash: {}",
        quoted(text),
        quoted(bits)
    )]
    Bits { text: String, bits: String },
    #[error("netip.ParsePrefix({}): prefix length out of range", quoted(text))]
    Length { text: String },
}

pub(crate) fn parse_address(text: &str) -> Result<Parsed<'_>, AddressError> {
    for byte in text.bytes() {
        match byte {
            b'.' => {
                return Ok(Parsed {
                    address: IpAddr::V4(parse_v4(text, text)?.into()),
                    zone: "",
                });
            }
            b':' => return parse_v6(text),
            b'%' => return Err(wrong(text, "missing IPv6 address")),
            _ => {}
        }
    }
    Err(wrong(text, "unable to parse IP"))
}

/// An address with the number of its leading bits that count.
pub(crate) fn parse_prefix(text: &str) -> Result<(IpAddr, u8), PrefixError> {
    let owned = || text.to_owned();
    let (address, bits) = text
        .rsplit_once('/')
        .ok_or_else(|| PrefixError::NoSlash { text: owned() })?;
    let parsed = parse_address(address).map_err(|reason| PrefixError::Address {
        text: owned(),
        reason,
    })?;
    if !parsed.zone.is_empty() {
        return Err(PrefixError::Zone { text: owned() });
    }
    let wrong_bits = || PrefixError::Bits {
        text: owned(),
        bits: bits.to_owned(),
    };
    let has_leading_zero = bits.len() > 1 && !matches!(bits.as_bytes()[0], b'1'..=b'9');
    if has_leading_zero || bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong_bits());
    }
    let bits: i64 = bits.parse().map_err(|_| wrong_bits())?;
    let most = if parsed.address.is_ipv4() { 32 } else { 128 };
    match u8::try_from(bits) {
        Ok(bits) if bits <= most => Ok((parsed.address, bits)),
        _ => Err(PrefixError::Length { text: owned() }),
    }
}

/// The four numbers of an IPv4 address in a part of the whole text.
fn parse_v4(whole: &str, text: &str) -> Result<[u8; 4], AddressError> {
    let bytes = text.as_bytes();
    let mut fields = [0; 4];
    let (mut field, mut digits, mut position) = (0_u16, 0, 0);
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && field == 0 {
                    return Err(wrong(whole, "IPv4 field has octet with leading zero"));
                }
                field = field * 10 + u16::from(byte - b'0');
                digits += 1;
                if field > 255 {
                    return Err(wrong(whole, "IPv4 field has value >255"));
                }
            }
            b'.' => {
                if index == 0 || index == bytes.len() - 1 || bytes[index - 1] == b'.' {
                    let reason = "IPv4 field must have at least one digit";
                    return Err(wrong_at(whole, reason, &text[index..]));
                }
                if position == 3 {
                    return Err(wrong(whole, "IPv4 address too long"));
                }
                fields[position] = field as u8;
                position += 1;
                field = 0;
                digits = 0;
            }
            _ => return Err(wrong_at(whole, "unexpected character", &text[index..])),
        }
    }
    if position < 3 {
        return Err(wrong(whole, "IPv4 address too short"));
    }
    fields[3] = field as u8;
    Ok(fields)
}

fn parse_v6(whole: &str) -> Result<Parsed<'_>, AddressError> {
    let (mut rest, zone) = match whole.split_once('%') {
        Some((_, "")) => return Err(wrong(whole, "zone must be a non-empty string")),
        Some((rest, zone)) => (rest, zone),
        None => (whole, ""),
    };
    let parsed = |bytes: [u8; 16]| {
        Ok(Parsed {
            address: IpAddr::V6(Ipv6Addr::from(bytes)),
            zone,
        })
    };
    let mut bytes = [0; 16];
    // Where `::` stands, in bytes.
    let mut gap = None;
    if let Some(after) = rest.strip_prefix("::") {
        gap = Some(0);
        rest = after;
        if rest.is_empty() {
            return parsed(bytes);
        }
    }
    let mut filled = 0;
    while filled < 16 {
        let (value, length) = group(whole, rest)?;
        if rest[length..].starts_with('.') {
            if gap.is_none() && filled != 12 {
                let reason = "embedded IPv4 address must replace the final 2 fields of the address";
                return Err(wrong_at(whole, reason, rest));
            }
            if filled + 4 > 16 {
                let reason =
                    "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err(wrong_at(whole, reason, rest));
            }
            bytes[filled..filled + 4].copy_from_slice(&parse_v4(whole, rest)?);
            rest = "";
            filled += 4;
            break;
        }
        bytes[filled..filled + 2].copy_from_slice(&value.to_be_bytes());
        filled += 2;
        rest = &rest[length..];
        if rest.is_empty() {
            break;
        }
        if !rest.starts_with(':') {
            return Err(wrong_at(whole, "unexpected character, want colon", rest));
        }
        if rest.len() == 1 {
            let reason = "colon must be followed by more characters";
            return Err(wrong_at(whole, reason, rest));
        }
        rest = &rest[1..];
        if let Some(after) = rest.strip_prefix(':') {
            if gap.is_some() {
                return Err(wrong_at(whole, "multiple :: in address", rest));
            }
            gap = Some(filled);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(wrong_at(whole, "trailing garbage after address", rest));
    }
    match gap {
        None if filled < 16 => Err(wrong(whole, "address string too short")),
        Some(_) if filled == 16 => Err(wrong(
            whole,
            "the :: must expand to at least one field of zeros",
        )),
        Some(gap) => {
            bytes.copy_within(gap..filled, 16 - (filled - gap));
            bytes[gap..gap + 16 - filled].fill(0);
            parsed(bytes)
        }
        None => parsed(bytes),
    }
}

/// The hexadecimal number at the beginning of a text and how long it is.
fn group(whole: &str, rest: &str) -> Result<(u16, usize), AddressError> {
    let length = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
    if length > 4 {
        let reason = "each group must have 4 or less digits";
        return Err(wrong_at(whole, reason, rest));
    }
    let value = u16::from_str_radix(&rest[..length], 16);
    value.map(|value| (value, length)).map_err(|_| {
        let reason = "each colon-separated field must have at least one digit";
        wrong_at(whole, reason, rest)
    })
}

fn wrong(text: &str, reason: &'static str) -> AddressError {
    AddressError::Text {
        text: text.to_owned(),
        reason,
    }
}

fn wrong_at(text: &str, reason: &'static str, at: &str) -> AddressError {
    AddressError::TextAt {
        text: text.to_owned(),
        reason,
        at: at.to_owned(),
    }
}

/// An address with all but its leading bits cleared.
pub(crate) fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask))
        }
    }
}
