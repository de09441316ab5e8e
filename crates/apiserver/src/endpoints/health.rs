//! `/healthz`, `/livez` and `/readyz`: one word, or with `verbose` every check; `exclude` leaves
//! checks out, and each check has a path of its own. The checks' names are upstream's where there
//! is such a part here.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use http::Response;

use super::not_found;
use crate::body::Body;
use crate::context::Context;
use crate::response;
use crate::startup::Stage;

/// How long the store may take to answer.
const STORE_LIMIT: Duration = Duration::from_secs(2);

/// What a check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// That requests are answered at all.
    Always,
    /// That the log can be written.
    Log,
    /// That the store answers, with a quorum.
    Store,
    /// That the cache still follows the store.
    Following,
    /// That something the start does is done.
    Started(Stage),
    /// That the server is not on its way out.
    Shutdown,
}

const CHECKS: [(&str, Check); 20] = [
    ("ping", Check::Always),
    ("log", Check::Log),
    ("etcd", Check::Store),
    ("etcd-readiness", Check::Store),
    ("informer-sync", Check::Started(Stage::Synced)),
    (
        // Admission is there with the first request.
        "poststarthook/start-apiserver-admission-initializer",
        Check::Always,
    ),
    (
        "poststarthook/generic-apiserver-start-informers",
        Check::Following,
    ),
    (
        "poststarthook/start-system-namespaces-controller",
        Check::Started(Stage::Namespaces),
    ),
    (
        "poststarthook/storage-readiness",
        Check::Started(Stage::Storage),
    ),
    (
        "poststarthook/start-service-ip-repair-controllers",
        Check::Started(Stage::ServiceAddresses),
    ),
    (
        "poststarthook/rbac/bootstrap-roles",
        Check::Started(Stage::Roles),
    ),
    (
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        Check::Started(Stage::PriorityClasses),
    ),
    (
        "poststarthook/bootstrap-controller",
        Check::Started(Stage::Endpoints),
    ),
    (
        "poststarthook/start-kubernetes-service-cidr-controller",
        Check::Started(Stage::ServiceRange),
    ),
    (
        "poststarthook/start-kube-aggregator-informers",
        Check::Started(Stage::ApiServices),
    ),
    (
        "poststarthook/apiservice-registration-controller",
        Check::Started(Stage::ApiServices),
    ),
    (
        "poststarthook/apiservice-status-local-available-controller",
        Check::Started(Stage::ApiServices),
    ),
    (
        "poststarthook/kube-apiserver-autoregistration",
        Check::Started(Stage::ApiServices),
    ),
    (
        "autoregister-completion",
        Check::Started(Stage::ApiServices),
    ),
    ("shutdown", Check::Shutdown),
];

/// The checks of an endpoint, in order.
fn checks_of(endpoint: &str) -> impl Iterator<Item = (&'static str, Check)> + use<> {
    let ready = endpoint == "readyz";
    CHECKS.into_iter().filter(move |(name, _)| match *name {
        "etcd-readiness" | "informer-sync" | "shutdown" => ready,
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
    // Asked once, for however many checks it is.
    let mut store = None;
    for (name, check) in checks_of(endpoint) {
        if excluded.contains(name) {
            unknown.remove(name);
            lines.push_str(&format!("[+]{name} excluded: ok\n"));
            continue;
        }
        let passed = match (check, &store) {
            (Check::Store, Some(passed)) => *passed,
            _ => passes(context, check).await.is_ok(),
        };
        if check == Check::Store {
            store = Some(passed);
        }
        if passed {
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
    let failed = |why: &str| Err(why.to_string());
    match check {
        Check::Always => Ok(()),
        Check::Log => std::io::stderr()
            .flush()
            .map_err(|problem| problem.to_string()),
        Check::Store => {
            let revision = tokio::time::timeout(STORE_LIMIT, server.objects.store().revision());
            match revision.await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(problem)) => Err(problem.to_string()),
                Err(_) => failed("context deadline exceeded"),
            }
        }
        Check::Following if server.follower.is_finished() => failed("the store was closed"),
        Check::Following => Ok(()),
        Check::Started(stage) if server.startup.is_done(stage) => Ok(()),
        Check::Started(_) => failed("not finished"),
        Check::Shutdown if context.closing.is_cancelled() => failed("process is shutting down"),
        Check::Shutdown => Ok(()),
    }
}
