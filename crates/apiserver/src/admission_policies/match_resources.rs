//! Which requests a policy or a binding is about (`matchConstraints`, `matchResources`).

use api::Value;

use crate::admission_hooks::{Attributes, Rule, Selector, selector};

pub(crate) struct MatchResources {
    pub rules: Rules,
    /// What is left out again.
    pub excluded: Rules,
    /// Whether rules are for other versions of what they name.
    pub matches_equivalent: bool,
    pub namespaces: Selector,
    pub objects: Selector,
}

/// Rules, some of them for objects of certain names only.
pub(crate) struct Rules(Vec<(Rule, Vec<String>)>);

impl MatchResources {
    pub fn of_document(resources: &Value) -> MatchResources {
        MatchResources {
            rules: Rules::of_documents(resources.list_at(&["resourceRules"])),
            excluded: Rules::of_documents(resources.list_at(&["excludeResourceRules"])),
            matches_equivalent: resources.str_at(&["matchPolicy"]) == "Equivalent",
            namespaces: selector(resources, "namespaceSelector"),
            objects: selector(resources, "objectSelector"),
        }
    }
}

impl Rules {
    fn of_documents(rules: &[Value]) -> Rules {
        let rules = rules.iter().map(|rule| {
            let names = rule.list_at(&["resourceNames"]).iter();
            let names = names.filter_map(Value::as_str).map(str::to_string);
            (Rule::of_document(rule), names.collect())
        });
        Rules(rules.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is about this.
    pub fn matches(&self, attributes: &Attributes<'_>, name: &str) -> bool {
        let mut rules = self.0.iter();
        rules.any(|(rule, names)| rule.matches(attributes) && is_named(names, name))
    }

    /// Whether it is worth looking for equivalents of this.
    pub fn may_match_equivalent(&self, attributes: &Attributes<'_>) -> bool {
        let mut rules = self.0.iter();
        rules.any(|(rule, _)| rule.may_match_equivalent(attributes))
    }

    /// The first of several equivalents that they are about; earlier rules count first.
    pub fn first_match(&self, equivalents: &[Attributes<'_>], name: &str) -> Option<usize> {
        let mut rules = self.0.iter().filter(|(_, names)| is_named(names, name));
        rules.find_map(|(rule, _)| equivalents.iter().position(|one| rule.matches(one)))
    }

    /// The plurals that they name.
    pub fn plurals(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|(rule, _)| rule.plurals())
    }

    /// Whether they are for all resources.
    pub fn is_of_all(&self) -> bool {
        self.is_empty() || self.0.iter().any(|(rule, _)| rule.is_of_all())
    }
}

fn is_named(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|one| one == name)
}
