//! Reads the generated table of kinds, `kinds.tbl` (made by `tools/tables/kinds`).
//!
//! One line per fact, columns separated by tabs, lists by commas:
//!
//! - `K` group, version, kind, plural, singular, `N`amespaced or `C`luster, verbs, short names, categories
//! - `S` a subresource of the kind above: name, group, version and kind of what is sent there, verbs
//! - `C` a table column of the kind above: name, type, format, priority

use crate::catalogue::{Resource, Subresource};
use crate::schema;
use crate::table::Column;

/// Every generally available kind of upstream, by group and plural; several versions of a kind in
/// upstream's order of preference.
pub fn read() -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    for line in include_str!("kinds.tbl").lines() {
        let words: Vec<&'static str> = line.split('\t').collect();
        match (words.as_slice(), resources.last_mut()) {
            (
                [
                    "K",
                    group,
                    version,
                    kind,
                    plural,
                    singular,
                    scope,
                    verbs,
                    short,
                    categories,
                ],
                _,
            ) => resources.push(Resource {
                group,
                version,
                kind,
                plural,
                singular,
                namespaced: *scope == "N",
                short_names: list(short),
                categories: list(categories),
                verbs: list(verbs),
                subresources: Vec::new(),
                columns: Vec::new(),
                definition: schema::definition_of(group, version, kind).unwrap_or_default(),
            }),
            (["S", name, group, version, kind, verbs], Some(resource)) => {
                resource.subresources.push(Subresource {
                    name,
                    kind,
                    group,
                    version,
                    verbs: list(verbs),
                });
            }
            (["C", name, kind, format, priority], Some(resource)) => {
                resource.columns.push(Column {
                    name,
                    kind,
                    format,
                    priority: priority.parse().unwrap_or_default(),
                });
            }
            _ => unreachable!("kinds.tbl is generated and tested: {line}"),
        }
    }
    resources
}

fn list(words: &'static str) -> Vec<&'static str> {
    words.split(',').filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_and_columns_if_it_is_listed() {
        let resources = read();
        assert!(resources.len() > 60, "{}", resources.len());
        for resource in &resources {
            assert!(!resource.definition.is_empty(), "{resource:?}");
            assert_eq!(
                resource.has_verb("list"),
                !resource.columns.is_empty(),
                "{resource:?}"
            );
        }
    }

    #[test]
    fn a_kind_is_read_with_its_subresources_and_columns() {
        let resources = read();
        let pods = resources
            .iter()
            .find(|resource| (resource.group, resource.plural) == ("", "pods"))
            .expect("pods");
        assert_eq!(pods.short_names, ["po"]);
        assert_eq!(pods.categories, ["all"]);
        assert!(pods.namespaced);
        let eviction = pods.subresource("eviction").expect("eviction");
        assert_eq!((eviction.group, eviction.kind), ("policy", "Eviction"));
        let names: Vec<_> = pods.columns.iter().map(|column| column.name).collect();
        assert_eq!(names[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
        assert_eq!(pods.columns[5].priority, 1);
    }
}
