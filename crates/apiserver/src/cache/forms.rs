//! Forms of an object other than its stored JSON: made when the first reader asks, shared by all
//! later ones, and given up oldest first when all of them together outgrow their budget.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use api::Resource;
use api::Status;
use api::conversion;
use api::protobuf::Message;
use api::schema::{Definition, table};
use bytes::Bytes;
use parking_lot::Mutex;

use super::cached_object::{CachedObject, Outline, Shape, Slot, Version};

/// What all kept forms may take together.
const BUDGET: usize = 32 * 1024 * 1024;
/// What keeping one costs in addition to its bytes.
const OVERHEAD: usize = 256;

const PARTIAL: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";

pub(crate) struct Forms {
    budget: usize,
    /// Never taken with an object's own lock held.
    kept: Mutex<Kept>,
    messages: AtomicU64,
    versions: AtomicU64,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    /// In the order they were made. What is gone counts until its turn comes.
    order: VecDeque<(Weak<Outline>, Slot, usize)>,
}

impl Default for Forms {
    fn default() -> Forms {
        Forms::within(BUDGET)
    }
}

impl Forms {
    fn within(budget: usize) -> Forms {
        Forms {
            budget,
            kept: Mutex::default(),
            messages: AtomicU64::new(0),
            versions: AtomicU64::new(0),
        }
    }

    /// How many protobuf messages and how many other versions of objects were made.
    pub fn made(&self) -> (u64, u64) {
        (
            self.messages.load(Ordering::Relaxed),
            self.versions.load(Ordering::Relaxed),
        )
    }

    /// The message of an entry. Those who ask while it is being made wait for it.
    pub fn message(
        &self,
        resource: &Resource,
        entry: &Arc<CachedObject>,
        shape: Shape,
    ) -> Result<Arc<Message>, Status> {
        if !entry.is_shared {
            self.messages.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::new(encode(resource, entry, shape)?));
        }
        let mut made = entry.outline.forms.lock();
        if let Some(message) = &made.messages[shape as usize] {
            return Ok(message.clone());
        }
        self.messages.fetch_add(1, Ordering::Relaxed);
        let message = Arc::new(encode(resource, entry, shape)?);
        let size = message.size() + OVERHEAD;
        if size > self.budget {
            return Ok(message);
        }
        made.messages[shape as usize] = Some(message.clone());
        drop(made);
        self.keep(&entry.outline, Slot::Message(shape), size);
        Ok(message)
    }

    /// The entry as `resource` shows it: itself, unless that is not the version it is stored in.
    pub fn shown(
        &self,
        resource: &Arc<Resource>,
        entry: &Arc<CachedObject>,
    ) -> Result<Arc<CachedObject>, Status> {
        let is_shown = match resource.is_custom() {
            true => entry.names_version(&resource.api_version()),
            false => resource.is_stored_as_itself(),
        };
        if is_shown {
            return Ok(entry.clone());
        }
        let shown = |version: &Version| {
            let (bytes, outline) = (version.bytes.clone(), version.outline.clone());
            let mut shown = CachedObject::with_outline(&entry.key, bytes, entry.revision, outline);
            shown.is_shared = entry.is_shared;
            Arc::new(shown)
        };
        let mut made = entry.outline.forms.lock();
        if let Some(version) = &made.version
            && version.version == resource.version
        {
            return Ok(shown(version));
        }
        self.versions.fetch_add(1, Ordering::Relaxed);
        let custom = resource.definition.custom();
        if custom.is_some_and(|custom| custom.kind.is_converted_by_webhook) {
            // Whoever shows these asks the hook first.
            return Err(Status::internal(format_args!(
                "{} {} is not converted",
                resource.qualified(),
                entry.key
            )));
        }
        let object = match resource.is_custom() {
            true => conversion::custom::renamed(resource, entry.object()?),
            false => conversion::from_storage(resource, entry.object()?),
        };
        let bytes = Bytes::from(object.to_json());
        let outline = Arc::new(Outline::of(resource, &entry.key, &bytes, &object)?);
        let size = bytes.len() + OVERHEAD;
        let version = Version {
            version: resource.version.clone(),
            bytes,
            outline,
        };
        let entry_shown = shown(&version);
        if entry.is_shared && size <= self.budget {
            made.version = Some(version);
            drop(made);
            self.keep(&entry.outline, Slot::Version, size);
        }
        Ok(entry_shown)
    }

    /// Counts a new form, and gives up what must go for it.
    fn keep(&self, outline: &Arc<Outline>, slot: Slot, size: usize) {
        let mut kept = self.kept.lock();
        kept.bytes += size;
        kept.order.push_back((Arc::downgrade(outline), slot, size));
        let mut surplus = Vec::new();
        while kept.bytes > self.budget
            && let Some((oldest, slot, size)) = kept.order.pop_front()
        {
            kept.bytes -= size;
            surplus.extend(oldest.upgrade().map(|outline| (outline, slot)));
        }
        drop(kept);
        for (outline, slot) in surplus {
            outline.forms.lock().forget(slot);
        }
    }
}

fn encode(resource: &Resource, entry: &CachedObject, shape: Shape) -> Result<Message, Status> {
    let object = entry.object()?;
    Message::of(definition(resource, shape)?, &object).map_err(Status::internal)
}

fn definition(resource: &Resource, shape: Shape) -> Result<&'static Definition, Status> {
    let name = match shape {
        Shape::Object => resource.definition.name(),
        Shape::Metadata => PARTIAL,
    };
    table()
        .definition(name)
        .ok_or_else(|| Status::internal(format_args!("no schema for {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Arc<CachedObject> {
        let resource = api::catalogue::built_in()
            .find("", "v1", "configmaps")
            .unwrap();
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"a","uid":"u"}}}}"#
        );
        let key = format!("a/{name}");
        CachedObject::decode(resource, &key, json.into(), 7)
            .unwrap()
            .into_shared()
    }

    #[test]
    fn a_form_is_made_once_and_given_up_when_the_budget_is_spent() {
        let resource = api::catalogue::built_in()
            .find("", "v1", "configmaps")
            .unwrap();
        let (one, two) = (entry("one"), entry("two"));
        let size = encode(resource, &one, Shape::Object).unwrap().size() + OVERHEAD;
        let forms = Forms::within(size);
        let message = |entry| forms.message(resource, entry, Shape::Object).unwrap();
        let first = message(&one);
        assert!(Arc::ptr_eq(&first, &message(&one)));
        let second = message(&two);
        assert!(Arc::ptr_eq(&second, &message(&two)));
        assert!(
            one.outline.forms.lock().messages[0].is_none(),
            "the older one made room for the newer"
        );
        assert_eq!(forms.kept.lock().order.len(), 1);
        assert_eq!(*message(&one), *first);
    }

    #[test]
    fn another_version_is_made_once() {
        let stored = api::catalogue::built_in().find("", "v1", "events").unwrap();
        let events = api::catalogue::built_in()
            .find("events.k8s.io", "v1", "events")
            .unwrap();
        let json = r#"{"apiVersion":"v1","kind":"Event","message":"m","metadata":{"name":"e","namespace":"a","uid":"u"}}"#;
        let entry = CachedObject::decode(stored, "a/e", json.into(), 7)
            .unwrap()
            .into_shared();
        let forms = Forms::default();
        let shown = forms.shown(events, &entry).unwrap();
        let object = shown.object_with_version().unwrap();
        assert_eq!(object.str_at(&["apiVersion"]), "events.k8s.io/v1");
        assert_eq!(object.str_at(&["note"]), "m");
        assert_eq!(object.str_at(&["metadata", "resourceVersion"]), "7");
        let again = forms.shown(events, &entry).unwrap();
        assert_eq!(again.bytes.as_ptr(), shown.bytes.as_ptr());
        assert!(Arc::ptr_eq(&forms.shown(stored, &entry).unwrap(), &entry));
    }

    #[test]
    fn metadata_alone_is_a_form_of_its_own() {
        let resource = api::catalogue::built_in()
            .find("", "v1", "configmaps")
            .unwrap();
        let forms = Forms::default();
        let one = entry("one");
        let whole = forms.message(resource, &one, Shape::Object).unwrap();
        let metadata = forms.message(resource, &one, Shape::Metadata).unwrap();
        assert!(whole.length("7") >= metadata.length("7"));
        assert_eq!(forms.kept.lock().order.len(), 2);
    }
}
