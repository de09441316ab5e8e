//! The operations that a kind offers, independent of the notation they are written in.

use super::definitions::{
    DELETE_OPTIONS, PATCH, STATUS, WATCH_EVENT, definition_of, list_definition_of,
};
use crate::resource::{Name, Resource, Subresource, api_version};
use crate::schema::{Type, table};

/// One method at one path.
pub(super) struct Operation<'a> {
    pub method: &'static str,
    /// `x-kubernetes-action`.
    pub action: &'static str,
    pub id: String,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// Definition name; "" for plain text.
    pub response: Name,
    pub codes: &'static [(&'static str, &'static str)],
    /// `x-kubernetes-group-version-kind`.
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

pub(super) struct Body {
    pub definition: Name,
    pub required: bool,
}

/// A query or path parameter: name and JSON type.
pub(super) type Parameter = (&'static str, &'static str);

/// A path and what can be done there.
pub(super) struct Path<'a> {
    pub path: String,
    /// The names in braces, in the order of the path.
    pub variables: &'static [&'static str],
    pub operations: Vec<Operation<'a>>,
}

const LIST: &[Parameter] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE: &[Parameter] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
];
/// Upstream describes it for custom kinds alone.
const GET_CUSTOM: &[Parameter] = &[("resourceVersion", "string")];
const PATCH_ONLY: &[Parameter] = &[("force", "boolean")];
const DELETE: &[Parameter] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
    ),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const PRETTY: &[Parameter] = &[("pretty", "string")];
const LOG: &[Parameter] = &[
    ("container", "string"),
    ("follow", "boolean"),
    ("insecureSkipTLSVerifyBackend", "boolean"),
    ("limitBytes", "integer"),
    ("previous", "boolean"),
    ("sinceSeconds", "integer"),
    ("stream", "string"),
    ("tailLines", "integer"),
    ("timestamps", "boolean"),
];

const OK: (&str, &str) = ("200", "OK");
const CREATED: (&str, &str) = ("201", "Created");
const ACCEPTED: (&str, &str) = ("202", "Accepted");

/// Every path of a kind: collections, the object, its subresources.
pub(super) fn paths_of(resource: &Resource) -> Vec<Path<'_>> {
    let root = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{}", api_version(group, &resource.version)),
    };
    let (collection, outer, variables): (_, &[&str], &[&str]) = match resource.namespaced {
        true => (
            format!("{root}/namespaces/{{namespace}}/{}", resource.plural),
            &["namespace"],
            &["name", "namespace"],
        ),
        false => (format!("{root}/{}", resource.plural), &[], &["name"]),
    };
    let mut paths = Vec::new();
    if resource.namespaced && resource.has_verb("list") {
        paths.push(Path {
            path: format!("{root}/{}", resource.plural),
            variables: &[],
            operations: on(resource, "", &["list"], "ForAllNamespaces"),
        });
    }
    let verbs = ["list", "create", "deletecollection"];
    paths.push(Path {
        path: collection.clone(),
        variables: outer,
        operations: on(resource, "", &offered(&resource.verbs, &verbs), ""),
    });
    let verbs = offered(&resource.verbs, &["get", "update", "patch", "delete"]);
    if !verbs.is_empty() {
        paths.push(Path {
            path: format!("{collection}/{{name}}"),
            variables,
            operations: on(resource, "", &verbs, ""),
        });
    }
    for subresource in &resource.subresources {
        let path = format!("{collection}/{{name}}/{}", subresource.name);
        let methods = connected(subresource.name);
        if !methods.is_empty() {
            paths.extend(connections(
                resource,
                subresource,
                &path,
                variables,
                methods,
            ));
            continue;
        }
        let verbs = offered(&subresource.verbs, &["get", "create", "update", "patch"]);
        paths.push(Path {
            path,
            variables,
            operations: on(resource, subresource.name, &verbs, ""),
        });
    }
    // Upstream does not describe these for custom kinds.
    if resource.has_verb("watch") && !resource.is_custom() {
        paths.extend(watches(resource, &root));
    }
    paths
}

/// The methods of the subresources that are connections rather than documents.
pub(super) fn connected(subresource: &str) -> &'static [&'static str] {
    match subresource {
        "attach" | "exec" | "portforward" => &["get", "post"],
        "proxy" => &["delete", "get", "head", "options", "patch", "post", "put"],
        _ => &[],
    }
}

/// A connection, and for proxies the same with a path behind it.
fn connections<'a>(
    resource: &Resource,
    subresource: &'a Subresource,
    path: &str,
    variables: &'static [&'static str],
    methods: &'static [&'static str],
) -> Vec<Path<'a>> {
    let connect = |method: &&'static str, suffix: &str| {
        let word = format!("connect{}", camel(method));
        Operation {
            method,
            action: "connect",
            id: connection_id(resource, subresource, &word, suffix),
            parameters: options_of(subresource),
            body: None,
            response: "".into(),
            codes: &[OK],
            group: &subresource.group,
            version: &subresource.version,
            kind: &subresource.kind,
        }
    };
    let all = |suffix: &str| {
        methods
            .iter()
            .map(|method| connect(method, suffix))
            .collect()
    };
    let mut paths = vec![Path {
        path: path.to_string(),
        variables,
        operations: all(""),
    }];
    if subresource.name == "proxy" {
        paths.push(Path {
            path: format!("{path}/{{path}}"),
            variables: match resource.namespaced {
                true => &["name", "namespace", "path"],
                false => &["name", "path"],
            },
            operations: all("WithPath"),
        });
    }
    paths
}

/// e.g. `connectCoreV1GetNamespacedPodProxyWithPath`.
fn connection_id(
    resource: &Resource,
    subresource: &Subresource,
    word: &str,
    suffix: &str,
) -> String {
    let (connect, method) = word.split_at("connect".len());
    let scope = if resource.namespaced {
        "Namespaced"
    } else {
        ""
    };
    format!(
        "{connect}{}{method}{scope}{}{}{suffix}",
        group_version_word(&resource.group, &resource.version),
        resource.kind,
        camel(subresource.name),
    )
}

/// The fields of the options of a connection, as parameters.
fn options_of(subresource: &Subresource) -> Vec<Parameter> {
    let kind = table().of_kind(&subresource.group, &subresource.version, &subresource.kind);
    let properties = kind
        .into_iter()
        .flat_map(|definition| &definition.properties);
    properties
        .map(|property| table().field(property))
        .filter(|field| !matches!(field.name, "apiVersion" | "kind"))
        .map(|field| {
            let kind = field.kind.item().unwrap_or(&field.kind);
            let kind = match kind {
                Type::Bool => "boolean",
                Type::Int32 | Type::Int64 => "integer",
                _ => "string",
            };
            (field.name, kind)
        })
        .collect()
}

/// The old paths of watches.
fn watches<'a>(resource: &'a Resource, root: &str) -> Vec<Path<'a>> {
    let watch = |action: &'static str, scope: &str, suffix: &str| {
        vec![Operation {
            method: "get",
            action,
            id: format!(
                "watch{}{scope}{}{suffix}",
                group_version_word(&resource.group, &resource.version),
                resource.kind
            ),
            parameters: [LIST, PRETTY].concat(),
            body: None,
            response: WATCH_EVENT.into(),
            codes: &[OK],
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
        }]
    };
    let plural = &resource.plural;
    let has_get = resource.has_verb("get");
    let mut paths = Vec::new();
    let (collection, scope): (_, &str) = match resource.namespaced {
        true => {
            paths.push(Path {
                path: format!("{root}/watch/{plural}"),
                variables: &[],
                operations: watch("watchlist", "", "ListForAllNamespaces"),
            });
            (
                format!("{root}/watch/namespaces/{{namespace}}/{plural}"),
                "Namespaced",
            )
        }
        false => (format!("{root}/watch/{plural}"), ""),
    };
    if has_get {
        paths.push(Path {
            path: format!("{collection}/{{name}}"),
            variables: match resource.namespaced {
                true => &["name", "namespace"],
                false => &["name"],
            },
            operations: watch("watch", scope, ""),
        });
    }
    paths.push(Path {
        path: collection,
        variables: match resource.namespaced {
            true => &["namespace"],
            false => &[],
        },
        operations: watch("watchlist", scope, "List"),
    });
    paths
}

fn offered(verbs: &[&'static str], wanted: &[&'static str]) -> Vec<&'static str> {
    let offered = |verb: &&'static str| verbs.contains(verb);
    wanted.iter().copied().filter(offered).collect()
}

fn on<'a>(
    resource: &'a Resource,
    subresource: &str,
    verbs: &[&'static str],
    suffix: &str,
) -> Vec<Operation<'a>> {
    let subresource = resource.subresource(subresource);
    verbs
        .iter()
        .map(|verb| operation(resource, subresource, verb, suffix))
        .collect()
}

fn operation<'a>(
    resource: &'a Resource,
    subresource: Option<&'a Subresource>,
    verb: &'static str,
    suffix: &str,
) -> Operation<'a> {
    // Upstream has another builder for custom kinds, with a few habits of its own.
    let is_custom = resource.is_custom();
    let (group, version, kind) = match subresource {
        Some(subresource) if !is_custom => (
            &*subresource.group,
            &*subresource.version,
            &*subresource.kind,
        ),
        _ => (&*resource.group, &*resource.version, &*resource.kind),
    };
    let own: Name = match subresource {
        Some(subresource) if is_custom && subresource.name == "status" => definition_of(resource),
        Some(subresource) => table()
            .of_kind(&subresource.group, &subresource.version, &subresource.kind)
            .map_or("", |definition| definition.name)
            .into(),
        None => definition_of(resource),
    };
    let is_log = subresource.is_some_and(|subresource| subresource.name == "log");
    let (method, action, word, parameters, body, response, codes): (
        _,
        _,
        _,
        Vec<&[Parameter]>,
        _,
        _,
        &'static [_],
    ) = match verb {
        "list" => {
            let list = list_definition_of(resource);
            ("get", "list", "list", vec![LIST], None, list, &[OK])
        }
        "get" if is_log => ("get", "get", "read", vec![LOG], None, "".into(), &[OK]),
        "get" if is_custom => ("get", "get", "read", vec![GET_CUSTOM], None, own, &[OK]),
        "get" => ("get", "get", "read", vec![], None, own, &[OK]),
        "create" => {
            let codes = &[OK, CREATED, ACCEPTED];
            let body = body(own.clone());
            ("post", "post", "create", vec![WRITE], body, own, codes)
        }
        "update" => {
            let codes = &[OK, CREATED];
            let body = body(own.clone());
            ("put", "put", "replace", vec![WRITE], body, own, codes)
        }
        "patch" => {
            let parameters = vec![WRITE, PATCH_ONLY];
            let codes: &[_] = if is_custom { &[OK] } else { &[OK, CREATED] };
            (
                "patch",
                "patch",
                "patch",
                parameters,
                body(PATCH.into()),
                own,
                codes,
            )
        }
        "deletecollection" => {
            let (parameters, options) = match is_custom {
                true => (vec![LIST], None),
                false => (vec![LIST, DELETE], options()),
            };
            let action = "deletecollection";
            (
                "delete",
                action,
                "delete",
                parameters,
                options,
                STATUS.into(),
                &[OK],
            )
        }
        _ => {
            let answer = if resource.strategy().returns_deleted() {
                own
            } else {
                STATUS.into()
            };
            let codes = &[OK, ACCEPTED];
            (
                "delete",
                "delete",
                "delete",
                vec![DELETE],
                options(),
                answer,
                codes,
            )
        }
    };
    let mut parameters = [parameters.concat().as_slice(), PRETTY].concat();
    if verb == "deletecollection" && !is_custom {
        parameters.retain(|(name, _)| !matches!(*name, "allowWatchBookmarks" | "watch"));
    }
    parameters.sort_unstable();
    Operation {
        method,
        action,
        id: id(resource, subresource, verb, word, suffix),
        parameters,
        body,
        response,
        codes,
        group,
        version,
        kind,
    }
}

fn body(definition: Name) -> Option<Body> {
    Some(Body {
        definition,
        required: true,
    })
}

fn options() -> Option<Body> {
    Some(Body {
        definition: DELETE_OPTIONS.into(),
        required: false,
    })
}

/// e.g. `replaceAppsV1NamespacedDeploymentStatus`.
fn id(
    resource: &Resource,
    subresource: Option<&Subresource>,
    verb: &str,
    word: &str,
    suffix: &str,
) -> String {
    let collection = if verb == "deletecollection" {
        "Collection"
    } else {
        ""
    };
    let scope = match resource.namespaced && suffix.is_empty() {
        true => "Namespaced",
        false => "",
    };
    format!(
        "{word}{}{}{collection}{scope}{}{}{suffix}",
        camel(group_word(&resource.group)),
        camel(&resource.version),
        resource.kind,
        camel(subresource.map_or("", |subresource| subresource.name)),
    )
}

/// e.g. `rbacAuthorization_v1`.
pub(super) fn tag(group: &str, version: &str) -> String {
    let word = camel(group_word(group));
    format!("{}{}_{version}", word[..1].to_lowercase(), &word[1..])
}

/// e.g. `RbacAuthorizationV1`.
pub(super) fn group_version_word(group: &str, version: &str) -> String {
    camel(group_word(group)) + &camel(version)
}

fn group_word(group: &str) -> &str {
    match group {
        "" => "core",
        _ => group.trim_end_matches(".k8s.io"),
    }
}

fn camel(text: &str) -> String {
    text.split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| word[..1].to_uppercase() + &word[1..])
        .collect()
}
