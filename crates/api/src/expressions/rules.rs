//! The rules of custom resources (`x-kubernetes-validations`), compiled and run.

use std::sync::{Arc, LazyLock};

use cel::ast::Expr;
use cel::types::Type;
use cel::value::Value;
use cel::{CheckedAst, Environment, Limits, Reference, Variables};

use super::types::SchemaTypes;
use super::values::{Root, root_value, value_of};
use crate::custom::{
    Compilation, CompiledRule, Expressions, Node, OldSelf, Outcome, PER_CALL_LIMIT, Program, Rule,
    Run, Scope,
};
use crate::document;

const SELF: &str = "self";
const OLD_SELF: &str = "oldSelf";

/// Compiles the rules of custom resources.
pub const RULES: &dyn Expressions = &CustomRules;

static NEW: LazyLock<Environment> = LazyLock::new(Environment::for_new_expressions);
static STORED: LazyLock<Environment> = LazyLock::new(Environment::for_stored_expressions);

struct CustomRules;

/// A rule or a message as it runs.
struct Compiled(cel::Program);

/// The environments of one node's rules.
struct Environments {
    /// With `oldSelf` as the value that it was, and as one that may not have been.
    plain: Environment,
    optional: Environment,
}

impl Expressions for CustomRules {
    fn compile(
        &self,
        node: &Arc<Node>,
        is_root: bool,
        is_stored: &dyn Fn(&str) -> bool,
    ) -> Compilation {
        let types = Arc::new(SchemaTypes {
            node: node.clone(),
            is_root,
        });
        let Some(of_self) = types.self_type() else {
            return Compilation {
                rules: Vec::new(),
                failure: Some("failed to convert to declType for CEL validation rules".to_string()),
            };
        };
        let extended = |base: &Environment| Environments {
            plain: with_variables(base, &types, &of_self, of_self.clone()),
            optional: with_variables(base, &types, &of_self, Type::optional(of_self.clone())),
        };
        let new = extended(&NEW);
        let stored = extended(&STORED);
        let declared = node.rules().map_or(&[][..], |rules| rules.declared());
        let rules = declared.iter().map(|rule| {
            let environment = |text: &str| {
                let known = match is_stored(text) {
                    true => &stored,
                    false => &new,
                };
                match rule.optional_old_self.unwrap_or_default() {
                    true => &known.optional,
                    false => &known.plain,
                }
            };
            compile_rule(rule, &types, &environment)
        });
        Compilation {
            rules: rules.collect(),
            failure: None,
        }
    }
}

fn with_variables(
    base: &Environment,
    types: &Arc<SchemaTypes>,
    of_self: &Type,
    of_old: Type,
) -> Environment {
    base.extend()
        .provider(types.clone())
        .variable(SELF, of_self.clone())
        .variable(OLD_SELF, of_old)
        .done()
}

fn compile_rule<'e>(
    rule: &Rule,
    types: &SchemaTypes,
    environment: &dyn Fn(&str) -> &'e Environment,
) -> CompiledRule {
    let mut compiled = CompiledRule::default();
    if rule.rule.trim().is_empty() {
        return compiled;
    }
    let base = environment(&rule.rule);
    let checked = match base.compile(&rule.rule) {
        Ok(checked) => checked,
        Err(errors) => {
            compiled.error = Some(format!("compilation failed: {errors}"));
            return compiled;
        }
    };
    if *checked.result_type() != Type::Bool {
        compiled.error = Some("cel expression must evaluate to a bool".to_string());
        return compiled;
    }
    compiled.uses_old_self = uses_old_self(&checked);
    let program = match cel::Program::new(&checked) {
        Ok(program) => program,
        Err(error) => {
            compiled.error = Some(format!("program instantiation failed: {error}"));
            return compiled;
        }
    };
    compiled.max_cost = base.estimate(&checked, types).max;
    compiled.program = Some(Arc::new(Compiled(program)));
    if !rule.message_expression.is_empty() {
        compile_message(rule, types, environment, &mut compiled);
    }
    compiled
}

fn compile_message<'e>(
    rule: &Rule,
    types: &SchemaTypes,
    environment: &dyn Fn(&str) -> &'e Environment,
    compiled: &mut CompiledRule,
) {
    let base = environment(&rule.message_expression);
    let checked = match base.compile(&rule.message_expression) {
        Ok(checked) => checked,
        Err(errors) => {
            compiled.message_error =
                Some(format!("messageExpression compilation failed: {errors}"));
            return;
        }
    };
    if *checked.result_type() != Type::String {
        compiled.message_error = Some("messageExpression must evaluate to a string".to_string());
        return;
    }
    match cel::Program::new(&checked) {
        Ok(program) => {
            compiled.message_max_cost = base.estimate(&checked, types).max;
            compiled.message = Some(Arc::new(Compiled(program)));
        }
        Err(error) => {
            compiled.message_error =
                Some(format!("messageExpression instantiation failed: {error}"));
        }
    }
}

fn uses_old_self(checked: &CheckedAst) -> bool {
    let by_name = checked.references.iter().flatten();
    let mut variables = by_name.filter(|reference| matches!(reference, Reference::Variable(_)));
    variables.any(|reference| matches!(reference, Reference::Variable(name) if &**name == OLD_SELF))
        || checked
            .ast
            .nodes
            .iter()
            .any(|node| matches!(&node.expr, Expr::Ident(name) if &**name == OLD_SELF))
}

/// `self` and `oldSelf`.
struct Selves<'a> {
    root: &'a Root<'a>,
    scope: &'a Scope<'a>,
}

impl<'a> Selves<'a> {
    fn value(&self, value: &'a document::Value) -> Result<Value<'a>, cel::EvalError> {
        match self.scope.is_root {
            true => Ok(root_value(self.root, value)),
            false => value_of(self.scope.node, value),
        }
    }
}

impl<'a> Variables<'a> for Selves<'a> {
    fn variable(&self, name: &str) -> Option<Result<Value<'a>, cel::EvalError>> {
        match (name, self.scope.old) {
            (SELF, _) => Some(self.value(self.scope.value)),
            (OLD_SELF, OldSelf::Value(old)) => Some(self.value(old)),
            (OLD_SELF, OldSelf::Optional(None)) => Some(Ok(Value::Optional(None))),
            (OLD_SELF, OldSelf::Optional(Some(old))) => Some(self.value(old).map(Value::some)),
            _ => None,
        }
    }
}

impl Program for Compiled {
    fn run(&self, scope: &Scope<'_>) -> Run {
        let root = Root(scope.node);
        let selves = Selves { root: &root, scope };
        let limits = Limits {
            cost: Some(PER_CALL_LIMIT),
            interrupted: None,
        };
        let outcome = self.0.evaluate(&selves, limits);
        Run {
            cost: Some(outcome.cost),
            result: match outcome.value {
                Ok(Value::Bool(is)) => Ok(Outcome::Bool(is)),
                Ok(Value::String(text)) => Ok(Outcome::Text(text.to_string())),
                Ok(_) => Ok(Outcome::Other),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}
