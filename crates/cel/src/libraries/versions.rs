//! Which libraries and options the environment of a version of Kubernetes has. Numbers are those of
//! 1.`minor`; a version has everything that came before it.

use super::{
    authorizer, format, lists, maps, net, optionals, quantity, regex, semver, sets, strings, url,
};
use crate::function::Overload;
use crate::types::Type;

/// Optional values with their syntax, and comparisons of numbers of different types.
pub const OPTIONALS: u32 = 28;
pub const MIXED_COMPARISONS: u32 = 28;
/// Checks of literals: durations, timestamps, regular expressions, lists and maps of one type; and of
/// the clauses of formats.
pub const LITERAL_CHECKS: u32 = 29;
pub const TWO_VARIABLES: u32 = 32;
pub const EXTENDED_LISTS: u32 = 34;

const AUTHORIZER: u32 = 27;
const QUANTITY: u32 = 28;
const SECOND_STRINGS: u32 = 29;
const SETS: u32 = 29;
const NETWORK: u32 = 30;
const FORMATS: u32 = 31;
const SEMVER: u32 = 33;

/// The overloads of all libraries of a version, in the order in which upstream declares them.
pub fn overloads(minor: u32) -> Vec<Overload> {
    let mut overloads = url::overloads();
    overloads.extend(regex::overloads());
    overloads.extend(lists::overloads());
    let mut since = |version: u32, library: fn() -> Vec<Overload>| {
        if minor >= version {
            overloads.extend(library());
        }
    };
    // The selectors came with 1.31, but upstream declares them for every version that has the rest.
    since(AUTHORIZER, authorizer::overloads);
    since(OPTIONALS, optionals::overloads);
    since(QUANTITY, quantity::overloads);
    if minor < SECOND_STRINGS {
        since(0, || strings::overloads(0));
    }
    since(SECOND_STRINGS, || strings::overloads(2));
    since(SETS, sets::overloads);
    since(NETWORK, net::ip_overloads);
    since(NETWORK, net::cidr_overloads);
    since(FORMATS, format::overloads);
    since(AUTHORIZER, authorizer::selector_overloads);
    since(TWO_VARIABLES, maps::overloads);
    since(SEMVER, semver::overloads);
    since(EXTENDED_LISTS, lists::extended::overloads);
    overloads
}

/// The names that libraries give to types.
pub fn type_names(minor: u32) -> Vec<(&'static str, Type)> {
    let mut names = Vec::new();
    if minor >= OPTIONALS {
        let of = Type::Opaque("optional_type".into(), [Type::Param("V".into())].into());
        names.push(("optional_type", of));
    }
    if minor >= NETWORK {
        names.push(("net.IP", net::ip_type()));
        names.push(("net.CIDR", net::cidr_type()));
    }
    names
}
