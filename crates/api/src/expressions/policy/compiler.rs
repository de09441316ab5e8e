//! Compiles the expressions of one policy, together with its variables.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use cel::ast::Name;
use cel::types::{Type, TypeProvider};

use crate::document::Value;
use crate::expressions::admission::{self, AdmissionCompileError, AdmissionProgram, Available};

/// The type of `variables`.
pub(in crate::expressions) const VARIABLES: &str = "kubernetes.variables";

/// How deep the types of variables are known.
const DEEPEST: u32 = 32;

/// Compiles the expressions of one policy. What was accepted once counts as stored, so that a compile
/// error is kept and told when the expression is evaluated.
pub struct Compiler {
    has_params: bool,
    fields: Arc<VariableTypes>,
    variables: Variables,
}

/// A compiled expression of a policy.
pub struct Expression {
    pub text: String,
    pub(super) program: Result<AdmissionProgram, AdmissionCompileError>,
}

/// The compiled variables of a policy.
#[derive(Default)]
pub struct Variables {
    pub(super) list: Vec<Variable>,
    /// By name, where in the list.
    positions: HashMap<String, usize>,
}

pub(super) struct Variable {
    pub name: String,
    pub program: Result<AdmissionProgram, AdmissionCompileError>,
}

impl Compiler {
    /// Compiles the variables of a policy first: `{name, expression}` each.
    pub fn new(variables: &[Value], has_params: bool) -> Compiler {
        let mut compiler = Compiler {
            has_params,
            fields: Arc::default(),
            variables: Variables::default(),
        };
        for variable in variables {
            let text = variable.str_at(&["expression"]);
            let available = compiler.available(true);
            let program = compiler.program(text, available, &[]);
            compiler.add(variable.str_at(&["name"]).to_string(), program);
        }
        compiler
    }

    /// Compiles one more variable; the error is that of its expression, which later ones may read all
    /// the same.
    pub fn add_variable(
        &mut self,
        name: &str,
        text: &str,
        available: Available,
    ) -> Result<(), AdmissionCompileError> {
        let program = self.program(text, available, &[]);
        let compiled = program.as_ref().map(drop).map_err(Clone::clone);
        self.add(name.to_string(), program);
        compiled
    }

    /// Whether an expression compiles and evaluates to one of these types.
    pub fn check(
        &self,
        text: &str,
        available: Available,
        result_types: &[Type],
    ) -> Result<(), AdmissionCompileError> {
        self.program(text, available, result_types).map(drop)
    }

    /// An expression that must evaluate to one of these types.
    pub fn expression(&self, text: &str, result_types: &[Type]) -> Expression {
        let available = self.available(true);
        self.expression_with(text, available, result_types)
    }

    /// The same without `authorizer`.
    pub fn expression_without_authorizer(&self, text: &str, result_types: &[Type]) -> Expression {
        let available = self.available(false);
        self.expression_with(text, available, result_types)
    }

    /// The same with the types of patches.
    pub fn patch(&self, text: &str, result_types: &[Type]) -> Expression {
        let available = Available {
            patches: true,
            ..self.available(true)
        };
        self.expression_with(text, available, result_types)
    }

    /// The variables, when everything is compiled.
    pub fn done(self) -> Variables {
        self.variables
    }

    fn available(&self, authorizer: bool) -> Available {
        Available {
            params: self.has_params,
            authorizer,
            patches: false,
            is_stored: true,
        }
    }

    fn expression_with(
        &self,
        text: &str,
        available: Available,
        result_types: &[Type],
    ) -> Expression {
        Expression {
            text: text.to_string(),
            program: self.program(text, available, result_types),
        }
    }

    fn program(
        &self,
        text: &str,
        available: Available,
        result_types: &[Type],
    ) -> Result<AdmissionProgram, AdmissionCompileError> {
        let environment = admission::environment(available)
            .extend()
            .provider(self.fields.clone())
            .variable("variables", Type::Object(Name::from(VARIABLES)))
            .done();
        admission::compile_in(&environment, text, result_types)
    }

    fn add(&mut self, name: String, program: Result<AdmissionProgram, AdmissionCompileError>) {
        let of = program.as_ref();
        let of = of.map_or(&Type::Dyn, |program| &program.result_type);
        self.fields.insert(&name, of);
        let position = self.variables.list.len();
        self.variables.positions.insert(name.clone(), position);
        self.variables.list.push(Variable { name, program });
    }
}

impl Expression {
    /// Why it cannot be evaluated.
    pub fn compile_error(&self) -> Option<&AdmissionCompileError> {
        self.program.as_ref().err()
    }
}

impl Variables {
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }
}

/// The type of a variable as later expressions know it: what is neither simple nor a list or map of
/// such is known only when it is evaluated. So is what is deeper than `levels`: each variable can put
/// the one before it into a list, and whoever walks a type recurses.
fn declared(of: &Type, levels: u32) -> Type {
    match of {
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => of.clone(),
        Type::List(item) if levels > 0 => Type::list(declared(item, levels - 1)),
        Type::Map(entry) if levels > 0 => {
            let (key, value) = &**entry;
            Type::map(declared(key, levels - 1), declared(value, levels - 1))
        }
        _ => Type::Dyn,
    }
}

/// The fields of `variables`, which grow while the variables are compiled.
#[derive(Default)]
pub(in crate::expressions) struct VariableTypes(RwLock<HashMap<Name, Type>>);

impl VariableTypes {
    /// Adds a variable whose expression is of this type.
    pub fn insert(&self, name: &str, of: &Type) {
        let mut fields = self.0.write().unwrap_or_else(PoisonError::into_inner);
        fields.insert(Name::from(name), declared(of, DEEPEST));
    }
}

impl TypeProvider for VariableTypes {
    fn has_type(&self, name: &str) -> bool {
        name == VARIABLES
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        if type_name != VARIABLES {
            return None;
        }
        let fields = self.0.read().unwrap_or_else(PoisonError::into_inner);
        fields.get(field).cloned()
    }

    fn fields(&self, type_name: &str) -> Vec<Name> {
        if type_name != VARIABLES {
            return Vec::new();
        }
        let fields = self.0.read().unwrap_or_else(PoisonError::into_inner);
        fields.keys().cloned().collect()
    }
}
