//! What an expression may refer to: variables, functions, names of types, and how names are resolved.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{Constant, Name};
use crate::function::{Function, Overload};
use crate::types::{Type, TypeProvider};

/// Declarations on top of others. Extending costs what is added, whatever is below.
#[derive(Default)]
pub struct Declarations {
    below: Option<Arc<Declarations>>,
    /// Names of this layer without its dots, see [`Declarations::resolve`].
    container: Name,
    variables: HashMap<Name, Type>,
    type_names: HashMap<Name, Type>,
    functions: HashMap<&'static str, Arc<Function>>,
    provider: Option<Arc<dyn TypeProvider>>,
}

/// What a name is.
pub enum Declared {
    Variable(Type),
    Constant(Constant),
    Type(Type),
}

impl Declarations {
    pub fn on(below: Arc<Declarations>) -> Declarations {
        Declarations {
            container: below.container.clone(),
            below: Some(below),
            ..Declarations::default()
        }
    }

    /// The namespace in which names are looked up first, such as `a.b`.
    pub fn set_container(&mut self, container: &str) {
        self.container = Name::from(container);
    }

    pub fn container(&self) -> &str {
        &self.container
    }

    pub fn add_variable(&mut self, name: &str, of: Type) {
        self.variables.insert(Name::from(name), of);
    }

    pub fn add_type_name(&mut self, name: &str, of: Type) {
        self.type_names.insert(Name::from(name), of);
    }

    pub fn set_provider(&mut self, provider: Arc<dyn TypeProvider>) {
        self.provider = Some(provider);
    }

    /// Adds overloads to those that their functions have. One that is declared twice counts once.
    pub fn add_overloads(&mut self, overloads: impl IntoIterator<Item = Overload>) {
        for overload in overloads {
            let function = match self.function(overload.function) {
                Some(known) if known.overloads.iter().any(|one| one.id == overload.id) => continue,
                Some(known) => known.clone(),
                None => Arc::new(Function {
                    name: overload.function,
                    overloads: Vec::new(),
                }),
            };
            // While a layer is made, nobody else has its functions; those below are copied.
            self.functions.remove(overload.function);
            let mut function = Arc::try_unwrap(function).unwrap_or_else(|shared| Function {
                name: shared.name,
                overloads: shared.overloads.clone(),
            });
            function.overloads.push(Arc::new(overload));
            self.functions.insert(function.name, Arc::new(function));
        }
    }

    /// What a name is, where names are tried from the innermost namespace outwards.
    pub fn resolve(&self, name: &str) -> Option<(Name, Declared)> {
        self.candidates(name, |candidate| {
            let declared = self.declared(candidate)?;
            Some((Name::from(candidate), declared))
        })
    }

    pub fn resolve_function(&self, name: &str) -> Option<Arc<Function>> {
        self.candidates(name, |candidate| self.function(candidate).cloned())
    }

    pub fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.layers().find_map(|layer| layer.functions.get(name))
    }

    /// The names of variables, those below included.
    pub fn variable_type(&self, name: &str) -> Option<&Type> {
        self.layers().find_map(|layer| layer.variables.get(name))
    }

    pub fn has_type(&self, name: &str) -> bool {
        self.providers().any(|provider| provider.has_type(name))
    }

    pub fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        self.providers()
            .find_map(|provider| provider.field(type_name, field))
    }

    fn layers(&self) -> impl Iterator<Item = &Declarations> {
        std::iter::successors(Some(self), |layer| layer.below.as_deref())
    }

    fn providers(&self) -> impl Iterator<Item = &Arc<dyn TypeProvider>> {
        self.layers().filter_map(|layer| layer.provider.as_ref())
    }

    fn declared(&self, name: &str) -> Option<Declared> {
        if let Some(of) = self.variable_type(name) {
            return Some(Declared::Variable(of.clone()));
        }
        if let Some(of) = self.layers().find_map(|layer| layer.type_names.get(name)) {
            return Some(Declared::Type(of.clone()));
        }
        if self.has_type(name) {
            return Some(Declared::Type(Type::Object(Name::from(name))));
        }
        self.providers()
            .find_map(|provider| provider.constant(name))
            .map(|value| Declared::Constant(Constant::Int(value)))
    }

    fn candidates<T>(&self, name: &str, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        if let Some(absolute) = name.strip_prefix('.') {
            return find(absolute);
        }
        let mut container = &*self.container;
        while !container.is_empty() {
            if let Some(found) = find(&format!("{container}.{name}")) {
                return Some(found);
            }
            container = container.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
        find(name)
    }
}
