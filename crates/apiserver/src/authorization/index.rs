//! Roles and bindings compiled from the watch cache, by subject. Recompiled when one of the four
//! kinds changed; unchanged roles are kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Value;
use parking_lot::Mutex;

use super::rules::Rule;
use crate::cache::{Cache, ResourceCache};
use crate::identity::Identity;

const GROUP: &str = "rbac.authorization.k8s.io";

/// A user or a group, as bindings name them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    User(String),
    Group(String),
}

/// Where a role is: cluster roles have no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RoleKey {
    namespace: Option<String>,
    name: String,
}

/// A binding's name for messages, and the role it grants.
#[derive(Clone)]
struct Grant {
    binding: Arc<str>,
    role: RoleKey,
}

#[derive(Default)]
struct Compiled {
    /// The revisions of the four kinds this was made from.
    version: [u64; 4],
    roles: BTreeMap<RoleKey, (u64, Arc<[Rule]>)>,
    cluster_wide: BTreeMap<Subject, Vec<Grant>>,
    namespaced: BTreeMap<(String, Subject), Vec<Grant>>,
}

pub(super) struct Index {
    cache: Arc<Cache>,
    compiled: Mutex<Arc<Compiled>>,
}

impl Index {
    pub fn new(cache: Arc<Cache>) -> Index {
        Index {
            cache,
            compiled: Mutex::default(),
        }
    }

    /// Visits the rules that apply to `identity` until `visit` is satisfied; then names the source.
    pub fn find(
        &self,
        identity: &Identity,
        namespace: &str,
        mut visit: impl FnMut(&Rule) -> bool,
    ) -> Option<String> {
        let compiled = self.current();
        let subjects = std::iter::once(Subject::User(identity.user.clone()))
            .chain(identity.groups.iter().cloned().map(Subject::Group));
        let subjects: Vec<Subject> = subjects.collect();
        let cluster_wide = subjects
            .iter()
            .filter_map(|subject| compiled.cluster_wide.get(subject))
            .flatten()
            .map(|grant| ("ClusterRoleBinding", grant));
        let local = subjects
            .iter()
            .filter(|_| !namespace.is_empty())
            .filter_map(|subject| {
                compiled
                    .namespaced
                    .get(&(namespace.to_string(), subject.clone()))
            })
            .flatten()
            .map(|grant| ("RoleBinding", grant));
        for (kind, grant) in cluster_wide.chain(local) {
            let Some((_, rules)) = compiled.roles.get(&grant.role) else {
                continue;
            };
            if rules.iter().any(&mut visit) {
                let role = match grant.role.namespace {
                    None => "ClusterRole",
                    Some(_) => "Role",
                };
                return Some(format!(
                    "{kind} {:?} of {role} {:?} to {}",
                    grant.binding, grant.role.name, identity.user
                ));
            }
        }
        None
    }

    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Vec<Rule>> {
        let key = RoleKey {
            namespace: (kind == "Role").then(|| namespace.to_string()),
            name: name.to_string(),
        };
        let compiled = self.current();
        compiled.roles.get(&key).map(|(_, rules)| rules.to_vec())
    }

    fn current(&self) -> Arc<Compiled> {
        let kinds = [
            "clusterroles",
            "roles",
            "clusterrolebindings",
            "rolebindings",
        ]
        .map(|plural| self.cache.named(GROUP, plural));
        let version = kinds.map(ResourceCache::changed);
        let mut compiled = self.compiled.lock();
        if compiled.version != version {
            *compiled = Arc::new(compile(&self.cache, kinds, version, &compiled));
        }
        compiled.clone()
    }
}

fn compile(
    cache: &Cache,
    [cluster_roles, roles, cluster_bindings, bindings]: [&ResourceCache; 4],
    version: [u64; 4],
    before: &Compiled,
) -> Compiled {
    let mut compiled = Compiled {
        version,
        ..Compiled::default()
    };
    for kind in [cluster_roles, roles] {
        for (_, entry) in &cache.snapshot(kind).entries {
            let key = RoleKey {
                namespace: kind
                    .resource
                    .namespaced
                    .then(|| entry.namespace().to_string()),
                name: entry.name().to_string(),
            };
            let kept = before
                .roles
                .get(&key)
                .filter(|(revision, _)| *revision == entry.revision)
                .map(|(_, rules)| rules.clone());
            let rules = kept.or_else(|| Some(Rule::parse_all(&entry.object().ok()?).into()));
            if let Some(rules) = rules {
                compiled.roles.insert(key, (entry.revision, rules));
            }
        }
    }
    for kind in [cluster_bindings, bindings] {
        for (_, entry) in &cache.snapshot(kind).entries {
            let Ok(binding) = entry.object() else {
                continue;
            };
            let namespace = entry.namespace();
            let local_role = binding.str_at(&["roleRef", "kind"]) == "Role";
            let grant = Grant {
                binding: entry.key.clone(),
                role: RoleKey {
                    namespace: local_role.then(|| namespace.to_string()),
                    name: binding.str_at(&["roleRef", "name"]).to_string(),
                },
            };
            for subject in subjects(&binding, namespace) {
                let grants = match kind.resource.namespaced {
                    true => compiled
                        .namespaced
                        .entry((namespace.to_string(), subject))
                        .or_default(),
                    false => compiled.cluster_wide.entry(subject).or_default(),
                };
                grants.push(grant.clone());
            }
        }
    }
    compiled
}

fn subjects(binding: &Value, namespace: &str) -> Vec<Subject> {
    let subjects = binding.get("subjects").and_then(Value::as_array);
    subjects
        .into_iter()
        .flatten()
        .filter_map(|subject| {
            let name = subject.str_at(&["name"]);
            match subject.str_at(&["kind"]) {
                "User" => Some(Subject::User(name.to_string())),
                "Group" => Some(Subject::Group(name.to_string())),
                "ServiceAccount" => {
                    let of = match subject.str_at(&["namespace"]) {
                        "" => namespace,
                        given => given,
                    };
                    Some(Subject::User(format!("system:serviceaccount:{of}:{name}")))
                }
                _ => None,
            }
        })
        .collect()
}
