//! The contract of a strategy: what a schema cannot say about a kind. The strategies of the built-in
//! kinds are in [`crate::strategy`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::generic;
use crate::document::Value;
use crate::field::FieldError;
use crate::metadata::{self, NameRule};

/// The rules of one kind. The provided methods are the whole of it for a kind without rules of its
/// own; a kind overrides the `…_content` hooks and the small facts.
///
/// The API server's registry calls them in this order, with its own steps in parentheses:
///
/// 1. `default`, on what was decoded or computed by a patch
/// 2. (mutating admission), and for a new object `default` again
/// 3. `prepare_create` or `prepare_update`
/// 4. for a new object `record_requester`; then `stamp`
/// 5. `validate_create` or `validate_update`
/// 6. `warnings`
/// 7. `default` once more, which makes the object canonical: as it will be read from the store
/// 8. (validating admission), (the write, under the condition that nobody wrote in between)
///
/// A delete calls `graceful_delete` and `dependents`, and `prepare_deleting` for an object that stays
/// for now, all after admission.
pub trait Strategy: Send + Sync {
    fn namespaced(&self) -> bool;

    fn name_rule(&self) -> NameRule {
        NameRule::DnsSubdomain
    }

    /// Whether something random can be appended to `generateName`.
    fn generates_names(&self) -> bool {
        true
    }

    fn metadata_rules(&self) -> metadata::Rules {
        metadata::Rules::new(self.namespaced(), self.name_rule())
    }

    /// Whether `status` is written only through the status subresource.
    fn has_status(&self) -> bool {
        false
    }

    /// Whether `metadata.generation` counts the changes of the desired state.
    fn has_generation(&self) -> bool {
        false
    }

    /// Fills in what the user left out. Also run on what was stored before.
    fn default(&self, _object: &mut Value) {}

    /// Makes a submitted object ready to be created: status emptied, generation 1.
    fn prepare_create(&self, object: &mut Value) {
        if self.has_status() {
            object.set(&["status"], Value::object());
        }
        // Other kinds keep the number that they were given.
        if self.has_generation() {
            object.set(&["metadata", "generation"], 1);
        }
        self.prepare_create_content(object);
    }

    fn prepare_create_content(&self, _object: &mut Value) {}

    /// Takes from `old` what this request may not change. `subresource` is "" for the object
    /// itself.
    fn prepare_update(&self, new: &mut Value, old: &Value, subresource: &str) {
        metadata::carry_over(new, old);
        if self.has_status() && subresource == "status" {
            generic::keep_all_but_status(new, old);
        } else if self.has_status() && subresource.is_empty() {
            generic::keep_field(new, old, &["status"]);
        }
        self.prepare_update_content(new, old, subresource);
        if self.has_generation() && generic::desired_state_changed(new, old) {
            let generation = old.at(&["metadata", "generation"]).and_then(Value::as_i64);
            new.set(&["metadata", "generation"], generation.unwrap_or(0) + 1);
        }
    }

    fn prepare_update_content(&self, _new: &mut Value, _old: &Value, _subresource: &str) {}

    /// Writes the times that the server chooses; called after `prepare_create` and
    /// `prepare_update`, where `old` is what was stored.
    fn stamp(&self, _new: &mut Value, _old: Option<&Value>, _subresource: &str, _now: &str) {}

    /// Writes down who created the object, in the kinds that have a place for it.
    fn record_requester(&self, _object: &mut Value, _requester: &Requester<'_>) {}

    /// Everything that is wrong with a new object, metadata included.
    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = metadata::validate(object, self.metadata_rules());
        errors.extend(self.validate_content(object));
        errors
    }

    fn validate_content(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Like [`Strategy::validate_update`]; adds to `told` what is as wrong as it was before, about
    /// which the client is only warned.
    fn judge_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: &str,
        _told: &mut Vec<String>,
    ) -> Vec<FieldError> {
        self.validate_update(new, old, subresource)
    }

    /// Everything that is wrong with the new state of an object, metadata included.
    fn validate_update(&self, new: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        let anything = metadata::Rules {
            name: NameRule::PathSegment,
            generate_name: true,
            ..self.metadata_rules()
        };
        let mut errors = metadata::validate(new, anything);
        errors.extend(metadata::validate_update(new, old));
        let again = self.metadata_checked_again(subresource);
        for _ in 0..again.whole {
            errors.extend(metadata::validate(new, self.metadata_rules()));
        }
        for _ in 0..again.change {
            errors.extend(metadata::validate_update(new, old));
        }
        errors.extend(self.validate_update_content(new, old, subresource));
        errors
    }

    /// Upstream's checks of single kinds repeat those of the metadata, so that one mistake has
    /// several causes; how often is part of its answers.
    fn metadata_checked_again(&self, _subresource: &str) -> MetadataChecks {
        MetadataChecks::CHANGE
    }

    fn validate_update_content(
        &self,
        new: &Value,
        _old: &Value,
        subresource: &str,
    ) -> Vec<FieldError> {
        match subresource {
            "" => self.validate_content(new),
            _ => Vec::new(),
        }
    }

    /// What the user should know about a request that was granted; asked by [`crate::warnings`] for
    /// kinds that it does not know itself.
    fn warnings(&self, _new: &Value, _old: Option<&Value>, _subresource: &str) -> Vec<String> {
        Vec::new()
    }

    /// The fields a field selector may name, with this object's values.
    fn selectable_fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        generic::metadata_fields(object, self.namespaced())
    }

    /// As [`Strategy::selectable_fields`], those that the definition of a custom kind declares.
    fn added_fields(&self, _object: &Value) -> Vec<(Arc<str>, String)> {
        Vec::new()
    }

    /// One row, in the order of the resource's columns.
    fn cells(&self, object: &Value, _now: jiff::Timestamp) -> Vec<Value> {
        generic::name_and_creation(object)
    }

    /// Whether [`Strategy::row_metadata`] does anything.
    fn hides_metadata(&self) -> bool {
        false
    }

    /// Takes out of the metadata, shown alone, what upstream keeps elsewhere.
    fn row_metadata(&self, _metadata: &mut Value) {}

    /// The grace period of a delete that may ask for one; `None` for kinds that go at once.
    fn graceful_delete(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// What becomes of an object's dependents when a delete does not say.
    fn dependents(&self) -> Dependents {
        Dependents::Deleted
    }

    /// Whether something other than `metadata.finalizers` and the grace period keeps an object that is
    /// being deleted.
    fn has_finalizers_of_its_own(&self, _object: &Value) -> bool {
        false
    }

    /// Changes an object that has been marked as being deleted.
    fn prepare_deleting(&self, _object: &mut Value) {}

    /// Whether upstream checks the preconditions of a delete in the code of this kind, which has
    /// other words for them.
    fn checks_delete_preconditions_itself(&self) -> bool {
        false
    }

    /// Whether a finished delete answers with the object; the others answer with a `Status`.
    fn returns_deleted(&self) -> bool {
        false
    }

    /// What a client should know that deletes an object without naming a propagation policy.
    fn delete_warning(&self) -> Option<&'static str> {
        None
    }

    /// How long an object is kept after it was last written, if not for ever.
    fn time_to_live(&self) -> Option<Duration> {
        None
    }

    /// Whether upstream serves the kind from its watch cache. Without one, limits hold at revision 0
    /// and a malformed resourceVersion has other words.
    fn has_watch_cache(&self) -> bool {
        true
    }

    /// Whether the server itself acts by such objects, so that a write of one is answered only when the
    /// next request sees it.
    fn takes_effect_at_once(&self) -> bool {
        false
    }

    /// Whether the way of a new object through the cluster is recorded hop by hop.
    fn is_traced(&self) -> bool {
        false
    }

    /// What Go shows of an object without anything in it beyond what the schema says: bookmarks are
    /// such objects.
    fn fill_empty(&self, _object: &mut Value) {}

    /// The words for a field that a field selector may not name.
    fn unsupported_field(&self, field: &str, _api_version: &str) -> String {
        format!("field label not supported: {field}")
    }

    /// Whether an update may leave out `metadata.resourceVersion`.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Whether a PUT to a name that does not exist creates it.
    fn allow_create_on_update(&self) -> bool {
        false
    }
}

/// Who sent a request, as an object may record it.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    pub user: &'a str,
    pub uid: &'a str,
    pub groups: &'a [String],
    pub extra: &'a BTreeMap<String, Vec<String>>,
}

/// What a kind's deletion means for those it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    Deleted,
    /// Left alone, as the first clients of the kind expect.
    Orphaned,
    /// It has none: a propagation policy says nothing.
    None,
}

/// How often a kind's own check of an update repeats the common ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataChecks {
    /// Of the metadata as it is.
    pub whole: u8,
    /// Of what the update changed in it.
    pub change: u8,
}

impl MetadataChecks {
    pub const NONE: MetadataChecks = MetadataChecks {
        whole: 0,
        change: 0,
    };
    pub const CHANGE: MetadataChecks = MetadataChecks {
        whole: 0,
        change: 1,
    };
    pub const WHOLE: MetadataChecks = MetadataChecks {
        whole: 1,
        change: 0,
    };
    pub const BOTH: MetadataChecks = MetadataChecks {
        whole: 1,
        change: 1,
    };

    /// `BOTH` for the object itself, `CHANGE` for what lies below.
    pub fn both_of_object(subresource: &str) -> MetadataChecks {
        match subresource {
            "" => MetadataChecks::BOTH,
            _ => MetadataChecks::CHANGE,
        }
    }
}
