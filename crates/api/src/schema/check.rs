//! Brings parsed JSON into the shape of a definition, as Go's decoder would: types are checked,
//! unknown fields left out and noted, `null` dropped, special values made canonical.

use super::literal;
use super::node::Node;
use super::problem::{FieldProblem, TypeError};
use super::table::{Definition, Field, JSON_SCHEMA, Type, table};
use crate::document::{Object, Value};
use crate::quantity::Quantity;
use crate::repeats::repeats;

/// More problems than this are not noted.
const MAX_PROBLEMS: usize = 100;
/// Nor are more once so many bytes of paths have been written for them: a key may be long, and
/// what is below it may be repeated many times.
const MAX_TOLD: usize = 1 << 20;

/// The document and what strict field validation would object to, in the order of the body.
pub(super) fn check(
    node: Node<'_>,
    definition: &Definition,
) -> Result<(Value, Vec<FieldProblem>), TypeError> {
    check_with(Checker::default(), node, definition)
}

/// As [`check`], in the words of the converter that strategic merge patches go through.
pub(super) fn restore(
    node: Node<'_>,
    definition: &Definition,
) -> Result<(Value, Vec<FieldProblem>), TypeError> {
    let checker = Checker {
        restoring: true,
        ..Checker::default()
    };
    check_with(checker, node, definition)
}

fn check_with(
    mut checker: Checker,
    node: Node<'_>,
    definition: &Definition,
) -> Result<(Value, Vec<FieldProblem>), TypeError> {
    let value = match node {
        Node::Null => Value::object(),
        Node::Object(fields) => Value::Object(checker.object(fields, definition)?),
        other => return Err(checker.mismatch(other.describe(), definition.go_name)),
    };
    match checker.first_mismatch {
        Some(error) => Err(error),
        None => Ok((value, checker.problems)),
    }
}

#[derive(Default)]
struct Checker {
    problems: Vec<FieldProblem>,
    /// The bytes of all paths that problems were noted for, also of those already noted.
    told: usize,
    /// Decoding goes on after a value of the wrong type, but the first one is the answer.
    first_mismatch: Option<TypeError>,
    /// Where we are, as strict validation writes it: `spec.containers[0]`.
    path: String,
    /// Where we are, as type errors write it: no indices, but the names of inlined structs.
    go_path: Vec<&'static str>,
    /// The struct whose field is being decoded.
    go_struct: &'static str,
    /// Set where Go uses a decoder that is not strict.
    lenient: bool,
    /// Whether types are named as the converter of unstructured objects names them.
    restoring: bool,
}

/// An `Err` ends decoding at once; a value of the wrong type is only noted.
type Checked = Result<Option<Value>, TypeError>;

impl Checker {
    fn object(
        &mut self,
        fields: Vec<(std::borrow::Cow<'_, str>, Node<'_>)>,
        definition: &Definition,
    ) -> Result<Object, TypeError> {
        let mut object = Object::default();
        let mut seen = vec![false; definition.properties.len()];
        let (path_length, outer_struct) = (self.path.len(), self.go_struct);
        for (name, node) in fields {
            let found = definition
                .properties
                .binary_search_by(|property| property.name.cmp(&name));
            let Ok(index) = found else {
                self.note(&name, false);
                continue;
            };
            let property = &definition.properties[index];
            let field = table().field(property);
            if std::mem::replace(&mut seen[index], true) {
                self.note(&name, true);
            }
            self.enter(&name);
            let depth = self.go_path.len();
            self.go_path.extend(&property.through);
            self.go_path.push(field.name);
            self.go_struct = definition.short_go_name();
            let value = self.value(node, &field.kind, &|| go_name(field))?;
            self.go_path.truncate(depth);
            self.go_struct = outer_struct;
            self.path.truncate(path_length);
            if let Some(value) = value {
                object.insert(name, value);
            }
        }
        Ok(object)
    }

    /// `go_name` is only asked for when the type is wrong.
    fn value(&mut self, node: Node<'_>, kind: &Type, go_name: &dyn Fn() -> String) -> Checked {
        let node = match self.restoring && is_scalar(kind) {
            true => match restored(node, kind, go_name) {
                Ok(node) => node,
                Err(error) => {
                    self.first_mismatch.get_or_insert(error);
                    return Ok(None);
                }
            },
            false => node,
        };
        Ok(Some(match (kind, node) {
            (_, Node::Null) => return Ok(None),
            (Type::String, Node::String(text)) => Value::String(text.into_owned()),
            (Type::Bool, Node::Bool(flag)) => Value::Bool(flag),
            (Type::Int32, Node::Number(text)) => match text.parse::<i32>() {
                Ok(number) => Value::Integer(number.into()),
                Err(_) => return Ok(self.wrong(&format!("number {text}"), &go_name())),
            },
            (Type::Int64, Node::Number(text)) => match text.parse::<i64>() {
                Ok(number) => Value::Integer(number),
                Err(_) => return Ok(self.wrong(&format!("number {text}"), &go_name())),
            },
            (Type::Float, Node::Number(text)) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => float(number),
                _ => return Ok(self.wrong(&format!("number {text}"), &go_name())),
            },
            (Type::Bytes, Node::String(text)) => match literal::bytes(&text) {
                Ok(text) => Value::String(text),
                Err(error) => {
                    let words = match self.restoring {
                        true => "error decoding from json: ",
                        false => "",
                    };
                    let error = TypeError(format!("{words}{error}"));
                    self.first_mismatch.get_or_insert(error);
                    return Ok(None);
                }
            },
            (Type::Object(index), Node::Object(fields)) => {
                Value::Object(self.object(fields, table().at(*index))?)
            }
            (Type::List { item, .. }, Node::Array(nodes)) => self.list(nodes, item, go_name)?,
            (Type::Map(item), Node::Object(fields)) => self.map(fields, item, go_name)?,
            (Type::Time | Type::MicroTime | Type::Duration, node) => self.moment(node, kind)?,
            (Type::Quantity, node) => quantity(node)?,
            (Type::IntOrString, node) => self.int_or_string(node)?,
            (Type::Raw | Type::Fields | Type::Json | Type::Any, node) => node.into_value(),
            (Type::SchemaOrArray | Type::SchemaOrBool | Type::SchemaOrStrings, node) => {
                return self.schema_or(node, kind);
            }
            (kind, node) if self.restoring => {
                let error = TypeError(not_restored(kind, &node));
                self.first_mismatch.get_or_insert(error);
                return Ok(None);
            }
            (_, node) => return Ok(self.wrong(node.describe(), &go_name())),
        }))
    }

    fn list(
        &mut self,
        nodes: Vec<Node<'_>>,
        item: &Type,
        go_name: &dyn Fn() -> String,
    ) -> Result<Value, TypeError> {
        let path_length = self.path.len();
        let mut values = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.into_iter().enumerate() {
            use std::fmt::Write;
            let _ = write!(self.path, "[{index}]");
            let value = self.value(node, item, &|| item_go_name(&go_name(), item))?;
            self.path.truncate(path_length);
            values.push(value.unwrap_or_else(|| zero(item)));
        }
        Ok(Value::Array(values))
    }

    fn map(
        &mut self,
        fields: Vec<(std::borrow::Cow<'_, str>, Node<'_>)>,
        item: &Type,
        go_name: &dyn Fn() -> String,
    ) -> Result<Value, TypeError> {
        let path_length = self.path.len();
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_ref()).collect();
        let mut again = repeats(&names).into_iter().peekable();
        let mut values = Vec::with_capacity(fields.len());
        for (index, (name, node)) in fields.into_iter().enumerate() {
            if again.next_if_eq(&index).is_some() {
                self.note(&name, true);
            }
            // The converter of unstructured objects leaves the keys of maps out of its paths.
            if !self.restoring {
                self.enter(&name);
            }
            let value = self.value(node, item, &|| item_go_name(&go_name(), item))?;
            self.path.truncate(path_length);
            values.push((name.into_owned(), value.unwrap_or_else(|| zero(item))));
        }
        Ok(Value::Object(Object::from_fields(values)))
    }

    fn moment(&mut self, node: Node<'_>, kind: &Type) -> Result<Value, TypeError> {
        let Node::String(text) = node else {
            return Err(self.mismatch(node.describe(), "string"));
        };
        let written = match kind {
            Type::Time => literal::time(&text),
            Type::MicroTime => literal::micro_time(&text),
            _ => Ok(text.into_owned()),
        };
        written
            .map(Value::String)
            .map_err(|error| TypeError(error.to_string()))
    }

    fn int_or_string(&mut self, node: Node<'_>) -> Result<Value, TypeError> {
        match node {
            Node::String(text) => Ok(Value::String(text.into_owned())),
            Node::Number(text) => match text.parse::<i32>() {
                Ok(number) => Ok(Value::Integer(number.into())),
                Err(_) => Err(self.mismatch(&format!("number {text}"), "int32")),
            },
            other => Err(self.mismatch(other.describe(), "int32")),
        }
    }

    /// The JSON schema positions that allow two forms. They have a decoder of their own, also where
    /// an object is restored: its errors are those of a JSON document that begins here.
    fn schema_or(&mut self, node: Node<'_>, kind: &Type) -> Checked {
        if !self.restoring {
            return self.schema_forms(node, kind);
        }
        let outer = (std::mem::take(&mut self.go_path), self.go_struct);
        self.restoring = false;
        let value = self.schema_forms(node, kind);
        self.restoring = true;
        (self.go_path, self.go_struct) = outer;
        value
    }

    fn schema_forms(&mut self, node: Node<'_>, kind: &Type) -> Checked {
        let outer = std::mem::replace(&mut self.lenient, true);
        let schema = table()
            .definition(JSON_SCHEMA)
            .expect("a type of the table");
        let value = match (kind, node) {
            (_, Node::Object(fields)) => Some(Value::Object(self.object(fields, schema)?)),
            (Type::SchemaOrBool, Node::Bool(flag)) => Some(Value::Bool(flag)),
            (Type::SchemaOrArray, Node::Array(nodes)) => {
                let mut values = Vec::with_capacity(nodes.len());
                for node in nodes {
                    values.extend(self.schema_forms(node, &Type::SchemaOrArray)?);
                }
                Some(Value::Array(values))
            }
            (Type::SchemaOrStrings, Node::Array(nodes)) => {
                Some(self.list(nodes, &Type::String, &|| "[]string".to_string())?)
            }
            (Type::SchemaOrBool, _) => {
                return Err(TypeError("boolean or JSON schema expected".to_string()));
            }
            (_, node) => return Err(self.mismatch(node.describe(), schema.go_name)),
        };
        self.lenient = outer;
        Ok(value)
    }

    fn enter(&mut self, name: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(name);
    }

    fn note(&mut self, name: &str, duplicate: bool) {
        self.told += self.path.len() + name.len();
        if self.lenient || self.problems.len() >= MAX_PROBLEMS || self.told > MAX_TOLD {
            return;
        }
        let path = match self.path.as_str() {
            "" => name.to_string(),
            path => format!("{path}.{name}"),
        };
        let problem = FieldProblem { path, duplicate };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn wrong(&mut self, found: &str, wanted: &str) -> Option<Value> {
        if self.first_mismatch.is_none() {
            self.first_mismatch = Some(self.mismatch(found, wanted));
        }
        None
    }

    fn mismatch(&self, found: &str, wanted: &str) -> TypeError {
        let place = match self.go_path.as_slice() {
            _ if self.restoring => "Go value".to_string(),
            [] => "Go value".to_string(),
            path => format!("Go struct field {}.{}", self.go_struct, path.join(".")),
        };
        TypeError(format!(
            "json: cannot unmarshal {found} into {place} of type {wanted}"
        ))
    }
}

fn is_scalar(kind: &Type) -> bool {
    matches!(
        kind,
        Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Float
    )
}

/// What the converter of unstructured objects makes of a value for a scalar field: whole floats
/// become integers, and integers that are too large lose their upper half.
fn restored<'a>(
    node: Node<'a>,
    kind: &Type,
    go_name: &dyn Fn() -> String,
) -> Result<Node<'a>, TypeError> {
    let unrecognized = || TypeError(format!("unrecognized type: {}", implied_go_name(kind)));
    let refused = |found: &str| TypeError(format!("cannot convert {found} to {}", go_name()));
    let Node::Number(text) = &node else {
        return match (&node, kind) {
            (Node::Null, _) | (Node::String(_), Type::String) | (Node::Bool(_), Type::Bool) => {
                Ok(node)
            }
            _ => Err(unrecognized()),
        };
    };
    let whole = match (text.parse::<i64>(), text.parse::<f64>(), kind) {
        (Ok(_), _, Type::String) => return Err(refused("int64")),
        (_, _, Type::Bool | Type::String) => return Err(unrecognized()),
        (_, _, Type::Float) => return Ok(node),
        (Ok(whole), _, _) => whole,
        (_, Ok(number), _) if number.fract() == 0.0 => number as i64,
        _ => return Err(refused("float64")),
    };
    let whole = match kind {
        Type::Int32 => i64::from(whole as i32),
        _ => whole,
    };
    Ok(Node::Number(whole.to_string().into()))
}

fn not_restored(kind: &Type, node: &Node<'_>) -> String {
    let found = match node {
        Node::Array(_) => "slice",
        Node::Object(_) => "map",
        Node::String(_) => "string",
        Node::Bool(_) => "bool",
        Node::Number(text) if text.contains(['.', 'e', 'E']) => "float64",
        Node::Number(_) => "int64",
        Node::Null => "invalid",
    };
    match kind {
        Type::Object(_) => format!("cannot restore struct from: {found}"),
        Type::Map(_) => format!("cannot restore map from {found}"),
        _ => format!("cannot restore slice from {found}"),
    }
}

fn quantity(node: Node<'_>) -> Result<Value, TypeError> {
    let text = match &node {
        Node::String(text) | Node::Number(text) => text.trim(),
        // Nothing else can be a quantity; the answer is that of a malformed one.
        _ => "?",
    };
    match Quantity::parse(text) {
        Ok(quantity) => Ok(Value::String(quantity.to_string())),
        Err(error) => Err(TypeError(error.to_string())),
    }
}

/// Go writes whole floats without a fraction.
fn float(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => Value::Integer(number as i64),
        false => Value::Float(number),
    }
}

/// What `null` stands for inside a list or a map.
fn zero(kind: &Type) -> Value {
    match kind {
        Type::String | Type::Bytes => "".into(),
        Type::Bool => false.into(),
        Type::Int32 | Type::Int64 | Type::Float | Type::IntOrString => 0.into(),
        Type::Quantity => "0".into(),
        Type::Object(_) => Value::object(),
        _ => Value::Null,
    }
}

fn go_name(field: &Field) -> String {
    match field.go_name {
        "" => implied_go_name(&field.kind),
        name => name.to_string(),
    }
}

/// The item's name: by taking the list's or the map's apart where that is possible.
fn item_go_name(outer: &str, item: &Type) -> String {
    outer
        .strip_prefix("[]")
        .or(outer.strip_prefix("map[string]"))
        .map_or_else(|| implied_go_name(item), str::to_string)
}

fn implied_go_name(kind: &Type) -> String {
    match kind {
        Type::String => "string".to_string(),
        Type::Bool => "bool".to_string(),
        Type::Int32 => "int32".to_string(),
        Type::Int64 => "int64".to_string(),
        Type::Float => "float64".to_string(),
        Type::Bytes => "[]uint8".to_string(),
        Type::Time => "v1.Time".to_string(),
        Type::MicroTime => "v1.MicroTime".to_string(),
        Type::Duration => "v1.Duration".to_string(),
        Type::Quantity => "resource.Quantity".to_string(),
        Type::IntOrString => "intstr.IntOrString".to_string(),
        Type::Raw => "runtime.RawExtension".to_string(),
        Type::Fields => "v1.FieldsV1".to_string(),
        Type::Json => "v1.JSON".to_string(),
        Type::SchemaOrArray => "v1.JSONSchemaPropsOrArray".to_string(),
        Type::SchemaOrBool => "v1.JSONSchemaPropsOrBool".to_string(),
        Type::SchemaOrStrings => "v1.JSONSchemaPropsOrStringArray".to_string(),
        Type::Any => "interface {}".to_string(),
        Type::Object(index) => table().at(*index).go_name.to_string(),
        Type::List { item, .. } => format!("[]{}", implied_go_name(item)),
        Type::Map(item) => format!("map[string]{}", implied_go_name(item)),
    }
}
