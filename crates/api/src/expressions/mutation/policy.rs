//! A compiled MutatingAdmissionPolicy: what its mutations make of an object.

use super::{MutationError, apply_configuration, json_patch, object_type, patches_type};
use crate::apply::Target;
use crate::document::Value;
use crate::expressions::admission::AdmissionInput;
use crate::expressions::policy::{
    BUDGET, Compiler, Evaluation, Expression, MatchConditions, Uses, Variables,
};

pub struct MutatingPolicy {
    pub variables: Variables,
    pub conditions: MatchConditions,
    pub uses: Uses,
    /// Whether it is asked once more when others change the object after it.
    pub is_reinvoked: bool,
    /// In the order in which they are made.
    pub mutations: Vec<Mutation>,
}

/// One mutation of a policy.
pub struct Mutation {
    pub patch: PatchType,
    expression: Expression,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    ApplyConfiguration,
    JsonPatch,
}

impl MutatingPolicy {
    pub fn of_document(policy: &Value) -> MutatingPolicy {
        let spec = policy.get("spec").unwrap_or(&Value::Null);
        let list = |field: &str| spec.list_at(&[field]);
        let has_params = spec.get("paramKind").is_some_and(|kind| !kind.is_null());
        let compiler = Compiler::new(list("variables"), has_params);
        let conditions = MatchConditions::of_documents(list("matchConditions"), &compiler);
        let mutations = list("mutations").iter();
        let mutations: Vec<Mutation> = mutations
            .filter_map(|mutation| Mutation::of_document(mutation, &compiler))
            .collect();
        let others = list("variables").iter().chain(list("matchConditions"));
        let texts = others
            .map(|expression| expression.str_at(&["expression"]))
            .chain(mutations.iter().map(|one| one.expression.text.as_str()));
        MutatingPolicy {
            uses: Uses::of(texts),
            variables: compiler.done(),
            conditions,
            is_reinvoked: spec.str_at(&["reinvocationPolicy"]) == "IfNeeded",
            mutations,
        }
    }
}

impl Mutation {
    fn of_document(mutation: &Value, compiler: &Compiler) -> Option<Mutation> {
        let (patch, field, of) = match mutation.str_at(&["patchType"]) {
            "ApplyConfiguration" => (
                PatchType::ApplyConfiguration,
                "applyConfiguration",
                object_type(),
            ),
            "JSONPatch" => (PatchType::JsonPatch, "jsonPatch", patches_type()),
            _ => return None,
        };
        let text = mutation.at(&[field, "expression"])?.as_str()?;
        Some(Mutation {
            patch,
            expression: compiler.patch(text, &[of]),
        })
    }

    /// What it makes of `live`, which is the object of the input; nothing where it leaves that as it is.
    pub fn apply(
        &self,
        variables: &Variables,
        input: &AdmissionInput<'_>,
        target: Target<'_>,
        live: &Value,
    ) -> Result<Option<Value>, MutationError> {
        if let Some(error) = self.expression.compile_error() {
            return Err(MutationError::Evaluation(error.to_string()));
        }
        // Each mutation evaluates variables anew: the object is not the same any more.
        let evaluation = Evaluation::new(variables, input);
        let mut budget = BUDGET;
        let result = evaluation
            .evaluate(&self.expression, &mut budget)
            .map_err(|problem| MutationError::Evaluation(problem.to_string()))?
            .map_err(MutationError::Evaluation)?;
        match self.patch {
            PatchType::ApplyConfiguration => apply_configuration(&result, target, live).map(Some),
            PatchType::JsonPatch => json_patch(&result, live),
        }
    }
}
