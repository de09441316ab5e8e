//! Words about addresses and ranges that are understood and yet not written as they should be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::Path;

pub(super) fn address(text: &str, path: &Path, warnings: &mut Vec<String>) {
    let Some(understood) = leniently(text) else {
        return;
    };
    let mapped = matches!(understood, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    if mapped || text.parse::<IpAddr>().is_err() {
        let plain = unmapped(understood);
        warnings.push(format!(
            "{path}: non-standard IP address {text:?} is invalid: use \"{plain}\""
        ));
    } else if understood.is_ipv6() && understood.to_string() != text {
        warnings.push(format!(
            "{path}: IPv6 address {text:?} should be in RFC 5952 canonical format (\"{understood}\")"
        ));
    }
}

pub(super) fn range(text: &str, path: &Path, warnings: &mut Vec<String>) {
    let Some((left, right)) = text.split_once('/') else {
        return;
    };
    let (Some(address), Ok(mut bits)) = (leniently(left), right.parse::<u32>()) else {
        return;
    };
    let plain = unmapped(address);
    let mapped = plain != address;
    if mapped {
        bits = bits.saturating_sub(96);
    }
    let width = if plain.is_ipv4() { 32 } else { 128 };
    if bits > width {
        return;
    }
    let network = masked(plain, bits);
    let before = warnings.len();
    if network != plain {
        warnings.push(format!(
            "{path}: CIDR value {text:?} is ambiguous in this context (should be \"{network}/{bits}\" or \"{plain}/{width}\"?)"
        ));
    }
    let strict = left.parse::<IpAddr>().is_ok() && (right == "0" || !right.starts_with('0'));
    if mapped || !strict {
        warnings.push(format!(
            "{path}: non-standard CIDR value {text:?} is invalid: use \"{network}/{bits}\""
        ));
    }
    let canonical = format!("{address}/{bits}");
    if warnings.len() == before && plain.is_ipv6() && canonical != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {text:?} should be in RFC 5952 canonical format ({canonical:?})"
        ));
    }
}

/// Also takes decimal numbers with leading zeros, as Go did for long.
fn leniently(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let mut bytes = [0u8; 4];
    let mut parts = text.split('.');
    for byte in &mut bytes {
        let part = parts.next()?;
        let plain = !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
        *byte = plain.then(|| part.parse().ok())??;
    }
    match parts.next() {
        None => Some(IpAddr::V4(Ipv4Addr::from(bytes))),
        Some(_) => None,
    }
}

fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        four => four,
    }
}

fn masked(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(four) & mask))
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(six) & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_addresses_and_ranges_get_warnings() {
        let told = |check: fn(&str, &Path, &mut Vec<String>), text: &str| {
            let mut warnings = Vec::new();
            check(text, &Path::new("f"), &mut warnings);
            warnings.join("\n")
        };
        assert_eq!(told(address, "10.0.0.1"), "");
        assert_eq!(
            told(address, "FE80::0001"),
            r#"f: IPv6 address "FE80::0001" should be in RFC 5952 canonical format ("fe80::1")"#
        );
        assert_eq!(
            told(address, "::ffff:1.2.3.4"),
            r#"f: non-standard IP address "::ffff:1.2.3.4" is invalid: use "1.2.3.4""#
        );
        assert_eq!(told(range, "10.0.0.0/8"), "");
        assert_eq!(
            told(range, "10.1.2.3/8"),
            r#"f: CIDR value "10.1.2.3/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.1.2.3/32"?)"#
        );
        assert_eq!(
            told(range, "010.0.0.0/8"),
            r#"f: non-standard CIDR value "010.0.0.0/8" is invalid: use "10.0.0.0/8""#
        );
    }
}
