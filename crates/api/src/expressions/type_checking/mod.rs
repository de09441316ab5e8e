//! Type checking of validating policies: their expressions are compiled once more for each kind that
//! they are about, with the types of that kind, and what is wrong then is a warning in their status.
//! It changes nothing of what a policy does.

mod types;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use cel::Environment;
use cel::ast::Name;
use cel::libraries::authorizer;
use cel::types::Type;

use super::admission::{self, Available};
use super::policy::{VARIABLES, VariableTypes};
use crate::document::Value;
use crate::field::Path;

pub use types::KindSchema;
use types::KindTypes;

/// No more kinds than this are checked for one rule of a policy.
const MOST_KINDS: usize = 10;

/// The name of a kind. The order is that in which warnings name them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindName {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl fmt::Display for KindName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KindName {
            group,
            version,
            kind,
        } = self;
        write!(formatter, "{group}/{version}, Kind={kind}")
    }
}

/// What is known of the parameters of a policy.
#[derive(Clone, Debug)]
pub enum ParamTypes {
    /// There are none.
    Absent,
    /// Their kind is not known.
    Unknown,
    Known(KindSchema),
}

/// A warning about one expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionWarning {
    /// The path of the expression, such as `spec.validations[0].expression`.
    pub field_ref: String,
    pub warning: String,
}

/// The kinds that a policy is about, as far as it names them: without wildcards and subresources.
/// `kind_of` knows the kind of a group, version and resource.
pub fn kinds_to_check(
    policy: &Value,
    mut kind_of: impl FnMut(&str, &str, &str) -> Option<String>,
) -> Vec<KindName> {
    let mut kinds = BTreeSet::new();
    for rule in policy.list_at(&["spec", "matchConstraints", "resourceRules"]) {
        let mut count = 0;
        for (group, version, resource) in named_resources(rule) {
            let Some(kind) = kind_of(group, version, resource) else {
                continue;
            };
            kinds.insert(KindName {
                group: group.to_string(),
                version: version.to_string(),
                kind,
            });
            count += 1;
            if count == MOST_KINDS {
                return kinds.into_iter().collect();
            }
        }
    }
    kinds.into_iter().collect()
}

/// Every combination that a rule names, in order.
fn named_resources(rule: &Value) -> impl Iterator<Item = (&str, &str, &str)> {
    let texts = |field: &str| {
        let mut texts: Vec<&str> = rule
            .list_at(&[field])
            .iter()
            .filter_map(Value::as_str)
            .collect();
        texts.sort_unstable();
        texts
    };
    let mut groups = texts("apiGroups");
    let mut versions = texts("apiVersions");
    // A wildcard among groups or versions leaves nothing to be named.
    for texts in [&mut groups, &mut versions] {
        if texts.iter().any(|text| text.contains('*')) {
            texts.clear();
        }
    }
    let mut resources = texts("resources");
    resources.retain(|resource| !resource.contains(['*', '/']));
    groups.into_iter().flat_map(move |group| {
        let (versions, resources) = (versions.clone(), resources.clone());
        versions.into_iter().flat_map(move |version| {
            let resources = resources.clone().into_iter();
            resources.map(move |resource| (group, version, resource))
        })
    })
}

/// The kind of the parameters of a policy.
pub fn param_kind(policy: &Value) -> Option<KindName> {
    let of = policy.at(&["spec", "paramKind"])?;
    let (group, version) = crate::resource::split_api_version(of.str_at(&["apiVersion"]));
    let name = KindName {
        group: group.to_string(),
        version: version.to_string(),
        kind: of.str_at(&["kind"]).to_string(),
    };
    let is_empty = name.group.is_empty() && name.version.is_empty() && name.kind.is_empty();
    (!is_empty).then_some(name)
}

/// What is wrong with the expressions of a policy, for the kinds whose schemas are known.
pub fn warnings(
    policy: &Value,
    kinds: &[(KindName, KindSchema)],
    params: &ParamTypes,
) -> Vec<ExpressionWarning> {
    let variables = policy.list_at(&["spec", "variables"]);
    let environments: Vec<(&KindName, Environment)> = kinds
        .iter()
        .map(|(kind, schema)| (kind, environment(kind, schema, params, variables)))
        .collect();
    let check = |text: &str| {
        let found = environments.iter().filter_map(|(kind, environment)| {
            let errors = environment.compile(text).err()?;
            Some(format!("{kind}: {errors}\n"))
        });
        found.collect::<Vec<String>>().join("\n")
    };
    let mut warnings = Vec::new();
    let path = Path::new("spec").child("validations");
    let validations = policy.list_at(&["spec", "validations"]).iter();
    for (index, validation) in validations.enumerate() {
        for field in ["expression", "messageExpression"] {
            let text = validation.str_at(&[field]);
            if text.is_empty() && field == "messageExpression" {
                continue;
            }
            match check(text) {
                none if none.is_empty() => {}
                warning => warnings.push(ExpressionWarning {
                    field_ref: path.index(index).child(field).to_string(),
                    warning,
                }),
            }
        }
    }
    warnings
}

/// Where the expressions of a policy are compiled for one kind.
fn environment(
    kind: &KindName,
    schema: &KindSchema,
    params: &ParamTypes,
    variables: &[Value],
) -> Environment {
    let types = |kind: &str, number: u8, schema: &KindSchema| {
        Arc::new(KindTypes {
            name: Name::from(format!("{kind}{number}")),
            schema: schema.clone(),
        })
    };
    let available = Available {
        is_stored: true,
        ..Available::default()
    };
    let object = types(&kind.kind, 0, schema);
    let of = object.object_type().unwrap_or(Type::Dyn);
    let mut typed = admission::environment(available)
        .extend()
        .provider(object)
        .variable("object", of.clone())
        .variable("oldObject", of)
        .variable("authorizer", authorizer::authorizer_type())
        .done();
    match params {
        ParamTypes::Absent => {}
        ParamTypes::Unknown => typed = typed.extend().variable("params", Type::Dyn).done(),
        ParamTypes::Known(schema) => {
            let params = types("Params", 1, schema);
            let of = params.object_type().unwrap_or(Type::Dyn);
            typed = typed
                .extend()
                .provider(params)
                .variable("params", of)
                .done();
        }
    }
    let fields = Arc::new(VariableTypes::default());
    let typed = typed
        .extend()
        .provider(fields.clone())
        .variable("variables", Type::Object(Name::from(VARIABLES)))
        .done();
    for variable in variables {
        let of = typed.compile(variable.str_at(&["expression"]));
        let of = of.map_or(Type::Dyn, |checked| checked.result_type().clone());
        fields.insert(variable.str_at(&["name"]), &of);
    }
    typed
}
