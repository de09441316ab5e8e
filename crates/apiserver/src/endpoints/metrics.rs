//! `/metrics`: a few numbers under upstream's names.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use http::Response;

use crate::body::Body;
use crate::response;
use crate::server::Context;

pub(super) fn render(context: &Context) -> Response<Body> {
    let server = &context.server;
    let mut text = String::new();
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# TYPE apiserver_request_total counter");
    let _ = writeln!(
        text,
        "apiserver_request_total {}",
        read(&server.metrics.requests)
    );
    let _ = writeln!(text, "# TYPE apiserver_request_terminations_total counter");
    let _ = writeln!(
        text,
        "apiserver_request_terminations_total {}",
        read(&server.metrics.failures)
    );
    let _ = writeln!(text, "# TYPE apiserver_current_inflight_requests gauge");
    let _ = writeln!(
        text,
        "apiserver_current_inflight_requests {}",
        read(&server.metrics.in_flight)
    );
    let _ = writeln!(text, "# TYPE apiserver_resource_objects gauge");
    for kind in server.cache.kinds() {
        let _ = writeln!(
            text,
            "apiserver_resource_objects{{group=\"{}\",resource=\"{}\"}} {}",
            kind.resource.group,
            kind.resource.plural,
            kind.len()
        );
    }
    let _ = writeln!(text, "# TYPE apiserver_longrunning_requests gauge");
    for kind in server.cache.kinds() {
        let _ = writeln!(
            text,
            "apiserver_longrunning_requests{{group=\"{}\",resource=\"{}\",verb=\"WATCH\"}} {}",
            kind.resource.group,
            kind.resource.plural,
            kind.watchers()
        );
    }
    response::bytes(
        200,
        "text/plain; version=0.0.4; charset=utf-8",
        text.into_bytes(),
    )
}
