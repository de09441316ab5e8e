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
enum Subject {
    User(String),
    Group(String),
}

/// What is granted in one namespace or everywhere, by the name of the subject.
#[derive(Default)]
struct Grants {
    users: BTreeMap<String, Vec<Grant>>,
    groups: BTreeMap<String, Vec<Grant>>,
}

impl Grants {
    fn of(&mut self, subject: Subject) -> &mut Vec<Grant> {
        match subject {
            Subject::User(name) => self.users.entry(name).or_default(),
            Subject::Group(name) => self.groups.entry(name).or_default(),
        }
    }

    /// All that `identity` is granted, as a user first.
    fn to<'a>(&'a self, identity: &'a Identity) -> impl Iterator<Item = &'a Grant> {
        let groups = identity.groups.iter();
        let user = self.users.get(&identity.user).into_iter();
        user.chain(groups.filter_map(|group| self.groups.get(group)))
            .flatten()
    }
}

/// Where a role is: cluster roles have no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RoleKey {
    namespace: Option<String>,
    name: String,
}

/// The role a binding grants, and how messages name it.
#[derive(Clone)]
struct Grant {
    role: RoleKey,
    /// `ClusterRoleBinding "a" of ClusterRole "b" to Group "c"`.
    source: Arc<str>,
}

#[derive(Default)]
struct Compiled {
    /// The revisions of the four kinds this was made from.
    version: [u64; 4],
    roles: BTreeMap<RoleKey, (u64, Arc<[Rule]>)>,
    cluster_wide: Grants,
    namespaced: BTreeMap<String, Grants>,
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
    /// Otherwise returns the roles that are bound and do not exist.
    pub fn find(
        &self,
        identity: &Identity,
        namespace: &str,
        mut visit: impl FnMut(&Rule) -> bool,
    ) -> Result<Arc<str>, Vec<String>> {
        let compiled = self.current();
        let cluster_wide = compiled.cluster_wide.to(identity);
        let local = compiled.namespaced.get(namespace);
        let local = local.into_iter().flat_map(|grants| grants.to(identity));
        let mut problems = Vec::new();
        for grant in cluster_wide.chain(local) {
            let Some((_, rules)) = compiled.roles.get(&grant.role) else {
                let kind = match grant.role.namespace {
                    None => "clusterrole",
                    Some(_) => "role",
                };
                let problem = format!("{kind}.{GROUP} {:?} not found", grant.role.name);
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
                continue;
            };
            if rules.iter().any(&mut visit) {
                return Ok(grant.source.clone());
            }
        }
        Err(problems)
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
        let version = kinds.each_ref().map(|kind| kind.changed());
        let mut compiled = self.compiled.lock();
        if compiled.version != version {
            *compiled = Arc::new(compile(&self.cache, &kinds, version, &compiled));
        }
        compiled.clone()
    }
}

fn compile(
    cache: &Cache,
    [cluster_roles, roles, cluster_bindings, bindings]: &[Arc<ResourceCache>; 4],
    version: [u64; 4],
    before: &Compiled,
) -> Compiled {
    let mut compiled = Compiled {
        version,
        ..Compiled::default()
    };
    for kind in [cluster_roles, roles] {
        for (_, entry) in cache.snapshot(kind).iter() {
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
        for (_, entry) in cache.snapshot(kind).iter() {
            let Ok(binding) = entry.object() else {
                continue;
            };
            let namespace = entry.namespace();
            let local_role = binding.str_at(&["roleRef", "kind"]) == "Role";
            let role = RoleKey {
                namespace: local_role.then(|| namespace.to_string()),
                name: binding.str_at(&["roleRef", "name"]).to_string(),
            };
            let named = match kind.resource.namespaced {
                true => format!("RoleBinding {:?}", format!("{}/{namespace}", entry.name())),
                false => format!("ClusterRoleBinding {:?}", entry.name()),
            };
            let granted = match local_role {
                true => "Role",
                false => "ClusterRole",
            };
            for (subject, called) in subjects(&binding, namespace) {
                let grants = match kind.resource.namespaced {
                    true => {
                        let local = compiled.namespaced.entry(namespace.to_string());
                        local.or_default().of(subject)
                    }
                    false => compiled.cluster_wide.of(subject),
                };
                let source = format!("{named} of {granted} {:?} to {called}", role.name);
                grants.push(Grant {
                    role: role.clone(),
                    source: source.into(),
                });
            }
        }
    }
    compiled
}

/// Each subject, and what messages call it.
fn subjects(binding: &Value, namespace: &str) -> Vec<(Subject, String)> {
    let subjects = binding.get("subjects").and_then(Value::as_array);
    subjects
        .into_iter()
        .flatten()
        .filter_map(|subject| {
            let name = subject.str_at(&["name"]);
            match subject.str_at(&["kind"]) {
                "User" => Some((Subject::User(name.to_string()), format!("User {name:?}"))),
                "Group" => Some((Subject::Group(name.to_string()), format!("Group {name:?}"))),
                "ServiceAccount" => {
                    let of = match subject.str_at(&["namespace"]) {
                        "" => namespace,
                        given => given,
                    };
                    let user = format!("system:serviceaccount:{of}:{name}");
                    let called = format!("ServiceAccount {:?}", format!("{name}/{of}"));
                    Some((Subject::User(user), called))
                }
                _ => None,
            }
        })
        .collect()
}
