//! Some documents of group versions, by their entity tags: as many as there is room for, the ones that
//! were made first are forgotten first. Most clients keep documents themselves and ask once.

use std::collections::VecDeque;

use bytes::Bytes;

/// What all of them may take together. The document of the core group, the largest, has room.
const BUDGET: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Kept {
    documents: VecDeque<(String, Bytes)>,
    bytes: usize,
}

impl Kept {
    pub fn get(&self, etag: &str) -> Option<Bytes> {
        let mut known = self.documents.iter().filter(|(known, _)| known == etag);
        known.next().map(|(_, body)| body.clone())
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    pub fn keep(&mut self, etag: &str, body: &Bytes) {
        if body.len() > BUDGET || self.get(etag).is_some() {
            return;
        }
        self.bytes += body.len();
        self.documents.push_back((etag.to_string(), body.clone()));
        while self.bytes > BUDGET
            && let Some((_, oldest)) = self.documents.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_documents_take_no_more_than_their_budget() {
        let mut kept = Kept::default();
        let body = Bytes::from(vec![0; BUDGET / 3]);
        for etag in ["a", "b", "b", "c"] {
            kept.keep(etag, &body);
        }
        assert!(kept.get("a").is_some() && kept.get("c").is_some());
        kept.keep("d", &body);
        assert!(kept.get("a").is_none() && kept.get("d").is_some());
        kept.keep("e", &Bytes::from(vec![0; BUDGET + 1]));
        assert!(kept.get("e").is_none() && kept.get("d").is_some());
    }
}
