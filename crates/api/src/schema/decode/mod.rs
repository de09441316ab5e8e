//! From the bytes of a request to a document of the expected kind, with Kubernetes' answers to bodies
//! that are malformed, of another kind or of wrong types.

use std::fmt::Write;

use super::check::{self, check};
use super::defaults::normalise;
use super::node::{Node, SyntaxError, parse};
use super::problem::{FieldProblem, TypeError};
use super::table::{Definition, table};
use crate::document::Value;
use crate::repeats::repeats;
use crate::resource::{Resource, api_version, split_api_version};
use crate::status::Status;

/// More repeated fields than this are not told, nor once their paths have taken so many bytes.
const MOST_REPEATED: usize = 100;
const MOST_TOLD: usize = 1 << 20;

/// What all kinds have in common.
const METADATA_ONLY: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";

/// The kind that a body is expected to be of.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub definition: &'static Definition,
}

impl<'a> Target<'a> {
    /// The kind of a resource. Only the answers to bodies of a custom kind use this: what is in them
    /// is for the schema of its definition to say.
    pub fn of(resource: &'a Resource) -> Target<'a> {
        let name = match &resource.definition {
            crate::resource::Definition::BuiltIn(name) => name,
            crate::resource::Definition::Custom(_) => METADATA_ONLY,
        };
        Target {
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
            definition: table()
                .definition(name)
                .expect("every kind of the catalogue is in the table"),
        }
    }

    /// Any registered kind, `DeleteOptions` of `v1` among them.
    pub fn of_kind(group: &str, version: &str, kind: &str) -> Option<Target<'static>> {
        let definition = table().of_kind(group, version, kind)?;
        let mut kinds = definition.kinds.iter();
        let named = match definition.is_meta() {
            true => kinds.next(),
            false => kinds
                .find(|known| (known.group, known.version, known.kind) == (group, version, kind)),
        }?;
        Some(Target {
            group: named.group,
            version: named.version,
            kind: named.kind,
            definition,
        })
    }
}

/// Reads a JSON body of a kind. Unknown and repeated fields are dropped and returned.
pub fn decode_json(resource: &Resource, body: &[u8]) -> Result<(Value, Vec<FieldProblem>), Status> {
    decode_json_as(&Target::of(resource), body)
}

/// Reads a JSON body of any kind, e.g. what a subresource takes.
pub fn decode_json_as(
    target: &Target<'_>,
    body: &[u8],
) -> Result<(Value, Vec<FieldProblem>), Status> {
    let node = parse(body).map_err(|error| {
        unrecognized(
            target,
            &format!("couldn't get version/kind; json parse error: {error}"),
            body,
        )
    })?;
    decode_node(target, node, Some(body))
}

/// Reads a JSON body of a kind that has no type here. It has to say what it is.
pub fn parse_untyped(target: &Target<'_>, body: &[u8]) -> Result<Value, Status> {
    let node = parse(body).map_err(|error| {
        let error = format!("couldn't get version/kind; json parse error: {error}");
        unrecognized(target, &error, body)
    })?;
    let (_, kind) = version_and_kind(&node).map_err(|error| unrecognized(target, &error, body))?;
    if kind.is_empty() {
        let shown = String::from_utf8_lossy(body);
        let error = format!("Object 'Kind' is missing in '{shown}'");
        return Err(unrecognized(target, &error, body));
    }
    Ok(node.into_value())
}

/// Brings a document (from YAML, or made by a patch) into the shape of a kind.
pub fn decode(resource: &Resource, body: &mut Value) -> Result<Vec<FieldProblem>, Status> {
    decode_as(&Target::of(resource), body)
}

pub fn decode_as(target: &Target<'_>, body: &mut Value) -> Result<Vec<FieldProblem>, Status> {
    let node = Node::from_value(std::mem::take(body));
    let (value, problems) = decode_node(target, node, None)?;
    *body = value;
    Ok(problems)
}

/// Only checks types and prunes: for documents whose kind is already certain. Patches answer its
/// error in another way than creates.
pub fn conform(
    definition: &Definition,
    body: Value,
) -> Result<(Value, Vec<FieldProblem>), TypeError> {
    let node = Node::from_value(body);
    let forgets = forgets_owners(&node);
    let (mut value, problems) = check(node, definition)?;
    normalise(definition, &mut value);
    forget_owners(&mut value, forgets);
    Ok((value, problems))
}

/// As [`conform`], of what a strategic merge patch made: its errors have other words.
pub fn restore(
    definition: &Definition,
    body: Value,
) -> Result<(Value, Vec<FieldProblem>), TypeError> {
    let node = Node::from_value(body);
    let forgets = forgets_owners(&node);
    let (mut value, problems) = check::restore(node, definition)?;
    normalise(definition, &mut value);
    forget_owners(&mut value, forgets);
    Ok((value, problems))
}

/// Reads JSON of no particular kind.
pub fn parse_json(body: &[u8]) -> Result<Value, SyntaxError> {
    parse(body).map(Node::into_value)
}

/// The answer under strict field validation.
pub fn strict_error(target: &Target<'_>, problems: &[FieldProblem]) -> Status {
    let texts: Vec<String> = problems.iter().map(FieldProblem::to_string).collect();
    unhandled(
        target,
        (target.version, target.kind),
        &format!("strict decoding error: {}", texts.join(", ")),
    )
}

/// The same for YAML in which keys are repeated.
pub fn strict_yaml_error(
    target: &Target<'_>,
    repeated: &[String],
    problems: &[FieldProblem],
) -> Status {
    let mut texts = vec![format!(
        "yaml: unmarshal errors:\n  {}",
        repeated.join("\n  ")
    )];
    texts.extend(problems.iter().map(FieldProblem::to_string));
    unhandled(
        target,
        (target.version, target.kind),
        &format!("strict decoding error: {}", texts.join(", ")),
    )
}

/// The fields that a document has twice; what is not JSON has none.
pub fn repeated_fields(body: &[u8]) -> Vec<FieldProblem> {
    let mut walker = Repeated::default();
    if let Ok(node) = parse(body) {
        walker.visit(&node);
    }
    walker.found
}

#[derive(Default)]
struct Repeated {
    /// Where we are.
    path: String,
    found: Vec<FieldProblem>,
    /// The bytes of all paths that were found, also of those found before.
    told: usize,
}

impl Repeated {
    fn visit(&mut self, node: &Node<'_>) {
        let length = self.path.len();
        match node {
            Node::Object(fields) => {
                let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_ref()).collect();
                let mut again = repeats(&names).into_iter().peekable();
                for (index, (name, node)) in fields.iter().enumerate() {
                    if !self.path.is_empty() {
                        self.path.push('.');
                    }
                    self.path.push_str(name);
                    self.visit(node);
                    if again.next_if_eq(&index).is_some() {
                        self.note();
                    }
                    self.path.truncate(length);
                }
            }
            Node::Array(items) => {
                for (index, node) in items.iter().enumerate() {
                    let _ = write!(self.path, "[{index}]");
                    self.visit(node);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn note(&mut self) {
        self.told += self.path.len();
        if self.found.len() >= MOST_REPEATED || self.told > MOST_TOLD {
            return;
        }
        let problem = FieldProblem {
            path: self.path.clone(),
            duplicate: true,
        };
        if !self.found.contains(&problem) {
            self.found.push(problem);
        }
    }
}

fn decode_node(
    target: &Target<'_>,
    node: Node<'_>,
    body: Option<&[u8]>,
) -> Result<(Value, Vec<FieldProblem>), Status> {
    let refused = |error: &str, node: Node<'_>| match body {
        Some(body) => unrecognized(target, error, body),
        None => unrecognized(target, error, &node.into_value().to_json()),
    };
    let (given_version, kind) = match version_and_kind(&node) {
        Ok((version, kind)) => (version.to_string(), kind.to_string()),
        Err(error) => return Err(refused(&error, node)),
    };
    let (group, version) = split_api_version(&given_version);
    if version.contains('/') {
        let error = format!("unexpected GroupVersion string: {given_version}");
        return Err(refused(&error, node));
    }
    let (group, version) = match (group, version) {
        ("", "") => (target.group, target.version),
        other => other,
    };
    let kind = if kind.is_empty() { target.kind } else { &kind };
    // Clients write options in the group version of what they are for.
    let expected = match target.definition.is_meta() {
        true => kind == target.kind,
        false => (group, version, kind) == (target.group, target.version, target.kind),
    };
    if !expected {
        return Err(other_kind(target, group, version, kind));
    }
    let forgets = forgets_owners(&node);
    let (mut value, problems) = check(node, target.definition)
        .map_err(|error| unhandled(target, (version, kind), &error.to_string()))?;
    normalise(target.definition, &mut value);
    forget_owners(&mut value, forgets);
    value.set(&["apiVersion"], api_version(target.group, target.version));
    value.set(&["kind"], target.kind);
    Ok((value, problems))
}

/// An empty list of managed fields is a wish: it would disappear like all empty lists.
fn forgets_owners(node: &Node<'_>) -> bool {
    let list = node
        .last("metadata")
        .and_then(|metadata| metadata.last("managedFields"));
    matches!(list, Some(Node::Array(items)) if items.is_empty())
}

fn forget_owners(value: &mut Value, forgets: bool) {
    if forgets {
        value.set(&["metadata", "managedFields"], Vec::new());
    }
}

/// Both "" where they are missing.
fn version_and_kind<'a>(node: &'a Node<'_>) -> Result<(&'a str, &'a str), String> {
    const PREFIX: &str = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    if !matches!(node, Node::Object(_) | Node::Null) {
        return Err(format!(
            "{PREFIX} {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            node.describe()
        ));
    }
    let text = |name: &str| match node.last(name) {
        None | Some(Node::Null) => Ok(""),
        Some(Node::String(text)) => Ok(text.as_ref()),
        Some(other) => Err(format!(
            "{PREFIX} {} into Go struct field .{name} of type string",
            other.describe()
        )),
    };
    Ok((text("apiVersion")?, text("kind")?))
}

/// A well-formed body of a kind that is not expected here.
fn other_kind(target: &Target<'_>, group: &str, version: &str, kind: &str) -> Status {
    let given = api_version(group, version);
    let Some(definition) = table().of_kind(group, version, kind) else {
        let error = format!(
            "no kind {kind:?} is registered for version {given:?} in scheme \
             \"pkg/api/legacyscheme/scheme.go:30\""
        );
        return unhandled(target, (version, kind), &error);
    };
    // Events of both groups are one kind inside.
    let same_inside = kind == target.kind && (group == target.group || kind == "Event");
    if same_inside {
        let expected = api_version(target.group, target.version);
        return Status::bad_request(format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        ));
    }
    let package = match target.group.split('.').next() {
        None | Some("") => "core",
        Some(package) => package,
    };
    let error = format!(
        "converting ({}) to ({package}.{}): unknown conversion",
        definition.go_name, target.kind
    );
    unhandled(target, (version, kind), &error)
}

/// The answer to a body of the expected kind in which something is wrong.
pub fn unhandled(target: &Target<'_>, (version, kind): (&str, &str), error: &str) -> Status {
    Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {error}",
        target.kind
    ))
}

/// The answer to a body that cannot be read at all.
pub fn unrecognized(target: &Target<'_>, error: &str, body: &[u8]) -> Status {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {error} ({})",
        target.kind,
        summary(body)
    ))
}

/// The first thirty bytes, as text where it looks like JSON.
fn summary(body: &[u8]) -> String {
    const LENGTH: usize = 30;
    let (shown, more) = match body.len() > LENGTH {
        true => (&body[..LENGTH], " ..."),
        false => (body, ""),
    };
    match body.first() {
        None => "<empty>".to_string(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{digits}{more}")
        }
    }
}

#[cfg(test)]
mod tests;
