//! From the document of a structural schema to shared nodes.

use std::sync::Arc;

use super::defaults;
use super::format::Format;
use super::intern::Interner;
use super::kind::Kind;
use super::node::{Additional, Fact, Flags, ListType, MapType, Name, Node, Property, Rule, Rules};
use super::props::{AdditionalProps, Props};

/// Compiles a schema that has been found structural. Documents are bounded in depth where they are
/// read, and `from_document` checks that again, so that the recursion is bounded.
///
/// With `prune_defaults`, defaults are brought into the form in which they are filled in.
pub(super) fn build(schema: Props<'_>, prune_defaults: bool) -> Arc<Node> {
    let mut builder = Builder {
        interner: Interner::lock(),
        prune_defaults,
    };
    builder.node(schema, &defaults::Surroundings::root())
}

struct Builder {
    interner: Interner,
    prune_defaults: bool,
}

impl Builder {
    fn node(&mut self, schema: Props<'_>, around: &defaults::Surroundings<'_>) -> Arc<Node> {
        let embedded = schema.is_embedded_resource();
        let root = defaults::Surroundings::root();
        let around = if embedded { &root } else { around };
        let is_resource = embedded || around.is_root();
        let properties: Vec<Property> = schema
            .named("properties")
            .map(|(name, below)| {
                let around = around.field(name, is_resource);
                Property {
                    name: self.interner.name(name),
                    node: self.node(below, &around),
                }
            })
            .collect();
        let items = schema.item().map(|below| self.node(below, &around.item()));
        let additional = match schema.additional() {
            None => Additional::Undeclared,
            Some(AdditionalProps::Allowed(allowed)) => Additional::Allowed(allowed),
            Some(AdditionalProps::Schema(below)) => {
                Additional::Schema(self.node(below, &around.field("*", is_resource)))
            }
        };
        let kind = Kind::parse(schema.kind()).unwrap_or_default();
        let int_or_string = schema.is_int_or_string();
        let mut node = Node {
            kind,
            list_type: match schema.list_type() {
                Some("atomic") => ListType::Atomic,
                Some("set") => ListType::Set,
                Some("map") => ListType::Map,
                _ => ListType::Undeclared,
            },
            map_type: match schema.map_type() {
                Some("atomic") => MapType::Atomic,
                Some("granular") => MapType::Granular,
                _ => MapType::Undeclared,
            },
            flags: Flags {
                nullable: schema.nullable(),
                preserve_unknown_fields: schema.preserves_unknown_fields(),
                embedded_resource: embedded,
                int_or_string,
                exclusive_maximum: schema.flag("exclusiveMaximum"),
                exclusive_minimum: schema.flag("exclusiveMinimum"),
                unique_items: schema.flag("uniqueItems"),
                rules_within: false,
            },
            format: match int_or_string {
                true => Format::checked(Kind::Any, schema.text("format")),
                false => Format::checked(kind, schema.text("format")),
            },
            properties: properties.into(),
            items,
            additional,
            facts: Box::default(),
        };
        node.flags.rules_within = !schema.rules().is_empty()
            || node
                .properties
                .iter()
                .any(|below| below.node.has_rules_within())
            || node.items().is_some_and(|below| below.has_rules_within())
            || node
                .additional_schema()
                .is_some_and(|below| below.has_rules_within());
        let mut facts = self.facts(schema);
        let defaulted = (0..).zip(&node.properties);
        let defaulted = defaulted.filter(|(_, property)| property.node.default().is_some());
        let defaulted: Box<[u32]> = defaulted.map(|(index, _)| index).collect();
        if !defaulted.is_empty() {
            facts.push(Fact::Defaulted(defaulted));
        }
        node.facts = facts.into();
        if let Some(default) = schema.default() {
            let default = match self.prune_defaults {
                true => defaults::pruned(default, &node, around),
                false => default.clone(),
            };
            if !default.is_null() {
                let mut facts = std::mem::take(&mut node.facts).into_vec();
                facts.push(Fact::Default(Box::new(default)));
                node.facts = facts.into();
            }
        }
        self.interner.node(node)
    }

    fn facts(&mut self, schema: Props<'_>) -> Vec<Fact> {
        let mut facts = Vec::new();
        if !schema.kind().is_empty() && Kind::parse(schema.kind()).is_none() {
            facts.push(Fact::UnknownType(self.interner.name(schema.kind())));
        }
        if !schema.text("format").is_empty() {
            facts.push(Fact::Format(self.interner.name(schema.text("format"))));
        }
        if !schema.list("enum").is_empty() {
            facts.push(Fact::Enum(schema.list("enum").into()));
        }
        if !schema.text("pattern").is_empty() {
            facts.push(Fact::Pattern(self.interner.name(schema.text("pattern"))));
        }
        facts.extend(schema.number("maximum").map(Fact::Maximum));
        facts.extend(schema.number("minimum").map(Fact::Minimum));
        facts.extend(schema.number("multipleOf").map(Fact::MultipleOf));
        facts.extend(schema.whole("maxLength").map(Fact::MaxLength));
        facts.extend(schema.whole("minLength").map(Fact::MinLength));
        facts.extend(schema.whole("maxItems").map(Fact::MaxItems));
        facts.extend(schema.whole("minItems").map(Fact::MinItems));
        facts.extend(schema.whole("maxProperties").map(Fact::MaxProperties));
        facts.extend(schema.whole("minProperties").map(Fact::MinProperties));
        let required = self.names(schema.texts("required"));
        if !required.is_empty() {
            facts.push(Fact::Required(required));
        }
        let keys = self.names(schema.list_map_keys());
        if !keys.is_empty() {
            facts.push(Fact::Keys(keys));
        }
        let alternatives: [(&str, fn(Box<[Arc<Node>]>) -> Fact); 3] = [
            ("allOf", Fact::AllOf),
            ("anyOf", Fact::AnyOf),
            ("oneOf", Fact::OneOf),
        ];
        for (name, fact) in alternatives {
            let nodes = self.alternatives(schema, name);
            if !nodes.is_empty() {
                facts.push(fact(nodes));
            }
        }
        if let Some(not) = schema.negated() {
            let around = defaults::Surroundings::root();
            facts.push(Fact::Not(self.node(not, &around)));
        }
        if !schema.rules().is_empty() {
            let rules = schema.rules().iter().map(Rule::of).collect();
            facts.push(Fact::Rules(Arc::new(Rules::new(rules))));
        }
        facts
    }

    fn names<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Box<[Name]> {
        names.map(|name| self.interner.name(name)).collect()
    }

    fn alternatives(&mut self, schema: Props<'_>, name: &str) -> Box<[Arc<Node>]> {
        let around = defaults::Surroundings::root();
        schema
            .schemas(name)
            .map(|below| self.node(below, &around))
            .collect()
    }
}
