//! What a writer knows about an object it is putting, kept until the feed meets the same bytes
//! again, so that a write is decoded once. A hint only: the feed decodes what it does not find.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::cached_object::{CachedObject, Outline};

/// More than are ever under way at once. A store that hands out copies of what was put would only
/// ever fill this up, so beyond it everything is forgotten.
const MOST: usize = 4096;

/// Outlines by the address of the bytes they belong to. The bytes are held, so that no others can
/// come to lie there.
#[derive(Default)]
pub(crate) struct Drafts(Mutex<BTreeMap<usize, (Bytes, Arc<Outline>)>>);

impl Drafts {
    fn offer(&self, bytes: &Bytes, outline: &Arc<Outline>) {
        let mut drafts = self.0.lock();
        if drafts.len() >= MOST {
            drafts.clear();
        }
        let draft = (bytes.clone(), outline.clone());
        drafts.insert(bytes.as_ptr() as usize, draft);
    }

    /// The outline of exactly these bytes, if their writer left one.
    pub fn claim(&self, bytes: &Bytes) -> Option<Arc<Outline>> {
        let mut drafts = self.0.lock();
        let (offered, outline) = drafts.remove(&(bytes.as_ptr() as usize))?;
        (offered.len() == bytes.len()).then_some(outline)
    }

    /// For when the feed has lost its place and will not meet those bytes.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

/// An object on its way into the store. Withdrawn when dropped before it has got there.
pub(crate) struct Draft<'a> {
    drafts: &'a Drafts,
    key: String,
    bytes: Bytes,
    outline: Arc<Outline>,
    committed: bool,
}

impl<'a> Draft<'a> {
    pub fn new(drafts: &'a Drafts, key: String, bytes: Bytes, outline: Outline) -> Draft<'a> {
        let outline = Arc::new(outline);
        drafts.offer(&bytes, &outline);
        Draft {
            drafts,
            key,
            bytes,
            outline,
            committed: false,
        }
    }

    /// The object as it was stored.
    pub fn committed(mut self, revision: u64) -> Arc<CachedObject> {
        self.committed = true;
        let (bytes, outline) = (self.bytes.clone(), self.outline.clone());
        Arc::new(CachedObject::with_outline(
            &self.key, bytes, revision, outline,
        ))
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.drafts.claim(&self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Value;

    fn draft<'a>(drafts: &'a Drafts, bytes: &Bytes) -> Draft<'a> {
        let resource = api::catalogue::built_in()
            .find("", "v1", "configmaps")
            .expect("a kind");
        let object = Value::from_json(bytes).expect("an object");
        let outline = Outline::of(resource, "a", bytes, &object).expect("an outline");
        Draft::new(drafts, "default/a".into(), bytes.clone(), outline)
    }

    #[test]
    fn a_draft_is_found_by_its_bytes_and_withdrawn_unless_committed() {
        let text = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"u"}}"#;
        let (bytes, copy) = (Bytes::from(text), Bytes::from(text.to_string()));
        let drafts = Drafts::default();
        let entry = draft(&drafts, &bytes).committed(7);
        assert_eq!((entry.revision, entry.name()), (7, "a"));
        assert!(
            drafts.claim(&copy).is_none(),
            "equal bytes are not the same"
        );
        assert!(drafts.claim(&bytes.clone()).is_some());
        assert!(drafts.claim(&bytes).is_none(), "only once");

        drop(draft(&drafts, &bytes));
        assert!(drafts.claim(&bytes).is_none());
    }
}
