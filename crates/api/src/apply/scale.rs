//! Ownership through the scale subresource: whoever sets the replicas of a Scale owns those of the
//! scaled object.

use std::collections::BTreeMap;

use super::entries::{Entries, Entry, Owner};
use super::field_set::FieldSet;
use super::reset::Reset;
use super::{Kind, MANAGED_FIELDS, Write, element};
use crate::document::Value;
use crate::resource::Resource;
use crate::status::Status;

const DEFINITION: &str = "io.k8s.api.autoscaling.v1.Scale";
const API_VERSION: &str = "autoscaling/v1";

/// An object that is scaled: the replicas stand at the same place as in a Scale.
pub struct Scaled<'a> {
    write: Write<'a>,
    api_version: String,
    owners: Entries,
}

impl<'a> Scaled<'a> {
    /// A write to the scale of `object`.
    pub fn new(resource: &Resource, object: &Value, manager: &'a str, time: String) -> Scaled<'a> {
        let list = object.at(&MANAGED_FIELDS).cloned();
        Scaled {
            write: Write {
                manager,
                subresource: "scale",
                time,
                kind: Kind::new(
                    DEFINITION,
                    API_VERSION.to_string(),
                    "Scale".into(),
                    Reset::Except(&[]),
                ),
            },
            api_version: resource.api_version(),
            owners: Entries::read(list).unwrap_or_default(),
        }
    }

    /// Settles the ownership of a Scale that is updated or patched; returns the `managedFields` of
    /// the object.
    pub fn update(self, live: &Value, new: &mut Value) -> Option<Value> {
        let list = super::update(&self.write, Some(&self.with_owners(live)), new);
        self.of_object(list)
    }

    /// Applies a configuration to the Scale; returns it and the `managedFields` of the object.
    pub fn apply(
        self,
        live: &Value,
        applied: &Value,
        force: bool,
    ) -> Result<(Value, Option<Value>), Status> {
        let live = self.with_owners(live);
        let mut scale = super::apply(&self.write, Some(&live), applied, force)?;
        let list = scale.remove(&MANAGED_FIELDS);
        Ok((scale, self.of_object(list)))
    }

    /// The Scale with those owners of the object that own its replicas.
    fn with_owners(&self, scale: &Value) -> Value {
        let mut scale = scale.clone();
        let owners = self.owners.0.iter().filter(|owner| owns_replicas(owner));
        let owners = owners.map(|owner| Entry {
            api_version: API_VERSION.to_string(),
            fields: replicas(),
            ..owner.clone()
        });
        match Entries(owners.collect()).write() {
            Some(list) => scale.set(&MANAGED_FIELDS, list),
            None => drop(scale.remove(&MANAGED_FIELDS)),
        }
        scale
    }

    /// The owners of the object, after the replicas changed hands as `list` of the Scale says.
    fn of_object(self, list: Option<Value>) -> Option<Value> {
        let scale_owners = Entries::read(list).unwrap_or_default();
        let mut scale_owners: BTreeMap<Owner, Entry> = scale_owners
            .0
            .into_iter()
            .map(|entry| (entry.owner(), entry))
            .collect();
        let api_version = self.api_version.clone();
        let mut owners = Entries::default();
        for mut owner in self.owners.0 {
            if owns_replicas(&owner) {
                let in_scale = Entry {
                    api_version: API_VERSION.to_string(),
                    ..owner.clone()
                };
                if scale_owners.remove(&in_scale.owner()).is_none() {
                    owner.fields = owner.fields.difference(&replicas());
                }
            }
            if !owner.fields.is_empty() {
                owners.0.push(owner);
            }
        }
        for owner in scale_owners.into_values().filter(owns_replicas) {
            owners.put(Entry {
                api_version: api_version.clone(),
                // Upstream does not carry the time over either.
                time: String::new(),
                fields: replicas(),
                ..owner
            });
        }
        owners.write()
    }
}

fn replicas() -> FieldSet {
    let mut set = FieldSet::default();
    set.insert(&replicas_path());
    set
}

fn replicas_path() -> [String; 2] {
    [element::field("spec"), element::field("replicas")]
}

fn owns_replicas(owner: &Entry) -> bool {
    owner.fields.contains(&replicas_path())
}
