//! Reads the generated table of kinds, `kinds.tbl` (made by `tools/tables/kinds`).
//!
//! One line per fact, columns separated by tabs, lists by commas:
//!
//! - `K` group, version, kind, plural, singular, `N`amespaced or `C`luster, verbs, short names, categories
//! - `S` a subresource of the kind above: name, group, version and kind of what is sent there, verbs
//! - `C` a table column of the kind above: name, type, format, priority

use std::borrow::Cow;

use crate::resource::{Column, Definition, Name, Resource, Rules, Subresource, generic};
use crate::{schema, strategy};

/// Every kind of upstream that is generally available or can be switched on, by group and plural;
/// several versions of a kind in upstream's order of preference.
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
                group: Cow::Borrowed(group),
                version: Cow::Borrowed(version),
                kind: Cow::Borrowed(kind),
                plural: Cow::Borrowed(plural),
                singular: Cow::Borrowed(singular),
                namespaced: *scope == "N",
                short_names: names(short),
                categories: names(categories),
                verbs: list(verbs).collect(),
                subresources: Vec::new(),
                columns: Vec::new(),
                definition: Definition::BuiltIn(
                    schema::definition_of(group, version, kind).unwrap_or_default(),
                ),
                // Settled below, when its subresources are known.
                rules: Rules::BuiltIn(generic::of(false, false)),
                storage: None,
            }),
            (["S", name, group, version, kind, verbs], Some(resource)) => {
                resource.subresources.push(Subresource {
                    name,
                    kind: Cow::Borrowed(kind),
                    group: Cow::Borrowed(group),
                    version: Cow::Borrowed(version),
                    verbs: list(verbs).collect(),
                });
            }
            (["C", name, kind, format, priority], Some(resource)) => {
                resource.columns.push(Column {
                    name: Cow::Borrowed(name),
                    kind: Cow::Borrowed(kind),
                    format: Cow::Borrowed(format),
                    priority: priority.parse().unwrap_or_default(),
                    description: Cow::Borrowed(""),
                });
            }
            _ => unreachable!("kinds.tbl is generated and tested: {line}"),
        }
    }
    for resource in &mut resources {
        let own = strategy::built_in(&resource.group, &resource.kind);
        let rules = own.unwrap_or_else(|| {
            let has_status = resource.has_status();
            generic::of(resource.namespaced, has_status)
        });
        resource.rules = Rules::BuiltIn(rules);
    }
    resources
}

fn list(words: &'static str) -> impl Iterator<Item = &'static str> {
    words.split(',').filter(|word| !word.is_empty())
}

fn names(words: &'static str) -> Vec<Name> {
    list(words).map(Cow::Borrowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_and_columns_if_it_is_listed() {
        let resources = read();
        assert!(resources.len() > 60, "{}", resources.len());
        for resource in &resources {
            assert!(!resource.definition.name().is_empty(), "{resource:?}");
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
            .find(|resource| resource.group.is_empty() && resource.plural == "pods")
            .expect("pods");
        assert_eq!(pods.short_names, ["po"]);
        assert_eq!(pods.categories, ["all"]);
        assert!(pods.namespaced);
        let eviction = pods.subresource("eviction").expect("eviction");
        assert_eq!((&*eviction.group, &*eviction.kind), ("policy", "Eviction"));
        let names: Vec<_> = pods.columns.iter().map(|column| &*column.name).collect();
        assert_eq!(names[..5], ["Name", "Ready", "Status", "Restarts", "Age"]);
        assert_eq!(pods.columns[5].priority, 1);
    }
}
