//! The admission webhooks that are configured, read from the watch cache and made ready to be
//! matched and called. A configuration is read again only when it changed; a request that no hook
//! concerns costs one look into a map. Calling them is `admission::webhooks`'.

mod conditions;
mod hook;
mod metrics;
mod rule;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::cache::{Cache, ResourceCache};
use crate::webhook_client::WebhookClient;

pub(crate) use conditions::{Evaluated, Question, RequestAuthorizer};
pub(crate) use hook::{Hook, ReviewVersion, Selector, selector};
pub(crate) use metrics::{Call, Excluded, Histogram, HookMetrics, Rejection, head};
pub(crate) use rule::{Attributes, Operation, Rule};

pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// All admission webhooks.
pub(crate) struct AdmissionHooks {
    pub mutating: HookSet,
    pub validating: HookSet,
    pub metrics: HookMetrics,
}

impl AdmissionHooks {
    pub fn new(cache: &Arc<Cache>) -> AdmissionHooks {
        AdmissionHooks {
            mutating: HookSet::new(cache, Phase::Mutating),
            validating: HookSet::new(cache, Phase::Validating),
            metrics: HookMetrics::default(),
        }
    }
}

/// Which of the two kinds of hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Mutating,
    Validating,
}

impl Phase {
    fn plural(self) -> &'static str {
        match self {
            Phase::Mutating => "mutatingwebhookconfigurations",
            Phase::Validating => "validatingwebhookconfigurations",
        }
    }

    /// As the metrics of calls name it.
    pub fn of_calls(self) -> &'static str {
        match self {
            Phase::Mutating => "admit",
            Phase::Validating => "validating",
        }
    }

    /// As the metrics of match conditions name it.
    pub fn of_conditions(self) -> &'static str {
        match self {
            Phase::Mutating => "admit",
            Phase::Validating => "validate",
        }
    }
}

/// The hooks of one kind of configuration.
pub(crate) struct HookSet {
    cache: Arc<Cache>,
    phase: Phase,
    /// The built-in kind that they are configured by, which is never removed. `None` where it is not
    /// served.
    kind: Option<Arc<ResourceCache>>,
    /// Replaced as a whole; held for moments only, never across an await.
    compiled: RwLock<Arc<Compiled>>,
}

/// The hooks as they were configured at one moment.
#[derive(Default)]
pub(crate) struct Compiled {
    /// The revision of the kind that this was made from.
    version: u64,
    /// By the name of the configuration, with its revision.
    configurations: BTreeMap<Arc<str>, (u64, Vec<Arc<Hook>>)>,
    /// In the order in which they are called: by the configuration's name, then as it lists them.
    hooks: Vec<Arc<Hook>>,
    /// The hooks whose rules name a resource, together with those whose rules name all.
    by_plural: HashMap<String, Vec<usize>>,
    /// The hooks whose rules name all resources.
    of_all: Vec<usize>,
}

impl HookSet {
    fn new(cache: &Arc<Cache>, phase: Phase) -> HookSet {
        HookSet {
            cache: cache.clone(),
            phase,
            kind: cache.find(GROUP, phase.plural()),
            compiled: RwLock::default(),
        }
    }

    /// The hooks as they are configured now.
    pub fn current(&self, client: &WebhookClient, metrics: &HookMetrics) -> Arc<Compiled> {
        let version = self.kind.as_ref().map_or(0, |kind| kind.changed());
        {
            let compiled = self.compiled.read();
            if compiled.version == version {
                return compiled.clone();
            }
        }
        let mut compiled = self.compiled.write();
        // Another request may have been faster.
        if compiled.version != version {
            *compiled = Arc::new(self.compile(version, &compiled, client));
            metrics.keep(self.phase, &compiled.names());
        }
        compiled.clone()
    }

    fn compile(&self, version: u64, before: &Compiled, client: &WebhookClient) -> Compiled {
        let mut compiled = Compiled {
            version,
            ..Compiled::default()
        };
        let Some(kind) = &self.kind else {
            return compiled;
        };
        for (key, entry) in self.cache.snapshot(kind).iter() {
            let known = before.configurations.get(key);
            let kept = known.filter(|(revision, _)| *revision == entry.revision);
            let hooks = match kept {
                Some((_, hooks)) => hooks.clone(),
                None => match entry.object() {
                    Ok(configuration) => Hook::all_of(&configuration, client),
                    Err(problem) => {
                        tracing::warn!(%problem, %key, "a webhook configuration cannot be read");
                        Vec::new()
                    }
                },
            };
            compiled.hooks.extend(hooks.iter().cloned());
            let revision = entry.revision;
            compiled
                .configurations
                .insert(key.clone(), (revision, hooks));
        }
        compiled.index();
        compiled
    }
}

impl Compiled {
    /// The hooks that may concern a resource of this plural, in the order in which they are called:
    /// the position of each, by which it is known in this set.
    pub fn concerning(&self, plural: &str) -> &[usize] {
        self.by_plural.get(plural).unwrap_or(&self.of_all)
    }

    pub fn hook(&self, position: usize) -> &Arc<Hook> {
        &self.hooks[position]
    }

    fn names(&self) -> BTreeSet<&str> {
        self.hooks.iter().map(|hook| hook.name.as_str()).collect()
    }

    fn index(&mut self) {
        let named: BTreeSet<&str> = self.hooks.iter().flat_map(|hook| hook.plurals()).collect();
        let concerned = |plural: Option<&str>| -> Vec<usize> {
            let hooks = self.hooks.iter().enumerate();
            let chosen = hooks.filter(|(_, hook)| {
                hook.is_of_all()
                    || plural.is_some_and(|plural| hook.plurals().any(|it| it == plural))
            });
            chosen.map(|(position, _)| position).collect()
        };
        let by_plural = named.iter();
        let by_plural = by_plural.map(|plural| (plural.to_string(), concerned(Some(plural))));
        let by_plural: HashMap<String, Vec<usize>> = by_plural.collect();
        self.of_all = concerned(None);
        self.by_plural = by_plural;
    }
}

#[cfg(test)]
mod tests;
