//! What a request is about: a verb on a resource, or a path that is none. Pure; the words are those
//! that authorization rules use.

use api::catalogue::{self, Resource};

use crate::query::{Query, decode};

/// The facts authorization and dispatch need.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestInfo {
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the HTTP
    /// method in lower case for paths that are not resources.
    pub verb: &'static str,
    /// False for health, discovery and the like; then only `path` and `verb` count.
    pub is_resource: bool,
    pub group: String,
    pub version: String,
    /// The plural as the path has it.
    pub plural: String,
    /// What is served there, if anything.
    pub resource: Option<&'static Resource>,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

impl RequestInfo {
    pub fn parse(method: &http::Method, path: &str, query: &Query) -> RequestInfo {
        let mut info = RequestInfo {
            path: path.to_string(),
            verb: plain_verb(method),
            ..RequestInfo::default()
        };
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let mut rest = match parts.first().copied() {
            Some("api") if parts.len() > 2 => {
                info.version = decode(parts[1], false);
                &parts[2..]
            }
            Some("apis") if parts.len() > 3 => {
                info.group = decode(parts[1], false);
                info.version = decode(parts[2], false);
                &parts[3..]
            }
            _ => return info,
        };
        info.is_resource = true;
        let mut watch_path = false;
        if rest[0] == "watch" && rest.len() > 1 {
            watch_path = true;
            rest = &rest[1..];
        }
        if rest[0] == "namespaces" && rest.len() > 1 {
            info.namespace = decode(rest[1], false);
            // `/namespaces/x` and its own subresources are about the namespace itself.
            let own =
                rest.len() == 2 || rest.len() == 3 && matches!(rest[2], "status" | "finalize");
            if !own {
                rest = &rest[2..];
            }
        }
        info.plural = decode(rest[0], false);
        info.name = rest
            .get(1)
            .map(|name| decode(name, false))
            .unwrap_or_default();
        info.subresource = match rest.get(2).copied() {
            None => String::new(),
            // What follows is the path behind the proxy.
            Some("proxy") => "proxy".to_string(),
            Some(_) => {
                let below = rest[2..].iter().map(|part| decode(part, false));
                below.collect::<Vec<_>>().join("/")
            }
        };
        info.resource = catalogue::find(&info.group, &info.version, &info.plural);
        info.verb = match info.verb {
            "get" | "head" if watch_path => "watch",
            "get" | "head" if info.name.is_empty() && query.flag("watch") => "watch",
            "get" | "head" if info.name.is_empty() => "list",
            "get" | "head" => "get",
            "post" => "create",
            "put" => "update",
            "delete" if info.name.is_empty() => "deletecollection",
            other => other,
        };
        if watch_path && !info.subresource.is_empty() {
            // Nothing below an object can be watched.
            info.resource = None;
        }
        info
    }
}

fn plain_verb(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, uri: &str, expected: &str) {
        let uri: http::Uri = uri.parse().unwrap();
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        let info = RequestInfo::parse(&method, uri.path(), &Query::parse(uri.query()));
        let text = match info.is_resource {
            true => format!(
                "{} {}/{} {} ns={} name={}",
                info.verb,
                info.group,
                info.version,
                [info.plural.as_str(), info.subresource.as_str()]
                    .join("/")
                    .trim_end_matches('/'),
                info.namespace,
                info.name
            ),
            false => format!("{} {}", info.verb, info.path),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn paths_become_verbs_on_resources() {
        check("GET", "/api/v1/pods", "list /v1 pods ns= name=");
        check("GET", "/api/v1/pods?watch=true", "watch /v1 pods ns= name=");
        check(
            "GET",
            "/api/v1/namespaces/a/pods/b/log",
            "get /v1 pods/log ns=a name=b",
        );
        check(
            "POST",
            "/api/v1/namespaces/a/services/https:b:c/proxy/x/y?z",
            "create /v1 services/proxy ns=a name=https:b:c",
        );
        check(
            "GET",
            "/api/v1/namespaces/a",
            "get /v1 namespaces ns=a name=a",
        );
        check(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            "update /v1 namespaces/finalize ns=a name=a",
        );
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection apps/v1 deployments ns=a name=",
        );
        check(
            "POST",
            "/api/v1/namespaces",
            "create /v1 namespaces ns= name=",
        );
        check("GET", "/apis/apps/v1", "get /apis/apps/v1");
        check("GET", "/healthz", "get /healthz");
    }
}
