//! One policy rule: what it allows, and whether it covers another.

use api::Value;

use super::Attributes;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub verbs: Vec<String>,
    pub groups: Vec<String>,
    pub resources: Vec<String>,
    pub names: Vec<String>,
    pub paths: Vec<String>,
}

impl Rule {
    pub fn parse(rule: &Value) -> Rule {
        let list = |name: &str| {
            rule.get(name)
                .and_then(Value::as_array)
                .map(|items| {
                    items
                        .iter()
                        .filter_map(|item| item.as_str().map(str::to_string))
                        .collect()
                })
                .unwrap_or_default()
        };
        Rule {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            paths: list("nonResourceURLs"),
        }
    }

    pub fn parse_all(role: &Value) -> Vec<Rule> {
        role.get("rules")
            .and_then(Value::as_array)
            .map(|rules| rules.iter().map(Rule::parse).collect())
            .unwrap_or_default()
    }

    /// What it says about resources, if anything, as a rules review shows it.
    pub fn on_resources(&self) -> Option<Value> {
        if self.resources.is_empty() {
            return None;
        }
        let mut document = api::document!({
            "verbs": self.verbs, "apiGroups": self.groups, "resources": self.resources,
        });
        if !self.names.is_empty() {
            document.set(&["resourceNames"], api::document!(self.names));
        }
        Some(document)
    }

    /// What it says about paths, if anything, as a rules review shows it.
    pub fn on_paths(&self) -> Option<Value> {
        match self.paths.is_empty() {
            true => None,
            false => Some(api::document!({"verbs": self.verbs, "nonResourceURLs": self.paths})),
        }
    }

    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self
                .paths
                .iter()
                .any(|path| path_matches(path, &attributes.path));
        }
        has(&self.groups, &attributes.group)
            && self
                .resources
                .iter()
                .any(|resource| resource_matches(resource, attributes))
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }

    /// How many rules [`Rule::atoms`] would make.
    pub fn atom_count(&self) -> u128 {
        let [verbs, paths, groups, resources, names] = [
            &self.verbs,
            &self.paths,
            &self.groups,
            &self.resources,
            &self.names,
        ]
        .map(|list| list.len() as u128);
        verbs * (paths + groups * resources * names.max(1))
    }

    /// Splits into rules of one verb, one group and resource (and name), or one path.
    pub fn atoms(&self) -> Vec<Rule> {
        let mut atoms = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for verb in &self.verbs {
            for path in &self.paths {
                atoms.push(Rule {
                    verbs: one(verb),
                    paths: one(path),
                    ..Rule::default()
                });
            }
            for group in &self.groups {
                for resource in &self.resources {
                    let whole = Rule {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    match self.names.as_slice() {
                        [] => atoms.push(whole),
                        names => atoms.extend(names.iter().map(|name| Rule {
                            names: one(name),
                            ..whole.clone()
                        })),
                    }
                }
            }
        }
        atoms
    }

    /// Whether this rule grants all that `atom` (one of [`Rule::atoms`]) grants.
    pub fn covers(&self, atom: &Rule) -> bool {
        let each = |ours: &[String], theirs: &[String]| theirs.iter().all(|item| has(ours, item));
        if !each(&self.verbs, &atom.verbs) {
            return false;
        }
        if let Some(path) = atom.paths.first() {
            return self
                .paths
                .iter()
                .any(|ours| ours == path || path_matches(ours, path));
        }
        let resource = atom.resources.first().map_or("", String::as_str);
        let by_subresource = resource
            .split_once('/')
            .map(|(_, subresource)| format!("*/{subresource}"));
        each(&self.groups, &atom.groups)
            && (has(&self.resources, resource)
                || by_subresource.is_some_and(|pattern| self.resources.contains(&pattern)))
            && (self.names.is_empty()
                || !atom.names.is_empty()
                    && atom.names.iter().all(|name| self.names.contains(name)))
    }
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == item)
}

fn path_matches(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => path.starts_with(prefix),
        None => pattern == path,
    }
}

/// A review may name a subresource as part of the resource; it is then matched as a whole.
fn resource_matches(pattern: &str, attributes: &Attributes) -> bool {
    if pattern == "*" {
        return true;
    }
    if attributes.subresource.is_empty() {
        return pattern == attributes.resource;
    }
    let of_subresource = pattern
        .strip_suffix(attributes.subresource.as_str())
        .and_then(|rest| rest.strip_suffix('/'));
    of_subresource.is_some_and(|resource| resource == "*" || resource == attributes.resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        Rule::parse(&Value::from_json(text.as_bytes()).unwrap())
    }

    fn check(rule_text: &str, verb: &str, resource: &str, name: &str, expected: bool) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = Attributes {
            verb: verb.into(),
            is_resource: true,
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        };
        assert_eq!(
            rule(rule_text).allows(&attributes),
            expected,
            "{verb} {resource}"
        );
    }

    #[test]
    fn a_subresource_named_as_part_of_the_resource_is_matched_as_a_whole() {
        let attributes = |resource: &str| Attributes {
            verb: "update".into(),
            is_resource: true,
            resource: resource.into(),
            ..Attributes::default()
        };
        let status = rule(r#"{"verbs":["*"],"apiGroups":[""],"resources":["pods/status"]}"#);
        assert!(status.allows(&attributes("pods/status")));
        assert!(!status.allows(&attributes("pods")));
        let of_all = rule(r#"{"verbs":["*"],"apiGroups":[""],"resources":["*/status"]}"#);
        assert!(!of_all.allows(&attributes("pods/status")));
    }

    #[test]
    fn the_permissions_of_a_role_are_counted_before_they_are_listed() {
        for text in [
            r#"{"verbs":["get","list"],"apiGroups":["","a"],"resources":["x","y","z"]}"#,
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["x"],"resourceNames":["a","b"]}"#,
            r#"{"verbs":["get","head"],"nonResourceURLs":["/a","/b"]}"#,
        ] {
            let rule = rule(text);
            assert_eq!(rule.atom_count(), rule.atoms().len() as u128, "{text}");
        }
    }

    #[test]
    fn rules_match_as_upstream() {
        let pods = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#;
        check(pods, "get", "pods", "a", true);
        check(pods, "list", "pods", "", false);
        check(pods, "get", "pods/log", "a", false);
        let status = r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*/status"]}"#;
        check(status, "patch", "pods/status", "a", true);
        check(status, "patch", "pods", "a", false);
        let named =
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"resourceNames":["a"]}"#;
        check(named, "get", "pods", "a", true);
        check(named, "get", "pods", "b", false);
    }

    #[test]
    fn covering_is_by_atoms() {
        let wide = rule(r#"{"verbs":["*"],"apiGroups":[""],"resources":["pods","*/log"]}"#);
        let narrow =
            rule(r#"{"verbs":["get","list"],"apiGroups":[""],"resources":["pods","pods/log"]}"#);
        assert!(narrow.atoms().iter().all(|atom| wide.covers(atom)));
        assert!(!wide.atoms().iter().all(|atom| narrow.covers(atom)));
    }
}
