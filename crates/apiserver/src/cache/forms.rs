//! Forms of an object other than its stored JSON: made when the first reader asks, shared by all
//! later ones, and given up oldest first when all of them together outgrow their budget.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use api::Status;
use api::catalogue::Resource;
use api::protobuf::Message;
use api::schema::{Definition, table};
use parking_lot::Mutex;

use super::entry::{Entry, Outline};

/// What all kept forms may take together.
const BUDGET: usize = 32 * 1024 * 1024;
/// What keeping one costs beside its bytes.
const OVERHEAD: usize = 256;

const PARTIAL: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.PartialObjectMetadata";

/// Which protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Object = 0,
    /// `PartialObjectMetadata`.
    Metadata = 1,
}

/// An object's forms, by [`Shape`].
pub(super) type Made = Mutex<[Option<Arc<Message>>; 2]>;

pub(crate) struct Forms {
    budget: usize,
    /// Never taken with an object's own lock held.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    bytes: usize,
    /// In the order they were made. What is gone counts until its turn comes.
    order: VecDeque<(Weak<Outline>, Shape, usize)>,
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
        }
    }

    /// The message of an entry. Those who ask while it is being made wait for it.
    pub fn message(
        &self,
        resource: &Resource,
        entry: &Arc<Entry>,
        shape: Shape,
    ) -> Result<Arc<Message>, Status> {
        if !entry.is_shared {
            return Ok(Arc::new(encode(resource, entry, shape)?));
        }
        let mut made = entry.outline.forms.lock();
        if let Some(message) = &made[shape as usize] {
            return Ok(message.clone());
        }
        let message = Arc::new(encode(resource, entry, shape)?);
        let size = message.size() + OVERHEAD;
        if size > self.budget {
            return Ok(message);
        }
        made[shape as usize] = Some(message.clone());
        drop(made);
        for (outline, shape) in self.keep(&entry.outline, shape, size) {
            outline.forms.lock()[shape as usize] = None;
        }
        Ok(message)
    }

    /// Counts a new form; returns what must go for it.
    fn keep(
        &self,
        outline: &Arc<Outline>,
        shape: Shape,
        size: usize,
    ) -> Vec<(Arc<Outline>, Shape)> {
        let mut kept = self.kept.lock();
        kept.bytes += size;
        kept.order.push_back((Arc::downgrade(outline), shape, size));
        let mut surplus = Vec::new();
        while kept.bytes > self.budget
            && let Some((oldest, shape, size)) = kept.order.pop_front()
        {
            kept.bytes -= size;
            surplus.extend(oldest.upgrade().map(|outline| (outline, shape)));
        }
        surplus
    }
}

fn encode(resource: &Resource, entry: &Entry, shape: Shape) -> Result<Message, Status> {
    let object = entry.object()?;
    Message::of(definition(resource, shape)?, &object).map_err(Status::internal)
}

fn definition(resource: &Resource, shape: Shape) -> Result<&'static Definition, Status> {
    let name = match shape {
        Shape::Object => resource.definition,
        Shape::Metadata => PARTIAL,
    };
    table()
        .definition(name)
        .ok_or_else(|| Status::internal(format_args!("no schema for {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Arc<Entry> {
        let resource = api::catalogue::find("", "v1", "configmaps").unwrap();
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"a","uid":"u"}}}}"#
        );
        let key = format!("a/{name}");
        Entry::decode(resource, &key, json.into(), 7)
            .unwrap()
            .into_shared()
    }

    #[test]
    fn a_form_is_made_once_and_given_up_when_the_budget_is_spent() {
        let resource = api::catalogue::find("", "v1", "configmaps").unwrap();
        let (one, two) = (entry("one"), entry("two"));
        let size = encode(resource, &one, Shape::Object).unwrap().size() + OVERHEAD;
        let forms = Forms::within(size);
        let message = |entry| forms.message(resource, entry, Shape::Object).unwrap();
        let first = message(&one);
        assert!(Arc::ptr_eq(&first, &message(&one)));
        let second = message(&two);
        assert!(Arc::ptr_eq(&second, &message(&two)));
        assert!(
            one.outline.forms.lock()[0].is_none(),
            "the older one made room for the newer"
        );
        assert_eq!(forms.kept.lock().order.len(), 1);
        assert_eq!(*message(&one), *first);
    }

    #[test]
    fn metadata_alone_is_a_form_of_its_own() {
        let resource = api::catalogue::find("", "v1", "configmaps").unwrap();
        let forms = Forms::default();
        let one = entry("one");
        let whole = forms.message(resource, &one, Shape::Object).unwrap();
        let metadata = forms.message(resource, &one, Shape::Metadata).unwrap();
        assert!(whole.length("7") >= metadata.length("7"));
        assert_eq!(forms.kept.lock().order.len(), 2);
    }
}
