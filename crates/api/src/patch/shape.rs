//! What a strategic merge must know of a type: how each field merges.

use crate::schema;

/// How one field merges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldRule {
    /// Lists: whether elements merge (by key, or as a set of scalars) instead of being replaced.
    pub merge: bool,
    /// Maps: whether the whole map is replaced.
    pub replace: bool,
    /// Whether a made patch names the keys to keep (unions such as a volume's source).
    pub retain_keys: bool,
    /// The field that identifies a list's elements; "" for scalars.
    pub merge_key: &'static str,
}

/// The type of a map's fields, of a list's elements or of a map's values.
pub trait Shape: Copy {
    /// The rule of the field `name` and the shape below it: for a list that of its elements. `None`
    /// for a field the type does not have.
    fn field(self, name: &str) -> Option<(FieldRule, Option<Self>)>;

    /// What Go calls the type.
    fn name(self) -> &'static str;
}

/// The rule and shape of a field below an optional shape.
pub fn below<S: Shape>(shape: Option<S>, name: &str) -> (FieldRule, Option<S>) {
    shape
        .and_then(|shape| shape.field(name))
        .unwrap_or((FieldRule::default(), None))
}

/// The shape of a whole object, by the name of its definition.
pub fn of(definition: &str) -> Option<schema::Shape> {
    schema::Shape::of(definition)
}

impl Shape for schema::Shape {
    fn field(self, name: &str) -> Option<(FieldRule, Option<Self>)> {
        let child = self.child(name)?;
        let rule = FieldRule {
            merge: child.has_patch_strategy("merge"),
            replace: child.has_patch_strategy("replace"),
            retain_keys: child.has_patch_strategy("retainKeys"),
            merge_key: child.patch_merge_key(),
        };
        let below = if child.is_list() {
            child.item()
        } else {
            Some(child)
        };
        Some((rule, below))
    }

    fn name(self) -> &'static str {
        self.go_name()
    }
}
