//! `/healthz`, `/livez` and `/readyz`: one word, or with `verbose` every check; `exclude` leaves
//! checks out, and each check has a path of its own. The checks' names are upstream's where there
//! is such a part here.

use std::collections::BTreeSet;

use http::Response;

use super::not_found;
use crate::body::Body;
use crate::response;
use crate::server::Context;

/// What a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// That requests are answered at all.
    Always,
    /// That the store answers.
    Store,
    /// That the cluster's first objects are there.
    Bootstrap,
    /// That the server is not on its way out.
    Shutdown,
}

const CHECKS: [(&str, Check); 11] = [
    ("ping", Check::Always),
    ("log", Check::Always),
    ("etcd", Check::Store),
    ("informer-sync", Check::Bootstrap),
    (
        "poststarthook/start-apiserver-admission-initializer",
        Check::Always,
    ),
    (
        "poststarthook/generic-apiserver-start-informers",
        Check::Always,
    ),
    ("poststarthook/rbac/bootstrap-roles", Check::Bootstrap),
    (
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        Check::Bootstrap,
    ),
    (
        "poststarthook/start-system-namespaces-controller",
        Check::Bootstrap,
    ),
    (
        "poststarthook/start-cluster-authentication-info-controller",
        Check::Always,
    ),
    ("shutdown", Check::Shutdown),
];

/// The checks of an endpoint, in order.
fn checks_of(endpoint: &str) -> impl Iterator<Item = (&'static str, Check)> + use<> {
    let ready = endpoint == "readyz";
    CHECKS.into_iter().filter(move |(name, _)| match *name {
        "informer-sync" | "shutdown" => ready,
        _ => true,
    })
}

pub(super) async fn answer(context: &Context, endpoint: &str, rest: &[&str]) -> Response<Body> {
    let name = rest.join("/");
    if !name.is_empty() {
        let Some((_, check)) = checks_of(endpoint).find(|(known, _)| *known == name) else {
            return not_found();
        };
        return match passes(context, check).await {
            Ok(()) => response::text(200, "ok"),
            Err(why) => response::text(500, format!("internal server error: {why}\n")),
        };
    }
    let excluded: BTreeSet<&str> = context.query.all("exclude").collect();
    let mut unknown = excluded.clone();
    let (mut lines, mut failed) = (String::new(), false);
    for (name, check) in checks_of(endpoint) {
        if excluded.contains(name) {
            unknown.remove(name);
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if passes(context, check).await.is_ok() {
            lines.push_str(&format!("[+]{name} ok\n"));
        } else {
            failed = true;
            lines.push_str(&format!("[-]{name} failed: reason withheld\n"));
        }
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        lines.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            names.join(",")
        ));
    }
    if failed {
        return response::text(500, format!("{lines}{endpoint} check failed\n"));
    }
    match context.query.all("verbose").next() {
        None => response::text(200, "ok"),
        Some(_) => response::text(200, format!("{lines}{endpoint} check passed\n")),
    }
}

async fn passes(context: &Context, check: Check) -> Result<(), String> {
    let server = &context.server;
    match check {
        Check::Always => Ok(()),
        Check::Store => match server.store.revision().await {
            Ok(_) => Ok(()),
            Err(problem) => Err(problem.to_string()),
        },
        Check::Bootstrap if server.is_ready() => Ok(()),
        Check::Bootstrap => Err("not finished".to_string()),
        Check::Shutdown if context.closing.is_cancelled() => {
            Err("process is shutting down".to_string())
        }
        Check::Shutdown => Ok(()),
    }
}
