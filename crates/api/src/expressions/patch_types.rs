//! The types that mutations make objects of: `Object`, `Object.spec` and so on for the fields of the
//! mutated object, and `JSONPatch`. Nothing is known of the fields when an expression is compiled; when
//! it has run, the names of the types must say where the objects are.

use cel::ast::Name;
use cel::libraries::jsonpatch;
use cel::types::{Type, TypeProvider};

/// The type of the mutated object itself.
const OBJECT: &str = "Object";

pub struct MutationTypes;

/// What an apply configuration must evaluate to.
pub fn object_type() -> Type {
    Type::Object(Name::from(OBJECT))
}

/// What a JSON patch must evaluate to.
pub fn patches_type() -> Type {
    Type::list(jsonpatch::json_patch_type())
}

/// Whether it is the type of the mutated object or of something in it.
fn is_of_object(name: &str) -> bool {
    let below = name.strip_prefix(OBJECT);
    below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
}

impl TypeProvider for MutationTypes {
    fn has_type(&self, name: &str) -> bool {
        name == jsonpatch::JSON_PATCH || is_of_object(name)
    }

    fn field(&self, type_name: &str, field: &str) -> Option<Type> {
        match type_name {
            jsonpatch::JSON_PATCH => jsonpatch::field(field),
            name if is_of_object(name) => Some(Type::Dyn),
            _ => None,
        }
    }

    fn fields(&self, type_name: &str) -> Vec<Name> {
        match type_name {
            jsonpatch::JSON_PATCH => jsonpatch::fields(),
            _ => Vec::new(),
        }
    }
}
