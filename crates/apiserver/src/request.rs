//! What a request is about: a verb on a resource, or a path that is none. Pure; the words are those
//! that authorization rules use.

use std::sync::Arc;

use api::Resource;
use api::Status;
use api::catalogue::Snapshot;

use crate::query::{Query, decode_path};

/// The facts authorization and dispatch need. Both use this one reading of the path: what was
/// authorized is what is acted on.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestInfo {
    /// The path, percent-decoded.
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
    pub resource: Option<Arc<Resource>>,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// Whether the path names a namespace before the plural: `/namespaces/{namespace}/{plural}`.
    pub is_below_namespace: bool,
    /// Whether the verb comes from the path: `/api/v1/watch/…`.
    pub is_watch_path: bool,
    /// Whether the path can lead anywhere: it has no empty segment, and nothing follows the
    /// subresource but the path behind a proxy.
    pub is_well_formed: bool,
    /// How many segments the path has up to the subresource.
    pub depth: usize,
}

impl RequestInfo {
    /// `None` for a path that cannot be decoded. As in upstream, a path is decoded before it is
    /// split: an encoded slash is a slash.
    pub fn parse(
        kinds: &Snapshot,
        method: &http::Method,
        path: &str,
        query: &Query,
    ) -> Option<RequestInfo> {
        let path = decode_path(path)?;
        let mut info = RequestInfo {
            verb: plain_verb(method),
            ..RequestInfo::default()
        };
        info.read(kinds, &path, query);
        info.path = path;
        Some(info)
    }

    fn read(&mut self, kinds: &Snapshot, path: &str, query: &Query) {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let mut rest = match parts.first().copied() {
            Some("api") if parts.len() > 2 => {
                self.version = parts[1].to_string();
                &parts[2..]
            }
            Some("apis") if parts.len() > 3 => {
                self.group = parts[1].to_string();
                self.version = parts[2].to_string();
                &parts[3..]
            }
            _ => return,
        };
        self.is_resource = true;
        if rest[0] == "watch" && rest.len() > 1 {
            self.is_watch_path = true;
            rest = &rest[1..];
        }
        if rest[0] == "namespaces" && rest.len() > 1 {
            self.namespace = rest[1].to_string();
            // `/namespaces/x` and its own subresources are about the namespace itself.
            let is_own = rest.len() == 2 || matches!(rest[2], "status" | "finalize");
            if !is_own {
                self.is_below_namespace = true;
                rest = &rest[2..];
            }
        }
        self.plural = rest[0].to_string();
        self.name = rest.get(1).copied().unwrap_or_default().to_string();
        self.subresource = rest.get(2).copied().unwrap_or_default().to_string();
        self.depth = parts.len() - rest.len() + rest.len().min(3);
        let is_proxy = self.subresource == "proxy";
        // As upstream has it, what is read from no namespace is read from all of them.
        let of_all_namespaces = self.is_below_namespace
            && self.namespace.is_empty()
            && self.name.is_empty()
            && matches!(self.verb, "get" | "head");
        let empty = parts[..self.depth].iter().filter(|part| part.is_empty());
        self.is_well_formed =
            (rest.len() <= 3 || is_proxy) && empty.count() == usize::from(of_all_namespaces);
        let found = kinds.find(&self.group, &self.version, &self.plural);
        self.resource = found.filter(|resource| self.leads_to(resource)).cloned();
        self.verb = match self.verb {
            _ if self.is_watch_path => "watch",
            "get" | "head" if self.name.is_empty() && query.flag("watch") => "watch",
            "get" | "head" if self.name.is_empty() => "list",
            "get" | "head" => "get",
            "post" => "create",
            "put" => "update",
            "delete" if self.name.is_empty() => "deletecollection",
            other => other,
        };
    }

    /// Refuses names that no object can have, before anything looks for one.
    pub fn check_names(&self) -> Result<(), Status> {
        for (what, text) in [("Name", &self.name), ("Namespace", &self.namespace)] {
            if let Some(problem) = api::metadata::names::path_segment(text, false).first() {
                return Err(Status::bad_request(format!(
                    "{what} parameter invalid: {text:?}: {problem}"
                )));
            }
        }
        Ok(())
    }

    /// Whether a path of this form exists for the resource. Cluster-scoped objects have no path
    /// below a namespace, and one object of a namespaced kind has none outside its namespace.
    pub fn leads_to(&self, resource: &Resource) -> bool {
        let in_place = match resource.namespaced {
            true => self.is_below_namespace || self.name.is_empty(),
            false => !self.is_below_namespace,
        };
        // Nothing below an object can be watched by its path.
        let watchable = !self.is_watch_path || self.subresource.is_empty();
        self.is_well_formed && in_place && watchable
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
    use api::catalogue::built_in;

    use super::*;

    fn check(method: &str, uri: &str, expected: &str) {
        let uri: http::Uri = uri.parse().unwrap();
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        let info = {
            let query = Query::parse(uri.query());
            RequestInfo::parse(built_in(), &method, uri.path(), &query).unwrap()
        };
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

    #[test]
    fn a_path_is_read_as_upstream_reads_it() {
        // Decoded before it is split.
        check(
            "GET",
            "/api/v1/namespaces/a%2Fpods%2fb",
            "get /v1 pods ns=a name=b",
        );
        check("GET", "/%61pi/v1/pods", "list /v1 pods ns= name=");
        check("GET", "/api/v1/namespaces//pods", "list /v1 pods ns= name=");
        check(
            "PUT",
            "/api/v1/namespaces/a/status/b",
            "update /v1 namespaces/status ns=a name=a",
        );
        check(
            "GET",
            "/api/v1/namespaces/a/pods/b/status/c",
            "get /v1 pods/status ns=a name=b",
        );
        // The verb of a watch path is its own, regardless of the method.
        check(
            "DELETE",
            "/api/v1/watch/namespaces/a/pods/b",
            "watch /v1 pods ns=a name=b",
        );
        let undecodable = ["/api/v1/%zz", "/api/v1/%f", "/api/v1/%ff"];
        for path in undecodable {
            let read = RequestInfo::parse(built_in(), &http::Method::GET, path, &Query::default());
            assert!(read.is_none(), "{path}");
        }
    }

    /// All forms of paths that could be about an object of the kind, most of which are none.
    fn paths(resource: &Resource) -> Vec<String> {
        let root = match &*resource.group {
            "" => format!("/api/{}", &*resource.version),
            group => format!("/apis/{group}/{}", &*resource.version),
        };
        let plural = &*resource.plural;
        let mut below = vec![String::new(), "/".to_string()];
        let subresources = resource.subresources.iter().map(|known| known.name);
        for subresource in subresources.chain(["status", "finalize", "proxy", "log", "other"]) {
            below.push(format!("/{subresource}"));
            below.push(format!("/{subresource}/more"));
        }
        let mut paths = Vec::new();
        for prefix in ["", "/watch"] {
            for place in ["", "/namespaces/mine", "/namespaces/", "/namespaces/mine/"] {
                for name in ["", "/victim", "//victim", "/%2e%2e", "/victim%2Fother"] {
                    for rest in &below {
                        paths.push(format!("{root}{prefix}{place}/{plural}{name}{rest}"));
                    }
                }
            }
        }
        paths
    }

    #[test]
    fn every_path_acts_on_what_was_authorized() {
        use crate::authorization::Attributes;
        let mut served = 0;
        for resource in built_in().resources() {
            for path in paths(resource) {
                for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                    let method = http::Method::from_bytes(method.as_bytes()).unwrap();
                    let query = Query::default();
                    let info = RequestInfo::parse(built_in(), &method, &path, &query).unwrap();
                    let Some(found) = &info.resource else {
                        continue;
                    };
                    served += 1;
                    let asked = Attributes::of(&info);
                    // Verbs drop the namespace of what has none, and nothing else.
                    let acted = match found.namespaced {
                        true => (asked.namespace.as_str(), asked.name.as_str()),
                        false => ("", asked.name.as_str()),
                    };
                    let of_namespace = (&*found.group, &*found.plural) == ("", "namespaces");
                    let authorized = match of_namespace && !asked.name.is_empty() {
                        // Authorized in the namespace itself, as upstream has it.
                        true if asked.namespace == asked.name => ("", asked.name.as_str()),
                        _ => (asked.namespace.as_str(), asked.name.as_str()),
                    };
                    assert_eq!(acted, authorized, "{method} {path}");
                    assert_eq!(
                        (asked.group.as_str(), asked.resource.as_str()),
                        (&*found.group, &*found.plural),
                        "{method} {path}"
                    );
                }
            }
        }
        assert!(served > 1000, "{served}");
    }
}
