//! Lists, maps and struct literals.

use super::{Checker, shown};
use crate::ast::{Id, ListLiteral, MapEntry, StructLiteral};
use crate::checked::Reference;
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn check_list(&mut self, id: Id, list: &ListLiteral) {
        let mut items = None;
        for (index, item) in list.items.iter().enumerate() {
            let mut of = self.checked(*item);
            if list.optional.contains(&(index as u32)) {
                of = self.unwrap_optional(*item, of);
            }
            items = Some(self.join(items, of));
        }
        let items = items.unwrap_or_else(|| self.unifier.variable());
        self.set_type(id, Type::list(items));
    }

    pub(super) fn check_map(&mut self, id: Id, entries: &[MapEntry]) {
        let mut keys = None;
        let mut values = None;
        for entry in entries {
            let key = self.checked(entry.key);
            keys = Some(self.join(keys, key));
            let mut value = self.checked(entry.value);
            if entry.is_optional {
                value = self.unwrap_optional(entry.value, value);
            }
            values = Some(self.join(values, value));
        }
        let keys = keys.unwrap_or_else(|| self.unifier.variable());
        let values = values.unwrap_or_else(|| self.unifier.variable());
        self.set_type(id, Type::map(keys, values));
    }

    /// The type in an optional value that is put into a literal.
    fn unwrap_optional(&mut self, id: Id, of: Type) -> Type {
        match of.in_optional() {
            Some(inner) => inner.clone(),
            None => {
                if of != Type::Dyn {
                    let expected = Type::optional(of.clone());
                    self.mismatch(id, &expected, &of);
                }
                of
            }
        }
    }

    /// The type that two members of a literal share. That they must have one is checked later.
    fn join(&mut self, before: Option<Type>, of: Type) -> Type {
        match before {
            Some(before) if self.unifier.is_assignable(&before, &of) => {
                self.unifier.most_general(&before, &of)
            }
            Some(_) => Type::Dyn,
            None => of,
        }
    }

    pub(super) fn check_struct(&mut self, id: Id, literal: &mut StructLiteral) {
        let Some((name, reference, of)) = self.resolve(&literal.type_name) else {
            let name = literal.type_name.clone();
            return self.undeclared(id, &name);
        };
        literal.type_name = name.clone();
        let of = match (reference, of) {
            (Reference::Type(_, object @ Type::Object(_)), _) => {
                self.set_reference(id, Reference::Type(name.clone(), object.clone()));
                object
            }
            (Reference::Type(_, other), _) => {
                self.error(id, format!("'{}' is not a message type", other.name()));
                Type::Error
            }
            (_, other) => {
                self.error(id, format!("'{}' is not a type", other.name()));
                Type::Error
            }
        };
        self.set_type(id, of);
        for field in &literal.fields {
            let mut value = self.checked(field.value);
            let wanted = self
                .field_type(field.id, &name, &field.name)
                .unwrap_or(Type::Error);
            if field.is_optional {
                value = self.unwrap_optional(field.value, value);
            }
            if !self.unifier.is_assignable(&wanted, &value) {
                let message = format!(
                    "expected type of field '{}' is '{}' but provided type is '{}'",
                    field.name,
                    shown(&wanted),
                    shown(&value)
                );
                self.error(field.id, message);
            }
        }
    }
}
