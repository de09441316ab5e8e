//! Expressions of admission: match conditions of webhooks and policies, and what policies say. Objects
//! are untyped here; the request and the namespace have declared types.

use std::sync::{Arc, LazyLock};

use cel::ast::Name;
use cel::libraries::{authorizer, jsonpatch};
use cel::types::{Type, TypeProvider};
use cel::value::Value;
use cel::{Environment, EvalError, Limits, Variables};

use super::dynamic::dynamic;
use super::patch_types::MutationTypes;
use crate::document;

const REQUEST: &str = "kubernetes.AdmissionRequest";
const NAMESPACE: &str = "kubernetes.Namespace";

/// What an expression may use beside the objects, the request and the namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Available {
    pub params: bool,
    pub authorizer: bool,
    /// The types of patches, for mutations.
    pub patches: bool,
    /// Whether it was stored before: then it may use what a newer server allowed.
    pub is_stored: bool,
}

/// Why an expression does not compile. The words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionCompileError {
    #[error("compilation failed: {0}")]
    Compile(String),
    #[error("{0}")]
    ResultType(String),
    #[error("program instantiation failed: {0}")]
    Program(String),
}

/// A compiled expression of admission.
pub struct AdmissionProgram {
    program: cel::Program,
    pub result_type: Type,
}

/// What the variables stand for.
#[derive(Clone)]
pub struct AdmissionInput<'a> {
    pub object: Option<&'a document::Value>,
    pub old_object: Option<&'a document::Value>,
    /// The `AdmissionRequest` without the two objects.
    pub request: &'a document::Value,
    pub namespace: Option<&'a document::Value>,
    pub params: Option<&'a document::Value>,
    pub authorizer: Option<Arc<dyn authorizer::Authorizer>>,
}

/// Compiles an expression that must evaluate to one of these types; to any where none is given.
pub fn compile(
    text: &str,
    available: Available,
    result_types: &[Type],
) -> Result<AdmissionProgram, AdmissionCompileError> {
    compile_in(environment(available), text, result_types)
}

/// As [`compile`], in an environment that was made of one of admission's.
pub(super) fn compile_in(
    environment: &Environment,
    text: &str,
    result_types: &[Type],
) -> Result<AdmissionProgram, AdmissionCompileError> {
    let checked = environment
        .compile(text)
        .map_err(|errors| AdmissionCompileError::Compile(errors.to_string()))?;
    let found = checked.result_type();
    if !result_types.is_empty() && !result_types.contains(found) {
        let reason = match result_types {
            [only] => format!("must evaluate to {only} but got {found}"),
            several => {
                let several: Vec<String> = several.iter().map(ToString::to_string).collect();
                format!(
                    "must evaluate to one of [{}] but got {found}",
                    several.join(" ")
                )
            }
        };
        return Err(AdmissionCompileError::ResultType(reason));
    }
    let program = cel::Program::new(&checked)
        .map_err(|error| AdmissionCompileError::Program(error.to_string()))?;
    Ok(AdmissionProgram {
        program,
        result_type: checked.result_type().clone(),
    })
}

impl AdmissionProgram {
    /// Runs it. `cost` is what it may cost.
    pub fn evaluate<'a>(&'a self, input: &'a AdmissionInput<'a>, cost: u64) -> cel::Outcome<'a> {
        self.evaluate_with(&input, cost)
    }

    /// Runs it with other variables.
    pub(super) fn evaluate_with<'a>(
        &self,
        variables: &dyn Variables<'a>,
        cost: u64,
    ) -> cel::Outcome<'a> {
        let limits = Limits {
            cost: Some(cost),
            interrupted: None,
        };
        self.program.evaluate(variables, limits)
    }
}

impl<'a> Variables<'a> for &'a AdmissionInput<'a> {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, EvalError>> {
        let input: &'a AdmissionInput<'a> = self;
        let of = |value: Option<&'a document::Value>| value.map_or(Value::Null, dynamic);
        Some(Ok(match name {
            "object" => of(input.object),
            "oldObject" => of(input.old_object),
            "request" => dynamic(input.request),
            "namespaceObject" => of(input.namespace),
            "params" => of(input.params),
            "authorizer" => {
                let authorizer = input.authorizer.clone()?;
                authorizer::AuthorizerValue::new(authorizer).into()
            }
            "authorizer.requestResource" => {
                let authorizer = input.authorizer.clone()?;
                let check = authorizer::ResourceCheck {
                    authorizer: authorizer::AuthorizerValue::new(authorizer),
                    attributes: requested(input.request),
                };
                check.into()
            }
            _ => return None,
        }))
    }
}

/// What the request is for, as the authorizer is asked.
fn requested(request: &document::Value) -> authorizer::ResourceAttributes {
    let text = |path: &[&str]| request.str_at(path).to_string();
    authorizer::ResourceAttributes {
        group: text(&["resource", "group"]),
        resource: text(&["resource", "resource"]),
        subresource: text(&["subResource"]),
        namespace: text(&["namespace"]),
        name: text(&["name"]),
        ..authorizer::ResourceAttributes::default()
    }
}

/// The environments, one for each combination of what is available.
pub(super) fn environment(available: Available) -> &'static Environment {
    static ALL: LazyLock<Vec<Environment>> = LazyLock::new(|| {
        let new = Environment::for_new_expressions();
        let stored = Environment::for_stored_expressions();
        let provider: Arc<dyn TypeProvider> = Arc::new(AdmissionTypes);
        let patches: Arc<dyn TypeProvider> = Arc::new(MutationTypes);
        let combinations = (0..16).map(|bits: usize| {
            let base = if bits & 8 == 0 { &new } else { &stored };
            let mut extension = base
                .extend()
                .provider(provider.clone())
                .variable("object", Type::Dyn)
                .variable("oldObject", Type::Dyn)
                .variable("namespaceObject", object(NAMESPACE))
                .variable("request", object(REQUEST));
            if bits & 1 != 0 {
                extension = extension.variable("params", Type::Dyn);
            }
            if bits & 2 != 0 {
                extension = extension
                    .variable("authorizer", authorizer::authorizer_type())
                    .variable(
                        "authorizer.requestResource",
                        authorizer::resource_check_type(),
                    );
            }
            if bits & 4 != 0 {
                // The types of a request stay those of the layer below.
                extension = extension
                    .done()
                    .extend()
                    .provider(patches.clone())
                    .overloads(jsonpatch::overloads());
            }
            extension.done()
        });
        combinations.collect()
    });
    let bits = usize::from(available.params)
        | usize::from(available.authorizer) << 1
        | usize::from(available.patches) << 2
        | usize::from(available.is_stored) << 3;
    &ALL[bits]
}

fn object(name: &str) -> Type {
    Type::Object(Name::from(name))
}

/// The declared types of the request and the namespace.
struct AdmissionTypes;

/// The fields of each declared type; a type that is none of the simple ones is declared too.
const TYPES: [(&str, &[(&str, &str)]); 8] = [
    (
        "kubernetes.GroupVersionKind",
        &[
            ("group", "string"),
            ("version", "string"),
            ("kind", "string"),
        ],
    ),
    (
        "kubernetes.GroupVersionResource",
        &[
            ("group", "string"),
            ("version", "string"),
            ("resource", "string"),
        ],
    ),
    (
        "kubernetes.UserInfo",
        &[
            ("username", "string"),
            ("uid", "string"),
            ("groups", "strings"),
            ("extra", "lists by key"),
        ],
    ),
    (
        REQUEST,
        &[
            ("kind", "kubernetes.GroupVersionKind"),
            ("resource", "kubernetes.GroupVersionResource"),
            ("subResource", "string"),
            ("requestKind", "kubernetes.GroupVersionKind"),
            ("requestResource", "kubernetes.GroupVersionResource"),
            ("requestSubResource", "string"),
            ("name", "string"),
            ("namespace", "string"),
            ("operation", "string"),
            ("userInfo", "kubernetes.UserInfo"),
            ("dryRun", "bool"),
            ("options", "dyn"),
        ],
    ),
    (
        NAMESPACE,
        &[
            ("metadata", "kubernetes.NamespaceMetadata"),
            ("spec", "kubernetes.NamespaceSpec"),
            ("status", "kubernetes.NamespaceStatus"),
        ],
    ),
    (
        "kubernetes.NamespaceMetadata",
        &[
            ("name", "string"),
            ("generateName", "string"),
            ("namespace", "string"),
            ("labels", "strings by key"),
            ("annotations", "strings by key"),
            ("UID", "string"),
            ("creationTimestamp", "timestamp"),
            ("deletionGracePeriodSeconds", "int"),
            ("deletionTimestamp", "timestamp"),
            ("generation", "int"),
            ("resourceVersion", "string"),
            ("finalizers", "strings"),
        ],
    ),
    ("kubernetes.NamespaceSpec", &[("finalizers", "strings")]),
    (
        "kubernetes.NamespaceStatus",
        &[("conditions", "conditions"), ("phase", "string")],
    ),
];

const CONDITION: &str = "kubernetes.NamespaceCondition";
const CONDITION_FIELDS: [(&str, &str); 5] = [
    ("status", "string"),
    ("type", "string"),
    ("lastTransitionTime", "timestamp"),
    ("message", "string"),
    ("reason", "string"),
];

fn fields_of(type_name: &str) -> Option<&'static [(&'static str, &'static str)]> {
    if type_name == CONDITION {
        return Some(&CONDITION_FIELDS);
    }
    let mut known = TYPES.iter().filter(|(name, _)| *name == type_name);
    known.next().map(|(_, fields)| *fields)
}

impl TypeProvider for AdmissionTypes {
    fn has_type(&self, name: &str) -> bool {
        fields_of(name).is_some()
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        let mut known = fields_of(type_name)?.iter();
        let (_, of) = known.find(|(name, _)| *name == field)?;
        Some(match *of {
            "string" => Type::String,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "dyn" => Type::Dyn,
            "timestamp" => Type::Timestamp,
            "strings" => Type::list(Type::String),
            "strings by key" => Type::map(Type::String, Type::String),
            "lists by key" => Type::map(Type::String, Type::list(Type::String)),
            "conditions" => Type::list(object(CONDITION)),
            declared => object(declared),
        })
    }

    fn fields(&self, type_name: &str) -> Vec<Name> {
        let fields = fields_of(type_name).unwrap_or_default().iter();
        fields.map(|(name, _)| Name::from(*name)).collect()
    }
}
