//! The catalogue of built-in kinds that are served.

/// One served resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
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
    /// The OpenAPI definition, e.g. `io.k8s.api.core.v1.Pod`.
    pub definition: &'static str,
}

/// A subresource; its kind may live in another group than the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    pub kind: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub verbs: &'static [&'static str],
}

pub fn resources() -> &'static [Resource] {
    RESOURCES
}

pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| {
        resource.group == group && resource.version == version && resource.plural == plural
    })
}

pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| {
        resource.group == group && resource.version == version && resource.kind == kind
    })
}

const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const CREATE: &[&str] = &["create"];

const fn subresource(
    name: &'static str,
    kind: &'static str,
    group: &'static str,
    version: &'static str,
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

macro_rules! resources {
    ($($group:literal $version:literal $kind:literal $plural:literal $singular:literal $namespaced:literal $short:expr, $verbs:expr, $sub:expr, $definition:literal;)*) => {
        const RESOURCES: &[Resource] = &[$(Resource {
            group: $group, version: $version, kind: $kind, plural: $plural, singular: $singular,
            namespaced: $namespaced, short_names: $short, categories: &[], verbs: $verbs,
            subresources: $sub, definition: $definition,
        }),*];
    };
}

const CHANGE: &[&str] = &["get", "patch", "update"];

resources! {
    "" "v1" "Pod" "pods" "pod" true &["po"], ALL, &[
        subresource("status", "Pod", "", "v1", CHANGE),
        subresource("binding", "Binding", "", "v1", CREATE),
        subresource("log", "Pod", "", "v1", &["get"]),
        subresource("eviction", "Eviction", "policy", "v1", CREATE),
    ], "io.k8s.api.core.v1.Pod";
    "" "v1" "Node" "nodes" "node" false &["no"], ALL, &[subresource("status", "Node", "", "v1", CHANGE)], "io.k8s.api.core.v1.Node";
    "" "v1" "Namespace" "namespaces" "namespace" false &["ns"], ALL, &[
        subresource("status", "Namespace", "", "v1", CHANGE),
        subresource("finalize", "Namespace", "", "v1", &["update"]),
    ], "io.k8s.api.core.v1.Namespace";
    "" "v1" "ConfigMap" "configmaps" "configmap" true &["cm"], ALL, &[], "io.k8s.api.core.v1.ConfigMap";
    "" "v1" "Secret" "secrets" "secret" true &[], ALL, &[], "io.k8s.api.core.v1.Secret";
    "" "v1" "ServiceAccount" "serviceaccounts" "serviceaccount" true &["sa"], ALL, &[
        subresource("token", "TokenRequest", "authentication.k8s.io", "v1", CREATE),
    ], "io.k8s.api.core.v1.ServiceAccount";
    "" "v1" "Service" "services" "service" true &["svc"], ALL, &[subresource("status", "Service", "", "v1", CHANGE)], "io.k8s.api.core.v1.Service";
    "" "v1" "Endpoints" "endpoints" "endpoints" true &["ep"], ALL, &[], "io.k8s.api.core.v1.Endpoints";
    "" "v1" "Event" "events" "event" true &["ev"], ALL, &[], "io.k8s.api.core.v1.Event";
    "apps" "v1" "Deployment" "deployments" "deployment" true &["deploy"], ALL, &[
        subresource("status", "Deployment", "apps", "v1", CHANGE),
        subresource("scale", "Scale", "autoscaling", "v1", CHANGE),
    ], "io.k8s.api.apps.v1.Deployment";
    "apps" "v1" "ReplicaSet" "replicasets" "replicaset" true &["rs"], ALL, &[
        subresource("status", "ReplicaSet", "apps", "v1", CHANGE),
        subresource("scale", "Scale", "autoscaling", "v1", CHANGE),
    ], "io.k8s.api.apps.v1.ReplicaSet";
    "discovery.k8s.io" "v1" "EndpointSlice" "endpointslices" "endpointslice" true &[], ALL, &[], "io.k8s.api.discovery.v1.EndpointSlice";
    "coordination.k8s.io" "v1" "Lease" "leases" "lease" true &[], ALL, &[], "io.k8s.api.coordination.v1.Lease";
    "rbac.authorization.k8s.io" "v1" "Role" "roles" "role" true &[], ALL, &[], "io.k8s.api.rbac.v1.Role";
    "rbac.authorization.k8s.io" "v1" "RoleBinding" "rolebindings" "rolebinding" true &[], ALL, &[], "io.k8s.api.rbac.v1.RoleBinding";
    "rbac.authorization.k8s.io" "v1" "ClusterRole" "clusterroles" "clusterrole" false &[], ALL, &[], "io.k8s.api.rbac.v1.ClusterRole";
    "rbac.authorization.k8s.io" "v1" "ClusterRoleBinding" "clusterrolebindings" "clusterrolebinding" false &[], ALL, &[], "io.k8s.api.rbac.v1.ClusterRoleBinding";
    "scheduling.k8s.io" "v1" "PriorityClass" "priorityclasses" "priorityclass" false &["pc"], ALL, &[], "io.k8s.api.scheduling.v1.PriorityClass";
    "authentication.k8s.io" "v1" "TokenReview" "tokenreviews" "tokenreview" false &[], CREATE, &[], "io.k8s.api.authentication.v1.TokenReview";
    "authentication.k8s.io" "v1" "SelfSubjectReview" "selfsubjectreviews" "selfsubjectreview" false &[], CREATE, &[], "io.k8s.api.authentication.v1.SelfSubjectReview";
    "authorization.k8s.io" "v1" "SubjectAccessReview" "subjectaccessreviews" "subjectaccessreview" false &[], CREATE, &[], "io.k8s.api.authorization.v1.SubjectAccessReview";
    "authorization.k8s.io" "v1" "SelfSubjectAccessReview" "selfsubjectaccessreviews" "selfsubjectaccessreview" false &[], CREATE, &[], "io.k8s.api.authorization.v1.SelfSubjectAccessReview";
    "authorization.k8s.io" "v1" "LocalSubjectAccessReview" "localsubjectaccessreviews" "localsubjectaccessreview" true &[], CREATE, &[], "io.k8s.api.authorization.v1.LocalSubjectAccessReview";
    "authorization.k8s.io" "v1" "SelfSubjectRulesReview" "selfsubjectrulesreviews" "selfsubjectrulesreview" false &[], CREATE, &[], "io.k8s.api.authorization.v1.SelfSubjectRulesReview";
}
