//! Reads the generated table of types, once, on first use.
//!
//! `types.tbl` has one line per type and per field, columns separated by tabs:
//!
//! - `V` the Kubernetes version
//! - `T` definition name, Go name, then attributes (`gvk=group/version/kind`, `map-type`, `unions`,
//!   `validation`)
//! - `F` JSON name, type, flags, protobuf number and wire type, then attributes
//!
//! Types are a letter (see [`scalar`]), `@definition`, `[` list of, `{` map from string to; `w`
//! before a list says that protobuf wraps it into a message. Flags: `n` inline, `p` pointer,
//! `o` omitempty, `z` omitzero, `r` required.

use std::sync::OnceLock;

/// All types, sorted by definition name.
pub struct Table {
    /// The Kubernetes version that the table was made from, e.g. `v1.36.4`.
    pub version: &'static str,
    definitions: Vec<Definition>,
    /// Group, version and kind to index, sorted.
    kinds: Vec<(Kind, usize)>,
}

/// A struct type.
#[derive(Debug)]
pub struct Definition {
    /// e.g. `io.k8s.api.core.v1.PodSpec`.
    pub name: &'static str,
    /// e.g. `v1.PodSpec`, as decoding errors name it.
    pub go_name: &'static str,
    /// In declaration order, inlined structs as one field each.
    pub fields: Vec<Field>,
    /// What JSON sees: inlined fields spread out, sorted by name.
    pub properties: Vec<Property>,
    /// Indices of the fields that protobuf has, by their number.
    numbers: Vec<usize>,
    /// What it is registered as.
    pub kinds: Vec<Kind>,
    /// `atomic` or `granular`, or "".
    pub map_type: &'static str,
    /// JSON of `x-kubernetes-unions`, or "".
    pub unions: &'static str,
    /// JSON list of upstream's `+k8s:` validation tags, or "".
    pub validation: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

/// A field as JSON sees it: where it is declared.
#[derive(Clone, Debug)]
pub struct Property {
    pub name: &'static str,
    /// The definition that declares it: the object's own, or one inlined into it.
    definition: usize,
    field: usize,
    /// The names of the inlined structs on the way, as decoding errors spell the path.
    pub through: Vec<&'static str>,
}

/// A declared field.
#[derive(Debug)]
pub struct Field {
    /// "" when inline.
    pub name: &'static str,
    pub kind: Type,
    pub inline: bool,
    pub pointer: bool,
    pub omit_empty: bool,
    pub omit_zero: bool,
    pub required: bool,
    pub protobuf: Option<(u32, Wire)>,
    /// The Go name where it does not follow from the type, e.g. `v1.RestartPolicy`, or "".
    pub go_name: &'static str,
    pub patch_strategy: &'static str,
    pub patch_merge_key: &'static str,
    /// `atomic`, `set`, `map` or "".
    pub list_type: &'static str,
    pub list_map_keys: Vec<&'static str>,
    pub map_type: &'static str,
    /// JSON of the declared default, or "". The zero values that OpenAPI shows for fields that are
    /// always written are not declared defaults.
    pub default: &'static str,
    pub values: Vec<&'static str>,
    pub item_values: Vec<&'static str>,
    pub format: &'static str,
    pub item_format: &'static str,
    /// JSON list of upstream's `+k8s:` validation tags, or "". Those marked alpha repeat what
    /// upstream also checks by hand.
    pub validation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Float,
    Bytes,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// An embedded object of any kind.
    Raw,
    /// Managed fields: kept as they are.
    Fields,
    /// Any JSON value inside a CustomResourceDefinition.
    Json,
    /// A schema or a list of schemas.
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
    Any,
    Object(usize),
    List {
        item: Box<Type>,
        /// Protobuf has it as a message with one repeated field.
        wrapped: bool,
    },
    Map(Box<Type>),
}

/// How protobuf writes a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Varint,
    Fixed64,
    Bytes,
}

/// The definition behind the three positions that allow a JSON schema or something else.
pub(crate) const JSON_SCHEMA: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The table of all built-in types.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::parse(include_str!("types.tbl")))
}

impl Table {
    pub fn definition(&self, name: &str) -> Option<&Definition> {
        self.index_of(name).map(|index| &self.definitions[index])
    }

    /// The definition of a [`Type::Object`].
    pub fn at(&self, index: usize) -> &Definition {
        &self.definitions[index]
    }

    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// What an object's `apiVersion` and `kind` name. Options and `Status` are in every group version.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Definition> {
        self.registered(group, version, kind).or_else(|| {
            self.registered("", "v1", kind)
                .filter(|known| known.is_meta())
        })
    }

    fn registered(&self, group: &str, version: &str, kind: &str) -> Option<&Definition> {
        let position = self
            .kinds
            .binary_search_by(|(known, _)| {
                (known.group, known.version, known.kind).cmp(&(group, version, kind))
            })
            .ok()?;
        Some(&self.definitions[self.kinds[position].1])
    }

    /// The declared field behind a property.
    pub fn field(&self, property: &Property) -> &Field {
        &self.definitions[property.definition].fields[property.field]
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.definitions
            .binary_search_by(|definition| definition.name.cmp(name))
            .ok()
    }

    fn parse(text: &'static str) -> Table {
        let mut table = Table {
            version: "",
            definitions: Vec::new(),
            kinds: Vec::new(),
        };
        // References may point forward: names first.
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("T\t")?.split('\t').next())
            .collect();
        for line in text.lines() {
            let mut columns = line.split('\t');
            match columns.next() {
                Some("V") => table.version = columns.next().unwrap_or_default(),
                Some("T") => table.definitions.push(Definition::parse(&mut columns)),
                Some("F") => {
                    let field = Field::parse(&mut columns, &names);
                    let definition = table
                        .definitions
                        .last_mut()
                        .expect("a type before its fields");
                    definition.fields.push(field);
                }
                other => unreachable!("the generated table has no line {other:?}"),
            }
        }
        for index in 0..table.definitions.len() {
            let mut properties = Vec::new();
            table.spread(index, &[], &mut properties);
            properties.sort_by_key(|property| property.name);
            let definition = &mut table.definitions[index];
            definition.properties = properties;
            let fields = &definition.fields;
            definition.numbers = (0..fields.len())
                .filter(|index| fields[*index].protobuf.is_some())
                .collect();
            definition
                .numbers
                .sort_by_key(|index| fields[*index].number());
            for kind in table.definitions[index].kinds.clone() {
                table.kinds.push((kind, index));
            }
        }
        table.kinds.sort();
        table
    }

    fn spread(&self, index: usize, through: &[&'static str], into: &mut Vec<Property>) {
        for (position, field) in self.definitions[index].fields.iter().enumerate() {
            match field.kind {
                Type::Object(inlined) if field.inline => {
                    let deeper = [through, &[self.definitions[inlined].short_go_name()]].concat();
                    self.spread(inlined, &deeper, into);
                }
                _ => into.push(Property {
                    name: field.name,
                    definition: index,
                    field: position,
                    through: through.to_vec(),
                }),
            }
        }
    }
}

impl Definition {
    /// `PodSpec` of `v1.PodSpec`.
    pub fn short_go_name(&self) -> &'static str {
        self.go_name.rsplit('.').next().unwrap_or_default()
    }

    /// Whether it belongs to no group version, e.g. `DeleteOptions`.
    pub fn is_meta(&self) -> bool {
        self.name
            .starts_with("io.k8s.apimachinery.pkg.apis.meta.v1.")
    }

    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties
            .binary_search_by(|property| property.name.cmp(name))
            .ok()
            .map(|index| &self.properties[index])
    }

    /// The fields that protobuf has, by their number.
    pub fn by_number(&self) -> impl Iterator<Item = &Field> {
        self.numbers.iter().map(|index| &self.fields[*index])
    }

    /// The field with a protobuf number.
    pub fn numbered(&self, number: u32) -> Option<&Field> {
        let position = self
            .numbers
            .binary_search_by_key(&Some(number), |index| self.fields[*index].number())
            .ok()?;
        Some(&self.fields[self.numbers[position]])
    }

    /// The declared field that JSON calls `name`.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.property(name).map(|property| table().field(property))
    }

    fn parse(columns: &mut std::str::Split<'static, char>) -> Definition {
        let mut definition = Definition {
            name: columns.next().unwrap_or_default(),
            go_name: columns.next().unwrap_or_default(),
            fields: Vec::new(),
            properties: Vec::new(),
            numbers: Vec::new(),
            kinds: Vec::new(),
            map_type: "",
            unions: "",
            validation: "",
        };
        for attribute in columns {
            match attribute.split_once('=').unwrap_or((attribute, "")) {
                ("gvk", text) => {
                    let mut parts = text.split('/');
                    let mut next = || parts.next().unwrap_or_default();
                    definition.kinds.push(Kind {
                        group: next(),
                        version: next(),
                        kind: next(),
                    });
                }
                ("map-type", text) => definition.map_type = text.trim_matches('"'),
                ("unions", text) => definition.unions = text,
                ("validation", text) => definition.validation = text,
                (other, _) => unreachable!("the generated table has no attribute {other:?}"),
            }
        }
        definition
    }
}

impl Field {
    fn number(&self) -> Option<u32> {
        self.protobuf.map(|(number, _)| number)
    }

    /// Whether an object without it equals one with its zero value.
    pub fn omits_zero(&self) -> bool {
        self.omit_empty || self.omit_zero
    }

    fn parse(columns: &mut std::str::Split<'static, char>, names: &[&str]) -> Field {
        let mut next = || columns.next().unwrap_or_default();
        let (name, kind, flags, protobuf) = (next(), next(), next(), next());
        let mut field = Field {
            name,
            kind: Type::parse(kind, names),
            inline: flags.contains('n'),
            pointer: flags.contains('p'),
            omit_empty: flags.contains('o'),
            omit_zero: flags.contains('z'),
            required: flags.contains('r'),
            protobuf: protobuf_of(protobuf),
            go_name: "",
            patch_strategy: "",
            patch_merge_key: "",
            list_type: "",
            list_map_keys: Vec::new(),
            map_type: "",
            default: "",
            values: Vec::new(),
            item_values: Vec::new(),
            format: "",
            item_format: "",
            validation: "",
        };
        for attribute in columns {
            let (key, text) = attribute.split_once('=').unwrap_or((attribute, ""));
            match key {
                "go" => field.go_name = text,
                "patchStrategy" => field.patch_strategy = text,
                "patchMergeKey" => field.patch_merge_key = text,
                "list-type" => field.list_type = text.trim_matches('"'),
                "list-map-keys" => field.list_map_keys = names_in(text),
                "map-type" => field.map_type = text.trim_matches('"'),
                "default" => field.default = text,
                "enum" => field.values = text.split(',').collect(),
                "item.enum" => field.item_values = text.split(',').collect(),
                "format" => field.format = text,
                "item.format" => field.item_format = text,
                "validation" => field.validation = text,
                other => unreachable!("the generated table has no attribute {other:?}"),
            }
        }
        field
    }
}

impl Type {
    /// Whether objects of a declared type stand somewhere in a value of this type.
    pub(super) fn holds_objects(&self) -> bool {
        match self {
            Type::Object(_) | Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings => {
                true
            }
            Type::List { item, .. } | Type::Map(item) => item.holds_objects(),
            _ => false,
        }
    }

    fn parse(text: &str, names: &[&str]) -> Type {
        let rest = &text[1..];
        match text.as_bytes()[0] {
            b'@' => Type::Object(names.binary_search(&rest).expect("a type of the table")),
            b'[' => Type::List {
                item: Box::new(Type::parse(rest, names)),
                wrapped: false,
            },
            b'{' => Type::Map(Box::new(Type::parse(rest, names))),
            b'w' => Type::List {
                item: Box::new(Type::parse(&rest[1..], names)),
                wrapped: true,
            },
            letter => scalar(letter),
        }
    }

    pub fn is_list(&self) -> bool {
        matches!(self, Type::List { .. })
    }

    /// What a list or a map holds.
    pub fn item(&self) -> Option<&Type> {
        match self {
            Type::List { item, .. } | Type::Map(item) => Some(item),
            _ => None,
        }
    }

    pub fn definition(&self) -> Option<&'static Definition> {
        match self {
            Type::Object(index) => Some(table().at(*index)),
            _ => None,
        }
    }
}

fn scalar(letter: u8) -> Type {
    match letter {
        b's' => Type::String,
        b'b' => Type::Bool,
        b'i' => Type::Int32,
        b'l' => Type::Int64,
        b'd' => Type::Float,
        b'B' => Type::Bytes,
        b't' => Type::Time,
        b'u' => Type::MicroTime,
        b'D' => Type::Duration,
        b'q' => Type::Quantity,
        b'I' => Type::IntOrString,
        b'r' => Type::Raw,
        b'f' => Type::Fields,
        b'j' => Type::Json,
        b'A' => Type::SchemaOrArray,
        b'O' => Type::SchemaOrBool,
        b'S' => Type::SchemaOrStrings,
        b'a' => Type::Any,
        other => unreachable!("the generated table has no type {:?}", other as char),
    }
}

fn protobuf_of(text: &str) -> Option<(u32, Wire)> {
    let (number, wire) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let wire = match wire {
        "v" => Wire::Varint,
        "f" => Wire::Fixed64,
        _ => Wire::Bytes,
    };
    Some((number.parse().ok()?, wire))
}

/// The strings of a JSON list of plain names.
fn names_in(json: &'static str) -> Vec<&'static str> {
    json.trim_matches(['[', ']'])
        .split(',')
        .map(|name| name.trim_matches('"'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let table = table();
        assert_eq!(table.version, "v1.36.4");
        assert!(
            table
                .definitions
                .is_sorted_by_key(|definition| definition.name)
        );
        for resource in crate::catalogue::built_in().resources() {
            let definition = table
                .definition(resource.definition.name())
                .unwrap_or_else(|| panic!("{resource:?}"));
            let named = (&*resource.group, &*resource.version, &*resource.kind);
            let mut kinds = definition.kinds.iter();
            assert!(kinds.any(|kind| (kind.group, kind.version, kind.kind) == named));
        }
        for definition in table.definitions() {
            let names: Vec<_> = definition.properties.iter().map(|p| p.name).collect();
            assert!(
                names.is_sorted_by(|left, right| left < right),
                "{}",
                definition.name
            );
        }
    }

    #[test]
    fn inlined_fields_are_found_where_they_are_declared() {
        let volume = table().definition("io.k8s.api.core.v1.Volume").unwrap();
        let property = volume.property("emptyDir").unwrap();
        assert_eq!(property.through, ["VolumeSource"]);
        let ports = table().definition("io.k8s.api.core.v1.Container").unwrap();
        let field = ports.field("ports").unwrap();
        assert_eq!(field.list_map_keys, ["containerPort", "protocol"]);
        assert_eq!(field.patch_merge_key, "containerPort");
        assert_eq!(field.protobuf, Some((6, Wire::Bytes)));
        let scale = table().definition("io.k8s.api.autoscaling.v1.ScaleSpec");
        let replicas = scale.unwrap().field("replicas").unwrap();
        assert!(replicas.validation.contains("+k8s:minimum=0"));
    }
}
