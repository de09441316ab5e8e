//! The rules of a hook: which operations on which resources it is for.

use api::Value;

use std::fmt;

/// What a request does to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn text(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

/// What rules are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    pub operation: Operation,
    pub group: &'a str,
    pub version: &'a str,
    pub plural: &'a str,
    pub subresource: &'a str,
    /// Of a namespace itself: its own name.
    pub namespace: &'a str,
}

impl Attributes<'_> {
    fn is_namespace(&self) -> bool {
        (self.group, self.version, self.plural) == ("", "v1", "namespaces")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
    /// A word that means nothing.
    None,
}

/// One of the rules of a hook.
#[derive(Debug)]
pub(crate) struct Rule {
    operations: u8,
    groups: Names,
    versions: Names,
    /// Each with its subresource: "" for the object itself.
    resources: Vec<(Name, Name)>,
    scope: Scope,
}

/// A name, or all of them (`*`).
#[derive(Debug, PartialEq, Eq)]
enum Name {
    Any,
    One(String),
}

impl Name {
    fn of(text: &str) -> Name {
        match text {
            "*" => Name::Any,
            text => Name::One(text.to_string()),
        }
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Name::Any => true,
            Name::One(name) => name == text,
        }
    }
}

#[derive(Debug)]
struct Names(Vec<Name>);

impl Names {
    fn of(rule: &Value, field: &str) -> Names {
        let texts = rule.list_at(&[field]).iter().filter_map(Value::as_str);
        Names(texts.map(Name::of).collect())
    }

    fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|name| name.matches(text))
    }
}

impl Rule {
    pub fn of_document(rule: &Value) -> Rule {
        let operations = rule.list_at(&["operations"]).iter();
        let operations = operations.filter_map(Value::as_str).map(|text| match text {
            "*" => u8::MAX,
            "CREATE" => Operation::Create.bit(),
            "UPDATE" => Operation::Update.bit(),
            "DELETE" => Operation::Delete.bit(),
            "CONNECT" => Operation::Connect.bit(),
            _ => 0,
        });
        let resources = rule.list_at(&["resources"]).iter();
        let resources = resources.filter_map(Value::as_str).map(|text| {
            let (plural, subresource) = text.split_once('/').unwrap_or((text, ""));
            (Name::of(plural), Name::of(subresource))
        });
        Rule {
            operations: operations.fold(0, |all, one| all | one),
            groups: Names::of(rule, "apiGroups"),
            versions: Names::of(rule, "apiVersions"),
            resources: resources.collect(),
            scope: match rule.str_at(&["scope"]) {
                "" | "*" => Scope::All,
                "Namespaced" => Scope::Namespaced,
                "Cluster" => Scope::Cluster,
                _ => Scope::None,
            },
        }
    }

    pub fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.operations & attributes.operation.bit() != 0
            && self.groups.matches(attributes.group)
            && self.versions.matches(attributes.version)
            && self.matches_resource(attributes)
            && self.matches_scope(attributes)
    }

    /// Whether it could match another version of the same resource.
    pub fn may_match_equivalent(&self, attributes: &Attributes<'_>) -> bool {
        self.operations & attributes.operation.bit() != 0 && self.matches_resource(attributes)
    }

    fn matches_resource(&self, attributes: &Attributes<'_>) -> bool {
        self.resources.iter().any(|(plural, subresource)| {
            plural.matches(attributes.plural) && subresource.matches(attributes.subresource)
        })
    }

    fn matches_scope(&self, attributes: &Attributes<'_>) -> bool {
        let is_namespaced = !attributes.is_namespace() && !attributes.namespace.is_empty();
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => is_namespaced,
            Scope::Cluster => !is_namespaced,
            Scope::None => false,
        }
    }

    /// The plurals it names.
    pub fn plurals(&self) -> impl Iterator<Item = &str> {
        self.resources
            .iter()
            .filter_map(|(plural, _)| match plural {
                Name::Any => None,
                Name::One(plural) => Some(plural.as_str()),
            })
    }

    /// Whether it is for all resources.
    pub fn is_of_all(&self) -> bool {
        self.resources
            .iter()
            .any(|(plural, _)| *plural == Name::Any)
    }
}
