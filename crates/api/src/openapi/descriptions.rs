//! The descriptions of built-in types, for `kubectl explain`. The build script takes them out of the
//! source of `k8s-openapi`; what that crate does not describe (lists, operations) has none here.
//!
//! They are kept compressed, a piece for each package of types, and unpacked while a document is
//! written. Nothing that was unpacked is kept.

use std::collections::BTreeSet;
use std::io::Read;

use super::Version;
use crate::document::{Object, Value};

/// By the name of a package, such as `io.k8s.api.core.v1`. The build script says how they are written.
static PACKAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/descriptions.rs"));
const BETWEEN_TYPES: char = '\u{1e}';
const BETWEEN_PARTS: char = '\u{1f}';
/// More than any package has.
const LONGEST: u64 = 4 << 20;

/// Changes when anything of this crate does: documents of built-in kinds are the same as long as this
/// is.
pub(super) const SOURCE: &str = env!("API_SOURCE");

/// Puts the descriptions of types and their fields into schemas, which are by the names of types.
pub(super) fn describe(schemas: &mut Object, version: Version) {
    let packages = schemas.iter().filter_map(|(name, _)| name.rsplit_once('.'));
    let needed: BTreeSet<String> = packages.map(|(package, _)| package.to_string()).collect();
    for (package, compressed) in PACKAGES {
        if !needed.contains(*package) {
            continue;
        }
        for one in unpacked(compressed).split(BETWEEN_TYPES) {
            let mut parts = one.split(BETWEEN_PARTS);
            let name = format!("{package}.{}", parts.next().unwrap_or_default());
            let Some(schema) = schemas.get_mut(&name) else {
                continue;
            };
            while let (Some(field), Some(text)) = (parts.next(), parts.next()) {
                if field.is_empty() {
                    schema.set(&["description"], text);
                } else if let Some(property) = schema.at_mut(&["properties", field]) {
                    describe_field(property, text, version);
                }
            }
        }
    }
}

/// In the third notation nothing may stand beside a reference, so that it is wrapped.
fn describe_field(property: &mut Value, text: &str, version: Version) {
    if version == Version::V3
        && let Some(target) = property.remove(&["$ref"])
    {
        let mut reference = Value::object();
        reference.set(&["$ref"], target);
        property.set(&["allOf"], vec![reference]);
    }
    property.set(&["description"], text);
}

fn unpacked(compressed: &[u8]) -> String {
    let mut text = String::new();
    let mut decoder = flate2::read::ZlibDecoder::new(compressed).take(LONGEST);
    // What the build script wrote can be read; without it there would be no descriptions.
    match decoder.read_to_string(&mut text) {
        Ok(_) => text,
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptions_take_less_than_a_megabyte_of_the_binary() {
        let bytes: usize = PACKAGES.iter().map(|(_, packed)| packed.len()).sum();
        assert!(bytes > 100_000, "{bytes}");
        assert!(bytes < 1_000_000, "{bytes}");
    }

    #[test]
    fn fields_have_the_words_of_kubernetes() {
        let container = "io.k8s.api.core.v1.Container";
        let spec = "io.k8s.api.core.v1.PodSpec";
        let fresh = || {
            let reference = crate::document!({"$ref": "#/x"});
            let mut schemas = Object::default();
            let image = crate::document!({"properties": {"image": {"type": "string"}}});
            schemas.insert(container, image);
            let mut affinity = Value::object();
            affinity.set(&["properties", "affinity"], reference);
            schemas.insert(spec, affinity);
            schemas
        };
        let mut schemas = fresh();
        describe(&mut schemas, Version::V3);
        let schemas = Value::Object(schemas);
        let image = schemas.str_at(&[container, "properties", "image", "description"]);
        assert!(image.starts_with("Container image name."), "{image}");
        let own = schemas.str_at(&[container, "description"]);
        assert!(own.contains("container"), "{own}");
        let affinity = schemas.at(&[spec, "properties", "affinity"]).unwrap();
        assert_eq!(affinity.list_at(&["allOf"])[0].str_at(&["$ref"]), "#/x");
        assert_eq!(
            affinity.str_at(&["description"]),
            "If specified, the pod's scheduling constraints"
        );

        // In the second notation a description stands beside a reference.
        let mut schemas = fresh();
        describe(&mut schemas, Version::V2);
        let schemas = Value::Object(schemas);
        let affinity = schemas.at(&[spec, "properties", "affinity"]).unwrap();
        assert_eq!(affinity.str_at(&["$ref"]), "#/x");
        assert!(!affinity.str_at(&["description"]).is_empty());
    }
}
