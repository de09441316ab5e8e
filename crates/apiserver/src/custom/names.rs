//! Which names a CustomResourceDefinition may use: no two kinds of a group share a plural, singular or
//! short name, nor a kind or list kind. Pure; who had a name first keeps it.

use std::collections::BTreeMap;

use api::Resource;
use api::Value;

/// `spec.names` or `status.acceptedNames`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
    pub categories: Vec<String>,
}

impl Names {
    pub fn read(names: Option<&Value>) -> Names {
        let Some(names) = names else {
            return Names::default();
        };
        let text = |field: &str| names.str_at(&[field]).to_string();
        let texts = |field: &str| {
            let items = names.list_at(&[field]).iter();
            items
                .filter_map(Value::as_str)
                .map(str::to_string)
                .collect()
        };
        Names {
            plural: text("plural"),
            singular: text("singular"),
            short_names: texts("shortNames"),
            kind: text("kind"),
            list_kind: text("listKind"),
            categories: texts("categories"),
        }
    }

    pub fn to_document(&self) -> Value {
        let mut names = api::document!({"plural": self.plural, "kind": self.kind});
        for (field, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                names.set(&[field], text.as_str());
            }
        }
        for (field, texts) in [
            ("shortNames", &self.short_names),
            ("categories", &self.categories),
        ] {
            if !texts.is_empty() {
                let texts: Vec<Value> = texts.iter().map(|text| text.as_str().into()).collect();
                names.set(&[field], texts);
            }
        }
        names
    }

    /// Whether a kind of these names can be served.
    pub fn are_complete(&self) -> bool {
        let names = [&self.plural, &self.singular, &self.kind, &self.list_kind];
        names.iter().all(|name| !name.is_empty())
    }

    fn resources(&self) -> impl Iterator<Item = &str> {
        let names = [self.plural.as_str(), self.singular.as_str()].into_iter();
        names.chain(self.short_names.iter().map(String::as_str))
    }

    fn kinds(&self) -> impl Iterator<Item = &str> {
        [self.kind.as_str(), self.list_kind.as_str()].into_iter()
    }
}

/// The names that the kinds of one group use, each with how often.
#[derive(Default)]
pub(crate) struct UsedNames {
    resources: BTreeMap<String, usize>,
    kinds: BTreeMap<String, usize>,
}

impl UsedNames {
    /// A built-in kind's, which stay for good.
    pub fn add_built_in(&mut self, resource: &Resource) {
        let short_names = resource.short_names.iter();
        self.add(&Names {
            plural: resource.plural.to_string(),
            singular: resource.singular.to_string(),
            short_names: short_names.map(ToString::to_string).collect(),
            kind: resource.kind.to_string(),
            list_kind: format!("{}List", resource.kind),
            categories: Vec::new(),
        });
    }

    pub fn add(&mut self, names: &Names) {
        count(&mut self.resources, names.resources());
        count(&mut self.kinds, names.kinds());
    }

    pub fn remove(&mut self, names: &Names) {
        discount(&mut self.resources, names.resources());
        discount(&mut self.kinds, names.kinds());
    }

    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.kinds.is_empty()
    }
}

fn count<'a>(used: &mut BTreeMap<String, usize>, names: impl Iterator<Item = &'a str>) {
    for name in names.filter(|name| !name.is_empty()) {
        *used.entry(name.to_string()).or_default() += 1;
    }
}

fn discount<'a>(used: &mut BTreeMap<String, usize>, names: impl Iterator<Item = &'a str>) {
    for name in names.filter(|name| !name.is_empty()) {
        if let Some(times) = used.get_mut(name) {
            *times -= 1;
            if *times == 0 {
                used.remove(name);
            }
        }
    }
}

/// Why not all names were accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub reason: &'static str,
    pub message: String,
}

/// The names that a definition has now, if it asks for `requested` and had `accepted`. Each name that
/// nobody else uses is accepted; of several conflicts the last one is told.
pub(crate) fn accept(
    requested: &Names,
    accepted: &Names,
    used: &UsedNames,
) -> (Names, Option<Conflict>) {
    let mut names = accepted.clone();
    let mut conflict = None;
    let mut settle = |reason: &'static str, problems: Vec<String>| {
        let free = problems.is_empty();
        if !free {
            let message = match problems.as_slice() {
                [only] => only.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            conflict = Some(Conflict { reason, message });
        }
        free
    };
    let check = |requested: &str, accepted: &str, used: &BTreeMap<String, usize>| {
        let taken = requested != accepted && used.contains_key(requested);
        Vec::from_iter(taken.then(|| format!("{requested:?} is already in use")))
    };
    let resources = &used.resources;
    let problems = check(&requested.plural, &accepted.plural, resources);
    if settle("PluralConflict", problems) {
        names.plural.clone_from(&requested.plural);
    }
    let problems = check(&requested.singular, &accepted.singular, resources);
    if settle("SingularConflict", problems) {
        names.singular.clone_from(&requested.singular);
    }
    let mut problems: Vec<String> = Vec::new();
    for name in &requested.short_names {
        if !accepted.short_names.contains(name) {
            let problem = check(name, "", resources);
            problems.extend(
                problem
                    .into_iter()
                    .filter(|one| !problems.contains(one))
                    .collect::<Vec<_>>(),
            );
        }
    }
    if settle("ShortNamesConflict", problems) {
        names.short_names.clone_from(&requested.short_names);
    }
    let problems = check(&requested.kind, &accepted.kind, &used.kinds);
    if settle("KindConflict", problems) {
        names.kind.clone_from(&requested.kind);
    }
    let problems = check(&requested.list_kind, &accepted.list_kind, &used.kinds);
    if settle("ListKindConflict", problems) {
        names.list_kind.clone_from(&requested.list_kind);
    }
    names.categories.clone_from(&requested.categories);
    (names, conflict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plural: &str, kind: &str, short: &[&str]) -> Names {
        Names {
            plural: plural.to_string(),
            singular: kind.to_lowercase(),
            short_names: short.iter().map(ToString::to_string).collect(),
            kind: kind.to_string(),
            list_kind: format!("{kind}List"),
            categories: Vec::new(),
        }
    }

    #[test]
    fn unused_names_are_accepted() {
        let used = UsedNames::default();
        let wanted = names("widgets", "Widget", &["w"]);
        assert_eq!(
            accept(&wanted, &Names::default(), &used),
            (wanted.clone(), None)
        );
    }

    #[test]
    fn a_used_name_is_not_accepted_and_the_others_are() {
        let mut used = UsedNames::default();
        used.add(&names("widgets", "Widget", &["w"]));
        let wanted = names("gadgets", "Widget", &["g", "w"]);
        let (accepted, conflict) = accept(&wanted, &Names::default(), &used);
        assert_eq!(accepted.plural, "gadgets");
        assert_eq!(
            (accepted.kind.as_str(), accepted.short_names.len()),
            ("", 0)
        );
        let conflict = conflict.unwrap();
        assert_eq!(conflict.reason, "ListKindConflict");
        assert_eq!(conflict.message, "\"WidgetList\" is already in use");
        used.remove(&names("widgets", "Widget", &["w"]));
        assert!(used.is_empty());
        assert_eq!(accept(&wanted, &accepted, &used), (wanted, None));
    }

    #[test]
    fn a_definition_keeps_the_names_that_it_has() {
        let mut used = UsedNames::default();
        let own = names("widgets", "Widget", &["w"]);
        used.add(&own);
        let wanted = names("widgets", "Widget", &["w", "wd"]);
        let (accepted, conflict) = accept(&wanted, &own, &used);
        assert_eq!((accepted, conflict), (wanted, None));
    }

    #[test]
    fn several_short_names_in_use_are_reported_together() {
        let mut used = UsedNames::default();
        used.add(&names("as", "A", &["x", "y"]));
        let wanted = names("bs", "B", &["x", "y"]);
        let (_, conflict) = accept(&wanted, &Names::default(), &used);
        assert_eq!(
            conflict.unwrap().message,
            "[\"x\" is already in use, \"y\" is already in use]"
        );
    }
}
