//! The admission policies and their bindings, read from the watch cache and made ready to be matched
//! and evaluated. A policy is compiled again only when what it says changed; a request that no policy
//! concerns costs one look into a map. Asking them is `admission::policies`'.

mod match_resources;
mod metrics;
mod policy;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::Value;
use api::expressions::mutation::MutatingPolicy;
use api::expressions::policy::ValidatingPolicy;
use parking_lot::RwLock;

use crate::admission_hooks::{GROUP, HookMetrics, Phase};
use crate::cache::{Cache, CachedObject, ResourceCache};

pub(crate) use match_resources::{MatchResources, Rules};
pub(crate) use metrics::{Checked, ErrorType, PolicyMetrics};
pub(crate) use policy::{Action, Binding, Named, ParamKind, ParamRef, Policy};

/// All admission policies.
pub(crate) struct AdmissionPolicies {
    pub validating: PolicySet<ValidatingPolicy>,
    pub mutating: PolicySet<MutatingPolicy>,
}

impl AdmissionPolicies {
    pub fn new(cache: &Arc<Cache>) -> AdmissionPolicies {
        let metrics = PolicyMetrics::new("validating", "Validation");
        AdmissionPolicies {
            validating: PolicySet::new(
                cache,
                [
                    "validatingadmissionpolicies",
                    "validatingadmissionpolicybindings",
                ],
                ValidatingPolicy::of_document,
                metrics,
                Phase::Validating,
            ),
            mutating: PolicySet::new(
                cache,
                [
                    "mutatingadmissionpolicies",
                    "mutatingadmissionpolicybindings",
                ],
                MutatingPolicy::of_document,
                PolicyMetrics::new("mutating", "Mutation"),
                Phase::Mutating,
            ),
        }
    }
}

/// The policies of one kind with their bindings. `E` is what a policy says, compiled.
pub(crate) struct PolicySet<E> {
    pub metrics: PolicyMetrics,
    phase: Phase,
    cache: Arc<Cache>,
    /// The built-in kinds of policies and of bindings, which are never removed. `None` where they are
    /// not served.
    kinds: Option<[Arc<ResourceCache>; 2]>,
    compile: fn(&Value) -> E,
    /// Replaced as a whole; held for moments only, or while policies that changed are compiled, and
    /// never across an await.
    compiled: RwLock<Arc<Compiled<E>>>,
}

/// The policies as they were at one moment.
pub(crate) struct Compiled<E> {
    /// The revisions of both kinds that this was made from.
    versions: [u64; 2],
    policies: Kept<Policy<E>>,
    bindings: Kept<Binding>,
    /// In the order in which they are asked: by name. Only policies that are bound.
    bound: Vec<Bound<E>>,
    /// The policies whose rules name a resource, together with those whose rules name all.
    by_plural: HashMap<String, Vec<usize>>,
    /// The policies whose rules name all resources.
    of_all: Vec<usize>,
}

/// By name, with the revision.
type Kept<T> = BTreeMap<Arc<str>, (u64, Arc<T>)>;

/// A policy with its bindings, which are in the order of their names.
pub(crate) struct Bound<E> {
    pub policy: Arc<Policy<E>>,
    pub bindings: Vec<Arc<Binding>>,
}

impl<E> Default for Compiled<E> {
    fn default() -> Self {
        Compiled {
            versions: [0; 2],
            policies: BTreeMap::new(),
            bindings: BTreeMap::new(),
            bound: Vec::new(),
            by_plural: HashMap::new(),
            of_all: Vec::new(),
        }
    }
}

impl<E> PolicySet<E> {
    pub fn new(
        cache: &Arc<Cache>,
        [policies, bindings]: [&str; 2],
        compile: fn(&Value) -> E,
        metrics: PolicyMetrics,
        phase: Phase,
    ) -> PolicySet<E> {
        let kinds = cache.find(GROUP, policies).zip(cache.find(GROUP, bindings));
        PolicySet {
            metrics,
            phase,
            cache: cache.clone(),
            kinds: kinds.map(|(policies, bindings)| [policies, bindings]),
            compile,
            compiled: RwLock::default(),
        }
    }

    /// The policies as they are now. What was counted about others is forgotten.
    pub fn current(&self, hooks: &HookMetrics) -> Arc<Compiled<E>> {
        let versions = match &self.kinds {
            Some(kinds) => kinds.each_ref().map(|kind| kind.changed()),
            None => [0; 2],
        };
        {
            let compiled = self.compiled.read();
            if compiled.versions == versions {
                return compiled.clone();
            }
        }
        let mut compiled = self.compiled.write();
        // Another request may have been faster.
        if compiled.versions != versions {
            *compiled = Arc::new(self.compile(versions, &compiled));
            let names = compiled.names();
            self.metrics.keep(&names);
            hooks.keep_policies(self.phase, |name| names.contains(name));
        }
        compiled.clone()
    }

    fn compile(&self, versions: [u64; 2], before: &Compiled<E>) -> Compiled<E> {
        let Some([policies, bindings]) = &self.kinds else {
            return Compiled {
                versions,
                ..Compiled::default()
            };
        };
        let mut compiled = Compiled {
            versions,
            policies: self.read(
                policies,
                &before.policies,
                |document, before| match before {
                    // What changed is not what the policy says.
                    Some(before) if before.is_same(document) => before.clone(),
                    _ => Arc::new(Policy::of_document(document, self.compile)),
                },
            ),
            bindings: self.read(bindings, &before.bindings, |document, _| {
                Arc::new(Binding::of_document(document))
            }),
            ..Compiled::default()
        };
        compiled.bind();
        compiled.index();
        compiled
    }

    /// The objects of a kind, where those that did not change are kept.
    fn read<T>(
        &self,
        kind: &ResourceCache,
        before: &Kept<T>,
        make: impl Fn(&Value, Option<&Arc<T>>) -> Arc<T>,
    ) -> Kept<T> {
        let snapshot = self.cache.snapshot(kind);
        let entries = snapshot
            .iter()
            .filter_map(|(key, entry): (_, &Arc<CachedObject>)| {
                let known = before.get(key);
                if let Some(kept) = known.filter(|(revision, _)| *revision == entry.revision) {
                    return Some((key.clone(), kept.clone()));
                }
                match entry.object() {
                    Ok(document) => {
                        let made = make(&document, known.map(|(_, known)| known));
                        Some((key.clone(), (entry.revision, made)))
                    }
                    Err(problem) => {
                        tracing::warn!(%problem, %key, "an admission policy cannot be read");
                        None
                    }
                }
            });
        entries.collect()
    }
}

impl<E> Compiled<E> {
    /// The policies that may concern a resource of this plural, in the order in which they are asked:
    /// the position of each, by which it is known in this set.
    pub fn concerning(&self, plural: &str) -> &[usize] {
        self.by_plural.get(plural).unwrap_or(&self.of_all)
    }

    pub fn bound(&self, position: usize) -> &Bound<E> {
        &self.bound[position]
    }

    fn names(&self) -> BTreeSet<&str> {
        let bound = self.bound.iter();
        bound.map(|bound| bound.policy.name.as_str()).collect()
    }

    fn bind(&mut self) {
        let mut of_policies: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
        for (_, binding) in self.bindings.values() {
            let of_policy = of_policies.entry(&binding.policy).or_default();
            of_policy.push(binding.clone());
        }
        let policies = &self.policies;
        let bound = of_policies.into_iter().filter_map(|(name, bindings)| {
            let (_, policy) = policies.get(name)?;
            let policy = policy.clone();
            Some(Bound { policy, bindings })
        });
        self.bound = bound.collect();
    }

    fn index(&mut self) {
        let mut by_plural: HashMap<String, Vec<usize>> = HashMap::new();
        let mut of_all = Vec::new();
        for (position, bound) in self.bound.iter().enumerate() {
            let rules = &bound.policy.constraints.rules;
            if rules.is_of_all() {
                of_all.push(position);
                continue;
            }
            for plural in rules.plurals() {
                let of_plural = by_plural.entry(plural.to_string()).or_default();
                if of_plural.last() != Some(&position) {
                    of_plural.push(position);
                }
            }
        }
        for of_plural in by_plural.values_mut() {
            of_plural.extend(&of_all);
            of_plural.sort_unstable();
        }
        self.by_plural = by_plural;
        self.of_all = of_all;
    }
}

#[cfg(test)]
mod tests;
