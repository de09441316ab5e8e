//! A served kind: names, scope, verbs, subresources, table columns, and its rules as a [`Strategy`].
//! What its objects look like is `schema`'s; the rules of the built-in kinds are in `strategy`; the
//! kinds that a server serves are in its `catalogue`.

mod definition;
pub(crate) mod generic;
mod strategy;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::field::FieldError;
use crate::status::{Cause, Status};

pub use definition::{CustomKind, CustomVersion, Definition, ScalePaths, SchemaHandle};
pub use strategy::{Dependents, MetadataChecks, Requester, Strategy};

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: Cow<'static, str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: Cow<'static, str>,
    pub format: Cow<'static, str>,
    /// 0 is always shown, above only with `-o wide`.
    pub priority: i64,
    pub description: Cow<'static, str>,
}

/// A name that is part of the program for a built-in kind, and owned by an added one.
pub type Name = Cow<'static, str>;

/// A served kind in one version. Requests hold it by an [`Arc`], so that it outlives its removal
/// from the catalogue as long as somebody works with it.
pub struct Resource {
    /// "" for the core group.
    pub group: Name,
    pub version: Name,
    pub kind: Name,
    pub plural: Name,
    pub singular: Name,
    pub namespaced: bool,
    pub short_names: Vec<Name>,
    pub categories: Vec<Name>,
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// The columns of the table that `kubectl get` shows.
    pub columns: Vec<Column>,
    /// What its objects look like.
    pub definition: Definition,
    /// The rules of the kind, which a schema cannot say.
    pub rules: Rules,
    /// The version of a built-in kind that its objects are stored in, if that is not this one. Custom
    /// kinds are worked on in the version that was asked for, and converted where they are stored.
    pub storage: Option<Arc<Resource>>,
}

/// The strategy of a kind: part of the program, or brought by a kind that was added.
#[derive(Clone)]
pub enum Rules {
    BuiltIn(&'static dyn Strategy),
    Added(Arc<dyn Strategy>),
}

/// A path below an object, such as `status`.
#[derive(Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// The kind that is sent and received there; it may be of another group than the object.
    pub kind: Name,
    pub group: Name,
    pub version: Name,
    pub verbs: Vec<&'static str>,
}

impl Resource {
    /// `v1` or `apps/v1`, as `apiVersion` has it.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `pods` or `deployments.apps`, as errors name it.
    pub fn qualified(&self) -> String {
        match &*self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    pub fn strategy(&self) -> &dyn Strategy {
        match &self.rules {
            Rules::BuiltIn(strategy) => *strategy,
            Rules::Added(strategy) => &**strategy,
        }
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// Whether it is part of the program, as opposed to added while the server runs.
    pub fn is_built_in(&self) -> bool {
        matches!(self.rules, Rules::BuiltIn(_))
    }

    /// Whether `status` is a resource of its own below the object.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether its objects are worked on in this version.
    pub fn is_stored_as_itself(&self) -> bool {
        self.storage.is_none()
    }

    /// Whether the bytes of its objects in the store are of this version, as a rule.
    pub fn is_storage_version(&self) -> bool {
        match self.definition.custom() {
            Some(custom) => custom.kind.storage_version == self.version,
            None => self.storage.is_none(),
        }
    }

    /// Whether a CustomResourceDefinition defines it.
    pub fn is_custom(&self) -> bool {
        self.definition.custom().is_some()
    }

    /// The kind of its lists.
    pub fn list_kind(&self) -> Name {
        match self.definition.custom() {
            Some(custom) => Cow::Owned(custom.kind.list_kind.clone()),
            None => Cow::Owned(format!("{}List", self.kind)),
        }
    }

    /// The 404 answer for an object that is not there.
    pub fn not_found(&self, name: &str) -> Status {
        Status::not_found(&self.group, &self.plural, name)
    }

    /// The 409 answer for an object whose name is taken.
    pub fn already_exists(&self, name: &str) -> Status {
        Status::already_exists(&self.group, &self.plural, name)
    }

    /// The 409 answer for a write that others were faster than.
    pub fn conflict(&self, name: &str, why: impl fmt::Display) -> Status {
        Status::conflict(&self.group, &self.plural, name, why)
    }

    /// The 403 answer for what the caller may not do.
    pub fn forbidden(&self, name: &str, why: impl fmt::Display) -> Status {
        Status::forbidden(&self.group, &self.plural, name, why)
    }

    /// The 422 answer for an object with these field errors.
    pub fn invalid(&self, name: &str, errors: Vec<FieldError>) -> Status {
        let causes = errors.into_iter().map(Cause::from).collect();
        Status::invalid(&self.group, &self.kind, name, causes)
    }

    /// Likewise for an object that says of itself which kind it is, which upstream believes of custom
    /// resources.
    pub fn invalid_as(&self, kind: &str, name: &str, errors: Vec<FieldError>) -> Status {
        if !self.is_custom() || kind.is_empty() {
            return self.invalid(name, errors);
        }
        let causes = errors.into_iter().map(Cause::from).collect();
        Status::invalid(&self.group, kind, name, causes)
    }

    /// What identifies a resource in a catalogue.
    pub fn id(&self) -> (&str, &str, &str) {
        (&self.group, &self.version, &self.plural)
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Resource {}

impl fmt::Debug for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} in {}", self.qualified(), self.version)
    }
}

/// `v1` for the core group, `group/version` for others.
pub fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_string(),
        _ => format!("{group}/{version}"),
    }
}

/// The opposite of [`api_version`].
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
