//! Environments: what expressions may use, by the version of Kubernetes they have to work with.

use std::sync::Arc;

use crate::check::{self, Strictness};
use crate::checked::CheckedAst;
use crate::declarations::Declarations;
use crate::errors::CompileErrors;
use crate::estimate::{self, Estimate};
use crate::function::{Overload, SizeBounds};
use crate::libraries::versions;
use crate::macros::Macros;
use crate::parse::{self, Syntax};
use crate::standard;
use crate::types::{Type, TypeProvider};

/// The version whose expressions an older server of the same cluster still understands: what is
/// written may use no more than this.
pub const COMPATIBLE_MINOR: u32 = 35;

/// Compiles expressions. Cloning and extending are cheap.
#[derive(Clone)]
pub struct Environment {
    declarations: Arc<Declarations>,
    syntax: Syntax,
    strictness: Strictness,
}

impl Environment {
    /// For expressions that are written now: they may use what Kubernetes 1.`minor` has.
    pub fn of_version(minor: u32) -> Environment {
        let mut declarations = Declarations::default();
        for (name, of) in standard::type_names() {
            declarations.add_type_name(name, of);
        }
        declarations.add_overloads(standard::overloads());
        for (name, of) in versions::type_names(minor) {
            declarations.add_type_name(name, of);
        }
        declarations.add_overloads(versions::overloads(minor));
        Environment {
            declarations: Arc::new(declarations),
            syntax: Syntax {
                optional: minor >= versions::OPTIONALS,
                macros: Macros {
                    optional: minor >= versions::OPTIONALS,
                    two_variables: minor >= versions::TWO_VARIABLES,
                    sort_by: minor >= versions::EXTENDED_LISTS,
                    bind: false,
                },
            },
            strictness: Strictness {
                mixed_comparisons: minor >= versions::MIXED_COMPARISONS,
                literals: minor >= versions::LITERAL_CHECKS,
                format: minor >= versions::LITERAL_CHECKS,
            },
        }
    }

    /// For expressions that are written now.
    pub fn for_new_expressions() -> Environment {
        Environment::of_version(COMPATIBLE_MINOR)
    }

    /// For expressions that were stored, perhaps by a newer server: they may use everything.
    pub fn for_stored_expressions() -> Environment {
        Environment::of_version(u32::MAX)
    }

    /// An environment with more declarations, see [`Extension`].
    pub fn extend(&self) -> Extension {
        Extension {
            declarations: Declarations::on(self.declarations.clone()),
            environment: self.clone(),
        }
    }

    pub fn declarations(&self) -> &Declarations {
        &self.declarations
    }

    /// Parses and checks an expression.
    pub fn compile(&self, source: &str) -> Result<CheckedAst, CompileErrors> {
        let ast = parse::parse(source, self.syntax)?;
        check::check(source, ast, &self.declarations, self.strictness)
    }

    /// What an expression will cost, from the bounds of sizes that the host knows.
    pub fn estimate(&self, checked: &CheckedAst, bounds: &dyn SizeBounds) -> Estimate {
        estimate::estimate(checked, bounds)
    }
}

/// Declarations that are added to an environment.
pub struct Extension {
    declarations: Declarations,
    environment: Environment,
}

impl Extension {
    pub fn variable(mut self, name: &str, of: Type) -> Extension {
        self.declarations.add_variable(name, of);
        self
    }

    pub fn overloads(mut self, overloads: impl IntoIterator<Item = Overload>) -> Extension {
        self.declarations.add_overloads(overloads);
        self
    }

    /// A name that stands for a type, such as `net.IP`.
    pub fn type_name(mut self, name: &str, of: Type) -> Extension {
        self.declarations.add_type_name(name, of);
        self
    }

    /// Where the fields of declared objects come from.
    pub fn provider(mut self, provider: Arc<dyn TypeProvider>) -> Extension {
        self.declarations.set_provider(provider);
        self
    }

    /// Adds `cel.bind`.
    pub fn bindings(mut self) -> Extension {
        self.environment.syntax.macros.bind = true;
        self
    }

    /// The namespace in which names are looked up first.
    pub fn container(mut self, container: &str) -> Extension {
        self.declarations.set_container(container);
        self
    }

    pub fn done(self) -> Environment {
        Environment {
            declarations: Arc::new(self.declarations),
            ..self.environment
        }
    }
}
