//! The catalogue of built-in kinds that the API server serves: names, scope, verbs, subresources.
//!
//! What the objects look like is `schema`'s; how they behave is `strategy`'s.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A served kind.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// "" for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
    /// The name of its schema, e.g. `io.k8s.api.core.v1.Pod`.
    pub definition: &'static str,
}

/// A path below an object, such as `status`.
#[derive(Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// What is sent and received there; it may be of another group than the object.
    pub kind: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub verbs: &'static [&'static str],
}

impl Resource {
    /// `v1` or `apps/v1`, as `apiVersion` has it.
    pub fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// `pods` or `deployments.apps`, as errors name it.
    pub fn qualified(&self) -> String {
        match self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    /// Whether a finished delete answers with the object; the others answer with a `Status`.
    pub fn returns_deleted(&self) -> bool {
        matches!(
            (self.group, self.plural),
            (
                "",
                "persistentvolumeclaims"
                    | "persistentvolumes"
                    | "pods"
                    | "podtemplates"
                    | "resourcequotas"
                    | "serviceaccounts"
                    | "services",
            ) | ("resource.k8s.io" | "storage.k8s.io", _)
        )
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }
}

/// Every served kind: the core group first, then by group, each group's kinds by plural.
pub fn resources() -> &'static [Resource] {
    RESOURCES
}

/// The kind served at `/apis/<group>/<version>/<plural>` (`/api/<version>/<plural>` for "").
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    static INDEX: OnceLock<Index> = OnceLock::new();
    let index = INDEX.get_or_init(|| index_by(|resource| resource.plural));
    index.get(&(group, version, plural)).copied()
}

/// The served kind that an object's `apiVersion` and `kind` name.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    static INDEX: OnceLock<Index> = OnceLock::new();
    let index = INDEX.get_or_init(|| index_by(|resource| resource.kind));
    index.get(&(group, version, kind)).copied()
}

/// `v1` for the core group, `group/version` for others.
pub fn api_version(group: &str, version: &str) -> String {
    match group {
        "" => version.to_string(),
        _ => format!("{group}/{version}"),
    }
}

/// The opposite of [`api_version`].
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

type Index = BTreeMap<(&'static str, &'static str, &'static str), &'static Resource>;

fn index_by(name: impl Fn(&Resource) -> &'static str) -> Index {
    RESOURCES
        .iter()
        .map(|resource| ((resource.group, resource.version, name(resource)), resource))
        .collect()
}

const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Namespaces cannot be deleted as a collection.
const NO_COLLECTION: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];
const CREATE: &[&str] = &["create"];
const GET: &[&str] = &["get"];
const PATH: &[&str] = &["get", "patch", "update"];
const CHANGE: &[&str] = &["update"];

const fn same_kind(
    name: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    verbs: &'static [&'static str],
) -> Subresource {
    Subresource {
        name,
        kind,
        group,
        version,
        verbs,
    }
}

/// A kind with the usual verbs and nothing below it; others override by struct update.
const fn plain(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    definition: &'static str,
) -> Resource {
    Resource {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: ALL_VERBS,
        subresources: &[],
        definition,
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

static RESOURCES: &[Resource] = &[
    Resource {
        short_names: &["cm"],
        ..plain(
            "",
            "ConfigMap",
            "configmaps",
            "configmap",
            "io.k8s.api.core.v1.ConfigMap",
        )
    },
    Resource {
        short_names: &["ep"],
        ..plain(
            "",
            "Endpoints",
            "endpoints",
            "endpoints",
            "io.k8s.api.core.v1.Endpoints",
        )
    },
    Resource {
        short_names: &["ev"],
        ..plain("", "Event", "events", "event", "io.k8s.api.core.v1.Event")
    },
    Resource {
        namespaced: false,
        short_names: &["ns"],
        verbs: NO_COLLECTION,
        subresources: &[
            same_kind("finalize", "", "v1", "Namespace", CHANGE),
            same_kind("status", "", "v1", "Namespace", PATH),
        ],
        ..plain(
            "",
            "Namespace",
            "namespaces",
            "namespace",
            "io.k8s.api.core.v1.Namespace",
        )
    },
    Resource {
        namespaced: false,
        short_names: &["no"],
        subresources: &[same_kind("status", "", "v1", "Node", PATH)],
        ..plain("", "Node", "nodes", "node", "io.k8s.api.core.v1.Node")
    },
    Resource {
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            same_kind("binding", "", "v1", "Binding", CREATE),
            same_kind("eviction", "policy", "v1", "Eviction", CREATE),
            same_kind("log", "", "v1", "Pod", GET),
            same_kind("status", "", "v1", "Pod", PATH),
        ],
        ..plain("", "Pod", "pods", "pod", "io.k8s.api.core.v1.Pod")
    },
    plain(
        "",
        "Secret",
        "secrets",
        "secret",
        "io.k8s.api.core.v1.Secret",
    ),
    Resource {
        short_names: &["sa"],
        subresources: &[same_kind(
            "token",
            "authentication.k8s.io",
            "v1",
            "TokenRequest",
            CREATE,
        )],
        ..plain(
            "",
            "ServiceAccount",
            "serviceaccounts",
            "serviceaccount",
            "io.k8s.api.core.v1.ServiceAccount",
        )
    },
    Resource {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[same_kind("status", "", "v1", "Service", PATH)],
        ..plain(
            "",
            "Service",
            "services",
            "service",
            "io.k8s.api.core.v1.Service",
        )
    },
    Resource {
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[
            same_kind("scale", "autoscaling", "v1", "Scale", PATH),
            same_kind("status", "apps", "v1", "Deployment", PATH),
        ],
        ..plain(
            "apps",
            "Deployment",
            "deployments",
            "deployment",
            "io.k8s.api.apps.v1.Deployment",
        )
    },
    Resource {
        short_names: &["rs"],
        categories: &["all"],
        subresources: &[
            same_kind("scale", "autoscaling", "v1", "Scale", PATH),
            same_kind("status", "apps", "v1", "ReplicaSet", PATH),
        ],
        ..plain(
            "apps",
            "ReplicaSet",
            "replicasets",
            "replicaset",
            "io.k8s.api.apps.v1.ReplicaSet",
        )
    },
    Resource {
        namespaced: false,
        verbs: CREATE,
        ..plain(
            AUTHENTICATION,
            "SelfSubjectReview",
            "selfsubjectreviews",
            "selfsubjectreview",
            "io.k8s.api.authentication.v1.SelfSubjectReview",
        )
    },
    Resource {
        namespaced: false,
        verbs: CREATE,
        ..plain(
            AUTHENTICATION,
            "TokenReview",
            "tokenreviews",
            "tokenreview",
            "io.k8s.api.authentication.v1.TokenReview",
        )
    },
    Resource {
        verbs: CREATE,
        ..plain(
            AUTHORIZATION,
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
        )
    },
    Resource {
        namespaced: false,
        verbs: CREATE,
        ..plain(
            AUTHORIZATION,
            "SelfSubjectAccessReview",
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
            "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        )
    },
    Resource {
        namespaced: false,
        verbs: CREATE,
        ..plain(
            AUTHORIZATION,
            "SelfSubjectRulesReview",
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
            "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
        )
    },
    Resource {
        namespaced: false,
        verbs: CREATE,
        ..plain(
            AUTHORIZATION,
            "SubjectAccessReview",
            "subjectaccessreviews",
            "subjectaccessreview",
            "io.k8s.api.authorization.v1.SubjectAccessReview",
        )
    },
    plain(
        "coordination.k8s.io",
        "Lease",
        "leases",
        "lease",
        "io.k8s.api.coordination.v1.Lease",
    ),
    plain(
        "discovery.k8s.io",
        "EndpointSlice",
        "endpointslices",
        "endpointslice",
        "io.k8s.api.discovery.v1.EndpointSlice",
    ),
    Resource {
        namespaced: false,
        ..plain(
            RBAC,
            "ClusterRoleBinding",
            "clusterrolebindings",
            "clusterrolebinding",
            "io.k8s.api.rbac.v1.ClusterRoleBinding",
        )
    },
    Resource {
        namespaced: false,
        ..plain(
            RBAC,
            "ClusterRole",
            "clusterroles",
            "clusterrole",
            "io.k8s.api.rbac.v1.ClusterRole",
        )
    },
    plain(
        RBAC,
        "RoleBinding",
        "rolebindings",
        "rolebinding",
        "io.k8s.api.rbac.v1.RoleBinding",
    ),
    plain(RBAC, "Role", "roles", "role", "io.k8s.api.rbac.v1.Role"),
    Resource {
        namespaced: false,
        short_names: &["pc"],
        ..plain(
            "scheduling.k8s.io",
            "PriorityClass",
            "priorityclasses",
            "priorityclass",
            "io.k8s.api.scheduling.v1.PriorityClass",
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_by_path_and_by_kind() {
        let deployment = find("apps", "v1", "deployments").unwrap();
        assert_eq!(deployment.kind, "Deployment");
        assert_eq!(deployment.qualified(), "deployments.apps");
        assert_eq!(find_kind("apps", "v1", "Deployment"), Some(deployment));
        assert_eq!(find("apps", "v1", "pods"), None);
        assert!(
            find("", "v1", "pods")
                .unwrap()
                .subresource("binding")
                .is_some()
        );
    }

    #[test]
    fn kinds_are_ordered_by_group_and_plural() {
        let keys: Vec<_> = resources().iter().map(|r| (r.group, r.plural)).collect();
        assert!(keys.is_sorted());
    }
}
