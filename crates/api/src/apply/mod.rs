//! Server-side apply and managed fields: who owns which field of an object, what an applied
//! configuration makes of it, and where appliers disagree.
//!
//! Pure: objects in, objects out. The order is upstream's: ownership is settled on the defaulted
//! object, before the strategy and admission touch it.

mod compare;
mod configuration;
mod conflict;
mod element;
mod entries;
mod field_set;
mod last_applied;
mod merge;
mod place;
mod remove;
mod reset;
mod scale;
mod validate;

#[cfg(test)]
mod tests;

use crate::document::Value;
use crate::resource::{Name, Resource};
use crate::schema::{self, Shape};
use crate::status::{Reason, Status};

pub use configuration::{ConfigurationError, Target, put_configuration};
pub use entries::same_but_times;
pub use field_set::FieldSet;
pub use scale::Scaled;

use compare::{Comparison, compare, same};
use conflict::Conflict;
use entries::{Entries, Entry, Operation};
use place::Place;
use reset::Reset;

/// Owns what was there before anybody applied anything.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

/// A write, as far as ownership cares.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// Who writes; "" is told as `unknown`.
    pub manager: &'a str,
    /// What is written: "" for the object itself.
    pub subresource: &'a str,
    /// Now, in RFC 3339 with whole seconds.
    pub time: String,
    kind: Kind<'a>,
}

/// The kind whose fields are owned.
#[derive(Clone, Debug)]
struct Kind<'a> {
    place: Place<'a>,
    /// Of a built-in kind.
    definition: &'static str,
    api_version: String,
    kind: Name,
    reset: Reset,
}

impl<'a> Write<'a> {
    pub fn new(
        resource: &'a Resource,
        subresource: &'a str,
        manager: &'a str,
        time: String,
    ) -> Write<'a> {
        let reset = reset::of(resource, subresource);
        let (definition, api_version) = (resource.definition.name(), resource.api_version());
        let mut kind = Kind::new(definition, api_version, resource.kind.clone(), reset);
        let custom = resource.definition.custom();
        if let Some(schema) = custom.and_then(|custom| custom.schema.get()) {
            kind.place = Place::of_custom(schema);
        }
        Write {
            manager,
            subresource,
            time,
            kind,
        }
    }

    /// A write of a kind that only a subresource takes, such as a TokenRequest.
    pub fn of_kind(
        (definition, api_version, kind): (&'static str, &str, &'static str),
        subresource: &'a str,
        manager: &'a str,
        time: String,
    ) -> Write<'a> {
        Write {
            manager,
            subresource,
            time,
            kind: Kind::new(
                definition,
                api_version.to_string(),
                Name::Borrowed(kind),
                Reset::Except(&[]),
            ),
        }
    }

    fn entry(&self, manager: &str, operation: Operation) -> Entry {
        Entry {
            manager: match manager {
                "" => "unknown".to_string(),
                name => name.to_string(),
            },
            operation,
            api_version: self.kind.api_version.clone(),
            subresource: self.subresource.to_string(),
            time: String::new(),
            fields: FieldSet::default(),
        }
    }
}

impl<'a> Kind<'a> {
    fn new(definition: &'static str, api_version: String, kind: Name, reset: Reset) -> Kind<'a> {
        Kind {
            place: Shape::of(definition).map_or(Place::Deduced, Place::Declared),
            definition,
            api_version,
            kind,
            reset,
        }
    }

    /// How upstream's messages name an object of it.
    fn describe(&self, object: &Value) -> String {
        let (group, version) = crate::resource::split_api_version(&self.api_version);
        let metadata = |name: &str| object.str_at(&["metadata", name]).to_string();
        format!(
            "{}/{}; {group}/{version}, Kind={}",
            metadata("namespace"),
            metadata("name"),
            self.kind
        )
    }

    fn compare(&self, old: &Value, new: &Value) -> Option<Comparison> {
        let found = compare(self.place, Some(old), Some(new))?;
        match found.is_empty() {
            true => Some(found),
            false => Some(found.map(|fields| self.reset.filter(fields))),
        }
    }
}

/// Settles the ownership of an object that is created, updated or patched, and returns its
/// `managedFields`. `live` is what is there now, `None` for a new object; `new` is what shall be
/// there, defaulted.
pub fn update(write: &Write<'_>, live: Option<&Value>, new: &mut Value) -> Option<Value> {
    let asked = new.remove(&MANAGED_FIELDS);
    let owners = owners_of_write(write, live, asked);
    if owners.0.is_empty() && live.is_some() {
        // Somebody switched the tracking of this object off.
        return None;
    }
    let nothing = Value::object();
    let mut owners = track(write, write.manager, live.unwrap_or(&nothing), new, owners)?;
    owners.cap();
    owners.write()
}

/// The owners before the write. A client that does not know about them leaves them out, which
/// changes nothing; an empty list or one empty entry says to forget them.
fn owners_of_write(write: &Write<'_>, live: Option<&Value>, asked: Option<Value>) -> Entries {
    let from_live = || {
        let list = live.and_then(|live| live.at(&MANAGED_FIELDS)).cloned();
        Entries::read(list).unwrap_or_default()
    };
    if !write.subresource.is_empty() {
        return from_live();
    }
    if let Some(Value::Array(list)) = &asked {
        let is_reset = match list.as_slice() {
            // Upstream cannot tell an empty list of a custom resource from none.
            [] => !matches!(write.kind.place, Place::Custom(..)),
            [only] => only.as_object().is_some_and(|entry| entry.is_empty()),
            _ => false,
        };
        if is_reset {
            return Entries::default();
        }
    }
    match Entries::read(asked) {
        Some(owners) if !owners.0.is_empty() => owners,
        _ => from_live(),
    }
}

/// Gives `manager` what differs between the two states, and takes it from all others. `None` when
/// the states cannot be compared: then nobody owns anything any more.
fn track(
    write: &Write<'_>,
    manager: &str,
    live: &Value,
    new: &Value,
    mut owners: Entries,
) -> Option<Entries> {
    let kind = &write.kind;
    let Comparison {
        added,
        modified,
        removed,
    } = kind.compare(live, new)?;
    let mut taken = added.union(modified);
    for owner in &mut owners.0 {
        let fields = std::mem::take(&mut owner.fields);
        let fields = remove::reconcile(kind.place, fields);
        owner.fields = fields.difference(&taken).difference(&removed);
    }
    owners.0.retain(|owner| !owner.fields.is_empty());
    taken = stripped(taken);
    if !taken.is_empty() {
        let mut own = write.entry(manager, Operation::Update);
        own.time.clone_from(&write.time);
        own.fields = match owners.take(&own) {
            Some(before) => taken.union(before.fields),
            None => taken,
        };
        owners.put(own);
    }
    Some(owners)
}

/// Fields that identify the object or that the server alone sets have no owner.
fn stripped(fields: FieldSet) -> FieldSet {
    static STRIPPED: std::sync::LazyLock<FieldSet> = std::sync::LazyLock::new(|| {
        let mut set = FieldSet::default();
        for name in ["apiVersion", "kind", "metadata"] {
            set.insert(&[element::field(name)]);
        }
        for name in [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
        ] {
            set.insert(&[element::field("metadata"), element::field(name)]);
        }
        set
    });
    fields.difference(&STRIPPED)
}

/// What an applied configuration makes of `live` (`None` where there is nothing yet): the object,
/// not yet defaulted, with its `managedFields`. Conflicts with other owners are an error unless
/// `force` takes the fields from them.
pub fn apply(
    write: &Write<'_>,
    live: Option<&Value>,
    applied: &Value,
    force: bool,
) -> Result<Value, Status> {
    check_kind(&write.kind, applied)?;
    let mut nothing = Value::object();
    if let (None, Some(definition)) = (live, schema::table().definition(write.kind.definition)) {
        schema::normalise(definition, &mut nothing);
    }
    let mut before = live.unwrap_or(&nothing).clone();
    let list = before.remove(&MANAGED_FIELDS);
    let Some(mut owners) = Entries::read(list) else {
        return Err(unknown("failed to decode managed fields"));
    };
    if owners.0.is_empty() && live.is_some() {
        let empty = Value::object();
        owners = track(write, BEFORE_FIRST_APPLY, &empty, &before, owners).unwrap_or_default();
        owners.cap();
    }
    if applied.has(&MANAGED_FIELDS) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if let Some(problems) = validate::problems(write.kind.place, applied) {
        return Err(unknown(format!(
            "failed to create typed patch object ({}): {problems}",
            write.kind.describe(applied)
        )));
    }
    let result = put_in(write, &before, applied, owners.clone(), force);
    let result = match result {
        Err(conflicts) if write.manager == last_applied::MANAGER => {
            match last_applied::left(&write.kind, &before, conflicts) {
                left if left.is_empty() => put_in(write, &before, applied, owners, true),
                left => Err(left),
            }
        }
        other => other,
    };
    let (mut object, owners) = result.map_err(conflict::answer)?;
    if write.manager == last_applied::MANAGER {
        last_applied::refresh(&mut object, applied);
    }
    if let Some(list) = owners.write() {
        object.set(&MANAGED_FIELDS, list);
    }
    Ok(object)
}

fn check_kind(kind: &Kind<'_>, applied: &Value) -> Result<(), Status> {
    let (api_version, given) = (applied.str_at(&["apiVersion"]), applied.str_at(&["kind"]));
    if (api_version, given) == (kind.api_version.as_str(), &*kind.kind) {
        return Ok(());
    }
    let (group, version) = crate::resource::split_api_version(api_version);
    Err(Status::bad_request(format!(
        "invalid object type: {group}/{version}, Kind={given}"
    )))
}

/// Merges, removes what the applier gave up, and settles the ownership.
fn put_in(
    write: &Write<'_>,
    live: &Value,
    applied: &Value,
    mut owners: Entries,
    force: bool,
) -> Result<(Value, Entries), Vec<Conflict>> {
    let kind = &write.kind;
    for owner in &mut owners.0 {
        let fields = std::mem::take(&mut owner.fields);
        owner.fields = remove::reconcile(kind.place, fields);
    }
    let merged = merge::merge(kind.place, Some(live), Some(applied)).unwrap_or_default();
    let mut own = write.entry(write.manager, Operation::Apply);
    let before = owners.take(&own);
    own.fields = kind.reset.filter(remove::all_fields(kind.place, applied));
    let given_up = before.as_ref().map(|entry| &entry.fields);
    let new = match given_up.filter(|fields| !fields.is_empty()) {
        Some(last) => prune(kind.place, &merged, last, &own.fields, &owners),
        None => merged,
    };
    let Comparison {
        added,
        modified,
        removed,
    } = kind.compare(live, &new).unwrap_or_default();
    let changed = added.union(modified);
    let conflicts: Vec<Conflict> = owners
        .0
        .iter()
        .flat_map(|owner| Conflict::between(owner, &changed))
        .collect();
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for owner in &mut owners.0 {
        let fields = std::mem::take(&mut owner.fields);
        owner.fields = fields.difference(&changed).difference(&removed);
    }
    owners.0.retain(|owner| !owner.fields.is_empty());
    // What changes nothing keeps its time.
    own.time = match same(live, &new) {
        false => write.time.clone(),
        true => before.map(|entry| entry.time).unwrap_or_default(),
    };
    own.fields = stripped(own.fields);
    if !own.fields.is_empty() {
        owners.put(own);
    }
    Ok((new, owners))
}

/// Removes what the applier owned by its last configuration (`last`), does not apply any more and
/// nobody else owns.
fn prune(
    place: Place<'_>,
    merged: &Value,
    last: &FieldSet,
    applied: &FieldSet,
    others: &Entries,
) -> Value {
    let named = |fields: &FieldSet| remove::with_named_fields(place, fields);
    let last = named(last);
    let pruned = remove::remove(place, merged, &last);
    let in_merged = named(&remove::all_fields(place, merged));
    let others = others.0.iter().map(|owner| owner.fields.clone());
    let owned = FieldSet::union_of(std::iter::once(applied.clone()).chain(others).collect());
    // Put back what somebody owns, also this applier by its new configuration.
    let in_pruned = named(&remove::all_fields(place, &pruned));
    let gone = in_merged
        .clone()
        .difference(&in_pruned.union(named(&owned)));
    let pruned = remove::remove(place, merged, &gone);
    // Put back what the applier did not own: it went only because something around it did.
    let in_pruned = named(&remove::all_fields(place, &pruned));
    let gone = in_merged.difference(&in_pruned).intersection(&last);
    remove::remove(place, merged, &gone)
}

/// Upstream hands these on without a reason of their own.
fn unknown(message: impl Into<String>) -> Status {
    Status::new(Reason::Unknown, message)
}
