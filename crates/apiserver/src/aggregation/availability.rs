//! Whether an extension API server can be used: the condition `Available` of its APIService, with
//! upstream's reasons and words. It is looked at when its Service or endpoints change, and on a
//! slow period, since a server can fail without any of that.

use std::sync::{Arc, Weak};
use std::time::Duration;

use api::strategy::api_service;
use api::{Reason, Status, Value};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::fetch::{self, Question};
use super::resolve;
use crate::context::Context;
use crate::extension_servers::{Backend, Remote, ServiceReference};
use crate::identity::MASTERS;
use crate::registry::{Target, update};
use crate::server::Server;
use crate::service_endpoints;

/// How often a server is asked while all is well.
const PERIOD: Duration = Duration::from_secs(30);
/// How soon after a failure; it doubles up to the period.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many endpoints are asked; one that answers is enough.
const MOST_PROBES: usize = 5;
/// The answer itself is of no interest.
const MOST_BYTES: usize = 8 << 20;
const PROBER: &str = "system:kube-aggregator";

/// What is said about a server, without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Finding {
    fn unavailable(reason: &'static str, message: String) -> Finding {
        Finding {
            status: "False",
            reason,
            message,
        }
    }

    fn is_available(&self) -> bool {
        self.status == "True"
    }
}

/// Keeps the condition of one APIService until it leads elsewhere.
pub(super) async fn keep(server: Weak<Server>, remote: Arc<Remote>) {
    let lasting = &remote.lasting;
    let mut retry = FIRST_RETRY;
    loop {
        let Some(running) = server.upgrade() else {
            return;
        };
        let work = async {
            let checked = check(&running, &remote).await;
            if checked.is_available() {
                running.extensions.found_available(&remote);
            }
            let written = write(&running, &remote, &checked).await;
            (checked, written)
        };
        let (checked, written) = tokio::select! {
            biased;
            () = lasting.stop.cancelled() => return,
            done = work => done,
        };
        drop(running);
        if let Err(problem) = &written {
            tracing::warn!(api_service = remote.name, %problem, "the availability could not be written");
        }
        let pause = match checked.is_available() && written.is_ok() {
            true => {
                retry = FIRST_RETRY;
                PERIOD
            }
            false => {
                retry = (retry * 2).min(PERIOD);
                retry
            }
        };
        tokio::select! {
            biased;
            () = lasting.stop.cancelled() => return,
            () = lasting.check.notified() => retry = FIRST_RETRY,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn check(server: &Server, remote: &Remote) -> Finding {
    match check_service(server, &remote.specification.service) {
        Some(finding) => finding,
        None => match probe(server, remote).await {
            Ok(()) => Finding {
                status: "True",
                reason: "Passed",
                message: "all checks passed".to_string(),
            },
            Err(message) => Finding::unavailable("FailedDiscoveryCheck", message),
        },
    }
}

/// What the cluster's own objects say against the server.
fn check_service(server: &Server, reference: &ServiceReference) -> Option<Finding> {
    let ServiceReference {
        namespace,
        name,
        port,
    } = reference;
    let about = format!("service/{name} in {namespace:?}");
    let Ok(service) = service_endpoints::service(&server.cache, namespace, name) else {
        let message = format!("{about} is not present");
        return Some(Finding::unavailable("ServiceNotFound", message));
    };
    if service.str_at(&["spec", "type"]) != "ClusterIP" {
        return None;
    }
    let Ok(port_name) = service_endpoints::port_name(&service, name, (*port).into()) else {
        let message = format!("{about} is not listening on port {port}");
        return Some(Finding::unavailable("ServicePortError", message));
    };
    let slices = service_endpoints::slices(&server.cache, namespace, name);
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for {about}");
        return Some(Finding::unavailable("EndpointsNotFound", message));
    }
    let leads_anywhere = |slice: &Value| {
        let is_ready = service_endpoints::ready(slice).next().is_some();
        is_ready && service_endpoints::slice_port(slice, port_name).is_some()
    };
    if !slices.iter().any(leads_anywhere) {
        let message =
            format!("endpointslices for {about} have no addresses with port name {port_name:?}");
        return Some(Finding::unavailable("MissingEndpoints", message));
    }
    None
}

/// Asks for the description of the group version, which every server must be able to give.
async fn probe(server: &Server, remote: &Remote) -> Result<(), String> {
    let backend = remote.backend.as_ref();
    let backend = backend.map_err(|problem| environment::chain(problem.as_ref()).to_string())?;
    let endpoints = resolve::endpoints(server, remote).map_err(|problem| problem.to_string())?;
    let permit = server.extensions.probes.acquire().await;
    let first = server.environment.random_u64() as usize % endpoints.len().max(1);
    let chosen = (0..endpoints.len().min(MOST_PROBES))
        .map(|number| endpoints[(first + number) % endpoints.len()]);
    let path = remote.specification.root();
    let mut asked: FuturesUnordered<_> = chosen
        .map(|address| probe_one(backend, address, &path))
        .collect();
    let mut last = Err(String::new());
    while let Some(outcome) = asked.next().await {
        last = outcome;
        if last.is_ok() {
            break;
        }
    }
    drop(permit);
    last
}

async fn probe_one(
    backend: &Backend,
    address: std::net::SocketAddr,
    path: &str,
) -> Result<(), String> {
    let question = Question {
        path,
        accept: "application/json",
        etag: None,
        user: PROBER,
        groups: &[MASTERS],
        timeout: PROBE_TIMEOUT,
        most_bytes: MOST_BYTES,
    };
    let url = format!("https://{address}{path}");
    let failed = |problem: String| format!("failing or missing response from {url}: {problem}");
    match fetch::get(backend, address, &question).await {
        Ok(answer) if (200..300).contains(&answer.code) => Ok(()),
        Ok(answer) => Err(failed(format!("bad status from {url}: {}", answer.code))),
        Err(problem) => Err(failed(problem.to_string())),
    }
}

/// Writes the condition, unless the APIService meanwhile leads elsewhere.
async fn write(server: &Arc<Server>, remote: &Remote, finding: &Finding) -> Result<(), Status> {
    let now = server.timestamp();
    let of_remote = |object: &Value| {
        let specification = crate::extension_servers::Specification::of(object);
        specification.as_ref() == Some(&remote.specification)
    };
    write_condition(server, &remote.name, |object| {
        if of_remote(object) {
            let condition = api::document!({
                "type": "Available", "status": finding.status, "reason": finding.reason,
                "message": finding.message.as_str(),
            });
            set_condition(object, condition, &now);
        }
    })
    .await
}

/// What this server serves itself is always available, also when it was somebody else's before.
pub(super) async fn write_local(server: &Arc<Server>, name: &str) -> Result<(), Status> {
    let now = server.timestamp();
    write_condition(server, name, |object| {
        if !api_service::is_remote(object) {
            set_condition(object, api_service::local_available(), &now);
        }
    })
    .await
}

/// Whether the condition of an APIService of this server says what it should.
pub(super) fn is_settled_local(object: &Value) -> bool {
    let expected = api_service::local_available();
    api_service::condition(object, "Available").is_some_and(|found| {
        let same = |name: &str| found.get(name) == expected.get(name);
        ["status", "reason", "message"].into_iter().all(same)
    })
}

async fn write_condition(
    server: &Arc<Server>,
    name: &str,
    change: impl Fn(&mut Value) + Send + Sync,
) -> Result<(), Status> {
    let resource = &server
        .cache
        .resource("apiregistration.k8s.io", "apiservices");
    let target = Target {
        is_owned: false,
        ..Target::internal(resource, "", name, "status")
    };
    let context = Context::internal(server);
    let written = update(&context, &target, false, |old| {
        let mut new = old.clone();
        change(&mut new);
        Ok(new)
    });
    match written.await {
        Err(status) if status.reason == Reason::NotFound => Ok(()),
        result => result.map(drop),
    }
}

/// Puts a condition in place of the one of its type; its time changes only with its status.
fn set_condition(object: &mut Value, mut condition: Value, now: &str) {
    let kind = condition.str_at(&["type"]).to_string();
    let status = condition.str_at(&["status"]).to_string();
    let mut conditions = object.list_at(&["status", "conditions"]).to_vec();
    let known = conditions
        .iter_mut()
        .find(|known| known.str_at(&["type"]) == kind);
    let since = match &known {
        Some(known) if known.str_at(&["status"]) == status => known.str_at(&["lastTransitionTime"]),
        _ => now,
    };
    condition.set(&["lastTransitionTime"], since);
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    object.set(&["status", "conditions"], conditions);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_condition_changes_with_its_status_only() {
        let mut object = api::document!({});
        let condition = |status: &str, reason: &str| api::document!({"type": "Available", "status": status, "reason": reason});
        let since = |object: &Value| {
            let found = api_service::condition(object, "Available").unwrap();
            found.str_at(&["lastTransitionTime"]).to_string()
        };
        set_condition(&mut object, condition("False", "ServiceNotFound"), "1");
        set_condition(&mut object, condition("False", "MissingEndpoints"), "2");
        assert_eq!(since(&object), "1");
        set_condition(&mut object, condition("True", "Passed"), "3");
        assert_eq!(since(&object), "3");
        assert_eq!(object.list_at(&["status", "conditions"]).len(), 1);
        assert!(!is_settled_local(&object));
        set_condition(&mut object, api_service::local_available(), "4");
        assert!(is_settled_local(&object));
        assert_eq!(since(&object), "3");
    }
}
