//! What goes on while large requests take their time.

use std::sync::mpsc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use store::disk::SimulatedDisk;
use store::embedded::{Embedded, Options};
use tower::Service;

use super::*;
use crate::{ApiServer, Body, Config, Environment, Identity};

async fn start() -> ApiServer {
    let environment = Environment::simulated(1, 1_800_000_000_000_000);
    let disk = SimulatedDisk::new(1).mount();
    let store = Embedded::open(disk, environment.clone(), Options::default()).await;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ApiServer::start(Config {
        store: store.unwrap(),
        environment: environment.clone(),
        timelines: trace::Timelines::open(None, environment).unwrap(),
        client_ca_pem: parameters.self_signed(&key).unwrap().pem(),
        service_account_key_pem: key.serialize_pem(),
        issuer: "https://kubernetes.default.svc.cluster.local".to_string(),
        service_range: "10.96.0.0/12".to_string(),
        dns_service_ip: "10.96.0.10".to_string(),
        advertise: "192.0.2.1:6443".parse().unwrap(),
        kubelet_client: None,
        aggregation: Default::default(),
        cluster_domain: "cluster.local".to_string(),
        shares_store: false,
        compaction: crate::COMPACTION,
        admission: crate::AdmissionConfig::default(),
        runtime_config: Default::default(),
        feature_gates: Default::default(),
    })
    .await
    .unwrap()
}

/// The status code of the answer.
async fn ask(server: &ApiServer, method: &str, path: &str, body: Vec<u8>) -> u16 {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let mut service = server.in_process(Identity::administrator());
    let response: Response<Body> = service.call(request).await.unwrap();
    let code = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    code
}

fn config_map(bytes: usize) -> Vec<u8> {
    let value = "x".repeat(bytes);
    api::document!({"metadata": {"name": "large"}, "data": {"a": value}}).to_json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_request_does_not_delay_other_requests() {
    let server = start().await;
    let (open, gate) = mpsc::channel();
    *server.server.heavy.gate.lock() = Some(gate);
    let path = "/api/v1/namespaces/default/configmaps";
    let large = tokio::spawn({
        let server = server.clone();
        async move { ask(&server, "POST", path, config_map(LARGE)).await }
    });
    // The only worker thread goes on while the thread of the large request stands still.
    while server.server.heavy.gate.lock().is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask(&server, "GET", "/readyz", Vec::new()).await, 200);
    assert_eq!(
        ask(
            &server,
            "POST",
            path,
            b"{\"metadata\":{\"name\":\"small\"}}".to_vec()
        )
        .await,
        201
    );
    assert!(!large.is_finished());
    open.send(()).unwrap();
    assert_eq!(large.await.unwrap(), 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn changes_of_a_large_object_are_large_requests() {
    let server = start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let created = ask(&server, "POST", path, config_map(LARGE)).await;
    assert_eq!(created, 201);
    let (open, gate) = mpsc::channel();
    open.send(()).unwrap();
    *server.server.heavy.gate.lock() = Some(gate);
    let path = format!("{path}/large");
    let empty = b"{}".to_vec();
    assert_eq!(ask(&server, "DELETE", &path, empty).await, 200);
    assert!(server.server.heavy.gate.lock().is_none());
}

#[tokio::test]
async fn in_a_runtime_of_one_thread_everything_runs_in_place() {
    let heavy = Heavy::new();
    let here = std::thread::current().id();
    let there = heavy.run("jane", false, async { Ok(std::thread::current().id()) });
    assert_eq!(there.await.unwrap(), here);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_user_never_has_all_places_and_own_components_have_others() {
    let heavy = Arc::new(Heavy::new());
    let places = heavy.users.places.available_permits();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let lasting = |user: &'static str| {
        let (heavy, mut stopped) = (heavy.clone(), stopped.clone());
        tokio::spawn(async move {
            let work = async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
                Ok(())
            };
            heavy.run(user, false, work).await
        })
    };
    let greedy: Vec<_> = (0..places * 2).map(|_| lasting("jane")).collect();
    while heavy.users.places.available_permits() > places - places / 2 {
        tokio::task::yield_now().await;
    }
    let other = heavy.run("joe", false, async { Ok(1) }).await;
    assert_eq!(other.unwrap(), 1);
    let others: Vec<_> = (0..places).map(|_| lasting("joe")).collect();
    while heavy.users.places.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let own = heavy.run("system:kube-scheduler", true, async { Ok(2) });
    assert_eq!(own.await.unwrap(), 2);
    stop.send(true).unwrap();
    for task in greedy.into_iter().chain(others) {
        task.await.unwrap().unwrap();
    }
    assert!(heavy.users.users.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_user_with_too_many_large_requests_gets_429() {
    let heavy = Arc::new(Heavy::new());
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let per_user = heavy.users.per_user + WAITING;
    let tasks: Vec<_> = (0..per_user + 3)
        .map(|_| {
            let (heavy, mut stopped) = (heavy.clone(), stopped.clone());
            tokio::spawn(async move {
                let work = async move {
                    let _ = stopped.wait_for(|stopped| *stopped).await;
                    Ok(())
                };
                heavy.run("jane", false, work).await
            })
        })
        .collect();
    let mut refused = 0;
    while refused < 3 {
        tokio::task::yield_now().await;
        refused = tasks.iter().filter(|task| task.is_finished()).count();
    }
    stop.send(true).unwrap();
    let mut codes = Vec::new();
    for task in tasks {
        codes.extend(task.await.unwrap().err().map(|status| status.code()));
    }
    assert_eq!(codes, [429, 429, 429]);
}
