//! Validation of IP addresses and CIDRs in fields.
//!
//! Old fields accept non-canonical IPv6 with a warning; new fields require the canonical form.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::document::Value;
use crate::field::{FieldError, Path, quote};
use crate::repeats::Seen;

const ADDRESS_WORDS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const RANGE_WORDS: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// A CIDR taken apart: the address as written, with the number of bits of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub address: IpAddr,
    pub bits: u8,
}

impl Range {
    /// The range with the bits beyond the prefix cleared.
    pub fn masked(self) -> Range {
        Range {
            address: self.network().map_or(self.address, |net| net.network()),
            ..self
        }
    }

    pub fn contains(self, address: IpAddr) -> bool {
        self.network().is_some_and(|net| net.contains(&address))
    }

    fn network(self) -> Option<IpNet> {
        IpNet::new(self.address, self.bits).ok()
    }

    fn text(self) -> String {
        format!("{}/{}", self.address, self.bits)
    }
}

/// Reads an address as Go's older parser did: decimal parts may have leading zeros, an IPv4 address
/// written as IPv6 is IPv4.
pub fn parse(text: &str) -> Option<IpAddr> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => Some(
            address
                .to_ipv4_mapped()
                .map_or(IpAddr::V6(address), IpAddr::V4),
        ),
        Ok(address) => Some(address),
        Err(_) => {
            let parts: Vec<&str> = text.split('.').collect();
            let plain = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if parts.len() != 4 || !parts.iter().all(plain) {
                return None;
            }
            let mut octets = [0; 4];
            for (octet, part) in octets.iter_mut().zip(parts) {
                let digits = part.trim_start_matches('0');
                *octet = match digits {
                    "" => 0,
                    _ => digits.parse().ok()?,
                };
            }
            Some(IpAddr::V4(Ipv4Addr::from(octets)))
        }
    }
}

/// Reads a CIDR in the same way.
pub fn parse_range(text: &str) -> Option<Range> {
    let (address, bits) = text.split_once('/')?;
    let mapped = address.contains(':');
    let address = parse(address)?;
    let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let bits: u16 = bits.parse().ok().filter(|_| digits)?;
    let (most, shift) = match (address, mapped) {
        (IpAddr::V4(_), false) => (32, 0),
        (IpAddr::V4(_), true) => (128, 96),
        (IpAddr::V6(_), _) => (128, 0),
    };
    if bits > most {
        return None;
    }
    let bits = u8::try_from(bits.saturating_sub(shift)).ok()?;
    Some(Range { address, bits })
}

/// The texts of a list.
pub fn existing(list: &[Value]) -> Seen<String> {
    let texts = list.iter().filter_map(Value::as_str);
    texts.map(str::to_string).collect()
}

/// The errors of an address in an old field. Addresses in `existing` are valid.
pub fn old_address(text: &str, existing: &Seen<String>, path: &Path) -> Vec<FieldError> {
    if existing.contains(text) {
        return Vec::new();
    }
    let wrong = |detail: &str| FieldError::invalid(path, text, detail);
    if parse(text).is_none() {
        return vec![wrong(ADDRESS_WORDS)];
    }
    match text.parse::<IpAddr>() {
        Err(_) => vec![wrong("must not have leading 0s")],
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec![wrong("must not be an IPv4-mapped IPv6 address")]
        }
        Ok(_) => Vec::new(),
    }
}

/// The errors of an address in a new field.
pub fn address(text: &str, path: &Path) -> Vec<FieldError> {
    let errors = old_address(text, &Seen::new(), path);
    match parse(text) {
        Some(parsed) if errors.is_empty() && parsed.to_string() != text => {
            let detail = format!("must be in canonical form ({})", quote(&parsed.to_string()));
            vec![FieldError::invalid(path, text, detail)]
        }
        _ => errors,
    }
}

/// The errors of a CIDR in an old field.
pub fn old_range(text: &str, existing: &Seen<String>, path: &Path) -> Vec<FieldError> {
    if existing.contains(text) {
        return Vec::new();
    }
    let wrong = |detail: &str| vec![FieldError::invalid(path, text, detail)];
    let Some(range) = parse_range(text) else {
        return wrong(RANGE_WORDS);
    };
    let (address, bits) = text.split_once('/').unwrap_or_default();
    let padded = bits.len() > 1 && bits.starts_with('0');
    match address.parse::<IpAddr>() {
        Err(_) => wrong("must not have leading 0s in IP or prefix length"),
        Ok(_) if padded => wrong("must not have leading 0s in IP or prefix length"),
        Ok(IpAddr::V6(written)) if written.to_ipv4_mapped().is_some() => {
            wrong("must not have an IPv4-mapped IPv6 address")
        }
        Ok(_) if range != range.masked() => {
            wrong("must not have bits set beyond the prefix length")
        }
        Ok(_) => Vec::new(),
    }
}

/// The errors of a CIDR in a new field.
pub fn range(text: &str, path: &Path) -> Vec<FieldError> {
    let errors = old_range(text, &Seen::new(), path);
    match parse_range(text) {
        Some(range) if errors.is_empty() && range.text() != text => {
            let detail = format!("must be in canonical form ({})", quote(&range.text()));
            vec![FieldError::invalid(path, text, detail)]
        }
        _ => errors,
    }
}

/// The errors of an interface address with prefix length.
pub fn interface_address(text: &str, path: &Path) -> Vec<FieldError> {
    let Some(range) = parse_range(text) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return vec![FieldError::invalid(path, text, detail)];
    };
    match range.text() == text {
        true => Vec::new(),
        false => {
            let detail = format!("must be in canonical form ({})", quote(&range.text()));
            vec![FieldError::invalid(path, text, detail)]
        }
    }
}

/// The errors of an address to which traffic would be sent.
pub fn endpoint(text: &str, path: &Path) -> Vec<FieldError> {
    let wrong = |detail: String| FieldError::invalid(path, text, detail);
    let Some(address) = parse(text) else {
        return vec![wrong("must be a valid IP address".to_string())];
    };
    let (link_local, link_local_multicast) = match address {
        IpAddr::V4(one) => (one.is_link_local(), one.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(one) => (
            one.is_unicast_link_local(),
            one.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    let mut errors = Vec::new();
    if address.is_unspecified() {
        errors.push(wrong(format!("may not be unspecified ({text})")));
    }
    if address.is_loopback() {
        let detail = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        errors.push(wrong(detail.to_string()));
    }
    if link_local {
        let detail = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        errors.push(wrong(detail.to_string()));
    }
    if link_local_multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.push(wrong(detail.to_string()));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(FieldError::to_string).collect()
    }

    #[test]
    fn malformed_addresses_are_rejected() {
        let path = Path::new("ip");
        let check = |text: &str, old: &[&str], new: &[&str]| {
            let strip = |errors: Vec<FieldError>| -> Vec<String> {
                errors.into_iter().map(|error| error.detail).collect()
            };
            assert_eq!(strip(old_address(text, &Seen::new(), &path)), old, "{text}");
            assert_eq!(strip(address(text, &path)), new, "{text}");
        };
        check("10.0.0.1", &[], &[]);
        check("2001:db8::1", &[], &[]);
        check(
            "2001:DB8::1",
            &[],
            &[r#"must be in canonical form ("2001:db8::1")"#],
        );
        check(
            "010.0.0.1",
            &["must not have leading 0s"],
            &["must not have leading 0s"],
        );
        let mapped = "must not be an IPv4-mapped IPv6 address";
        check("::ffff:1.2.3.4", &[mapped], &[mapped]);
        check("10.0.0.256", &[ADDRESS_WORDS], &[ADDRESS_WORDS]);
        check("", &[ADDRESS_WORDS], &[ADDRESS_WORDS]);
        assert!(old_address("010.0.0.1", &existing(&["010.0.0.1".into()]), &path).is_empty());
    }

    #[test]
    fn malformed_cidrs_are_rejected() {
        let path = Path::new("cidr");
        let check = |text: &str, expected: &[&str]| {
            let details: Vec<String> = range(text, &path).into_iter().map(|e| e.detail).collect();
            assert_eq!(details, expected, "{text}");
        };
        check("10.0.0.0/8", &[]);
        check("2001:db8::/64", &[]);
        check("0.0.0.0/0", &[]);
        check(
            "10.0.0.1/8",
            &["must not have bits set beyond the prefix length"],
        );
        check(
            "10.0.0.0/08",
            &["must not have leading 0s in IP or prefix length"],
        );
        check("10.0.0.0/33", &[RANGE_WORDS]);
        check("10.0.0.0", &[RANGE_WORDS]);
        check(
            "2001:db8:0::/64",
            &[r#"must be in canonical form ("2001:db8::/64")"#],
        );
        let outer = parse_range("10.0.0.0/8").unwrap();
        assert!(outer.contains("10.1.2.3".parse().unwrap()));
        assert!(!outer.contains("11.0.0.0".parse().unwrap()));
        assert!(!outer.contains("::1".parse().unwrap()));
    }

    #[test]
    fn special_addresses_are_rejected_as_endpoints() {
        let path = Path::new("f");
        assert_eq!(
            texts(endpoint("127.0.0.1", &path)),
            [
                r#"f: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#
            ]
        );
        assert!(endpoint("10.0.0.1", &path).is_empty());
    }
}
