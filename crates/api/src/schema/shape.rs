//! One place in an object, as patches and server-side apply need it: what kind of value stands there
//! and how it merges.

use super::table::{Definition, Field, Type, table};

/// The shape at a place: of an object as a whole, of a field, or of a list's or map's item.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    kind: &'static Type,
    /// The field that stands here; an item has none, its list has.
    field: Option<&'static Field>,
}

/// The shape at `path` below a definition; path elements are field names or map keys, and a list is
/// entered without an element of its own: `["spec", "containers", "ports"]`.
pub fn type_of(definition: &str, path: &[&str]) -> Option<Shape> {
    path.iter()
        .try_fold(Shape::of(definition)?, |shape, name| match shape.kind {
            Type::List { .. } => shape.item()?.child(name),
            _ => shape.child(name),
        })
}

impl Shape {
    /// The shape of a whole object, e.g. of `io.k8s.api.core.v1.Pod`.
    pub fn of(definition: &str) -> Option<Shape> {
        static ROOTS: std::sync::OnceLock<Vec<Type>> = std::sync::OnceLock::new();
        let roots =
            ROOTS.get_or_init(|| (0..table().definitions().len()).map(Type::Object).collect());
        let index = table()
            .definitions()
            .binary_search_by(|known| known.name.cmp(definition))
            .ok()?;
        Some(Shape {
            kind: &roots[index],
            field: None,
        })
    }

    /// Below an object its field of that name, below a map its value.
    pub fn child(&self, name: &str) -> Option<Shape> {
        match self.kind {
            Type::Object(_) => {
                let field = self.definition()?.field(name)?;
                Some(Shape {
                    kind: &field.kind,
                    field: Some(field),
                })
            }
            Type::Map(value) => Some(Shape {
                kind: value,
                field: None,
            }),
            _ => None,
        }
    }

    /// What Go calls the type of an object here.
    pub fn go_name(&self) -> &'static str {
        match self.kind {
            Type::Raw => "RawExtension",
            Type::Fields => "FieldsV1",
            Type::Json => "JSON",
            kind => kind.definition().map_or("", |known| known.short_go_name()),
        }
    }

    /// What a list or a map holds.
    pub fn item(&self) -> Option<Shape> {
        self.kind.item().map(|kind| Shape { kind, field: None })
    }

    pub fn kind(&self) -> &'static Type {
        self.kind
    }

    pub fn field(&self) -> Option<&'static Field> {
        self.field
    }

    /// The definition of an object.
    pub fn definition(&self) -> Option<&'static Definition> {
        self.kind.definition()
    }

    pub fn is_list(&self) -> bool {
        self.kind.is_list()
    }

    /// An object with declared fields or a map.
    pub fn is_map(&self) -> bool {
        matches!(self.kind, Type::Object(_) | Type::Map(_))
    }

    /// `atomic`, `set`, `map`, or "" where nothing is declared (which means atomic).
    pub fn list_type(&self) -> &'static str {
        self.field.map_or("", |field| field.list_type)
    }

    pub fn list_map_keys(&self) -> &'static [&'static str] {
        self.field.map_or(&[], |field| &field.list_map_keys)
    }

    /// `atomic` or `granular`, or "" where nothing is declared (which means granular).
    pub fn map_type(&self) -> &'static str {
        match self.field.map_or("", |field| field.map_type) {
            "" => self
                .definition()
                .map_or("", |definition| definition.map_type),
            declared => declared,
        }
    }

    /// `merge`, `replace`, `retainKeys`; there can be several.
    pub fn patch_strategies(&self) -> impl Iterator<Item = &'static str> {
        self.field
            .map_or("", |field| field.patch_strategy)
            .split(',')
            .filter(|strategy| !strategy.is_empty())
    }

    pub fn has_patch_strategy(&self, strategy: &str) -> bool {
        self.patch_strategies().any(|declared| declared == strategy)
    }

    /// The key by which a list's items are distinguished in a strategic merge, or "".
    pub fn patch_merge_key(&self) -> &'static str {
        self.field.map_or("", |field| field.patch_merge_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategic_merge_facts_are_found_by_path() {
        let containers = type_of(
            "io.k8s.api.apps.v1.Deployment",
            &["spec", "template", "spec", "containers"],
        )
        .unwrap();
        assert!(containers.is_list() && containers.has_patch_strategy("merge"));
        assert_eq!(containers.patch_merge_key(), "name");
        assert_eq!(containers.list_type(), "map");
        let volumes = type_of("io.k8s.api.core.v1.Pod", &["spec", "volumes"]).unwrap();
        assert_eq!(
            volumes.patch_strategies().collect::<Vec<_>>(),
            ["merge", "retainKeys"]
        );
        let selector = type_of("io.k8s.api.apps.v1.Deployment", &["spec", "selector"]).unwrap();
        assert_eq!(selector.map_type(), "atomic");
        let port = type_of(
            "io.k8s.api.core.v1.Pod",
            &["spec", "containers", "ports", "hostPort"],
        );
        assert_eq!(port.unwrap().kind(), &Type::Int32);
        let limit = type_of(
            "io.k8s.api.core.v1.Container",
            &["resources", "limits", "cpu"],
        );
        assert_eq!(limit.unwrap().kind(), &Type::Quantity);
        assert!(type_of("io.k8s.api.core.v1.Pod", &["spec", "nothing"]).is_none());
    }
}
