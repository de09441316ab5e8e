//! Records which persistent volume claims are mounted on this node and where, for metrics.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

/// A claim that at least one pod of this node has mounted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    pub namespace: String,
    pub name: String,
}

/// Cheap to clone.
#[derive(Clone, Default)]
pub struct Claims {
    /// Where each is mounted, by pod and claim.
    mounted: Arc<Mutex<BTreeMap<(String, Claim), PathBuf>>>,
}

impl Claims {
    pub fn mounted(&self, pod_uid: &str, namespace: &str, name: &str, path: &Path) {
        let claim = Claim {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let mut mounted = self.mounted.lock();
        mounted.insert((pod_uid.to_owned(), claim), path.to_owned());
    }

    /// The pod is gone.
    pub fn forget(&self, pod_uid: &str) {
        self.mounted.lock().retain(|(uid, _), _| uid != pod_uid);
    }

    /// Each claim once, however many pods have it.
    pub fn list(&self) -> BTreeMap<Claim, PathBuf> {
        let mounted = self.mounted.lock();
        let each = mounted.iter();
        each.map(|((_, claim), path)| (claim.clone(), path.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_listed_while_a_pod_has_it() {
        let claims = Claims::default();
        for pod in ["a", "b"] {
            claims.mounted(pod, "n", "data", Path::new("/x"));
        }
        assert_eq!(claims.list().len(), 1);
        claims.forget("a");
        assert_eq!(claims.list().len(), 1);
        claims.forget("b");
        assert!(claims.list().is_empty());
    }
}
