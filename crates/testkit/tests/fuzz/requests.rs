//! HTTP paths and queries, sent to a whole server within this process.

use apiserver::Identity;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use testkit::Cluster;
use tower::Service;

use crate::driver::{Bound, run};
use crate::input;
use crate::random::Random;

const CORPUS: [&str; 14] = [
    "/api/v1/pods",
    "/api/v1/namespaces/default/pods/web/log?container=a&tailLines=3",
    "/api/v1/namespaces/default/services/https:a:b/proxy/x/y?z",
    "/apis/apps/v1/namespaces/default/deployments/web/scale",
    "/api/v1/watch/namespaces/default/pods",
    "/api/v1/nodes?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=3",
    "/api/v1/configmaps?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
    "/api/v1/pods?resourceVersion=0&resourceVersionMatch=NotOlderThan&timeoutSeconds=1",
    "/apis",
    "/openapi/v3/apis/apps/v1",
    "/healthz/ping",
    "/version",
    "/api/v1/namespaces/a%2fb/pods/%2e%2e",
    "/metrics",
];

/// Some controllers' work may fall into the same moment.
const SERVING: Bound = Bound {
    bytes: 64 << 20,
    bytes_per_byte: 20_000,
};

fn path(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => [b"/".as_slice(), input::pieces(random).as_bytes()].concat(),
        1 => [b"/api/v1/".as_slice(), input::repeated(random).as_bytes()].concat(),
        2 => random.pick(&CORPUS).as_bytes().to_vec(),
        3 => {
            let (one, other) = (random.pick(&CORPUS), random.pick(&CORPUS));
            [one.as_bytes(), other.as_bytes()].concat()
        }
        _ => input::damaged(random.pick(&CORPUS).as_bytes(), random),
    }
}

#[test]
fn random_http_paths_do_not_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let cluster = runtime
        .block_on(Cluster::builder().simulated(7).start())
        .expect("a cluster");
    run("http-path", SERVING, path, move |input| {
        let Ok(uri) = http::Uri::try_from(input) else {
            return;
        };
        // Watches and followed logs would go on.
        let text = uri.to_string();
        if text.contains("watch") || text.contains("follow") {
            return;
        }
        let methods = [Method::GET, Method::DELETE, Method::HEAD, Method::POST];
        let method = methods[input.len() % methods.len()].clone();
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .body(Full::new(Bytes::new()));
        let Ok(request) = request else {
            return;
        };
        let server = cluster.network().server().expect("the server runs");
        let mut service = server.in_process(Identity::administrator());
        let Ok(response) = runtime.block_on(service.call(request));
        assert_ne!(response.status().as_u16(), 500, "{text}");
    });
}
