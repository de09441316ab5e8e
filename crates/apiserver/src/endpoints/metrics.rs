//! `/metrics` in Prometheus' text form, under upstream's names.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use http::Response;

use super::process::Process;
use crate::body::Body;
use crate::context::Context;
use crate::metrics::{BUCKETS, Served};
use crate::response;

pub(super) async fn render(context: &Context) -> Response<Body> {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = requests(context, &mut text);
    let _ = objects(context, &mut text);
    let _ = made(context, &mut text);
    let _ = connections(context, &mut text);
    let _ = context.server.hooks.metrics.write(&mut text);
    let policies = &context.server.policies.validating.metrics;
    let _ = policies.write(&mut text);
    let _ = build(&mut text);
    let _ = process(&Process::read().await, &mut text);
    response::bytes(
        200,
        "text/plain; version=0.0.4; charset=utf-8",
        text.into_bytes(),
    )
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# HELP {name} [STABLE] {help}")?;
    writeln!(text, "# TYPE {name} {kind}")
}

fn requests(context: &Context, text: &mut String) -> std::fmt::Result {
    let metrics = &context.server.metrics;
    let requests = metrics.requests.lock().clone();
    let name = "apiserver_request_total";
    let help = "Counter of apiserver requests broken out for each verb, group, version, resource, scope, component, and HTTP response code.";
    head(text, name, "counter", help)?;
    for (served, counted) in &requests {
        for (code, number) in &counted.by_code {
            let labels = labels(served);
            writeln!(text, "{name}{{code=\"{code}\",{labels}}} {number}")?;
        }
    }
    let name = "apiserver_request_duration_seconds";
    let help = "Response latency distribution in seconds for each verb, group, version, resource, subresource, scope and component.";
    head(text, name, "histogram", help)?;
    for (served, counted) in requests
        .iter()
        .filter(|(served, _)| !served.is_long_running())
    {
        let labels = labels(served);
        let mut sum = 0;
        for (index, number) in counted.durations.iter().enumerate() {
            sum += number;
            let bound = BUCKETS
                .get(index)
                .map_or("+Inf".to_string(), f64::to_string);
            writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {sum}")?;
        }
        writeln!(text, "{name}_sum{{{labels}}} {}", counted.seconds)?;
        writeln!(text, "{name}_count{{{labels}}} {sum}")?;
    }
    let name = "apiserver_current_inflight_requests";
    let help = "Maximal number of currently used inflight request limit of this apiserver per request kind in last second.";
    head(text, name, "gauge", help)?;
    for (kind, reads) in [("mutating", false), ("readOnly", true)] {
        let number = metrics.in_flight(reads).load(Ordering::Relaxed);
        writeln!(text, "{name}{{request_kind=\"{kind}\"}} {number}")?;
    }
    let name = "apiserver_request_terminations_total";
    let help = "Number of requests which apiserver terminated in self-defense.";
    head(text, name, "counter", help)?;
    writeln!(text, "{name} {}", metrics.failures.load(Ordering::Relaxed))
}

/// Ours: upstream has no limits on connections.
fn connections(context: &Context, text: &mut String) -> std::fmt::Result {
    let counts = context.server.connections.counts();
    let name = "coracle_apiserver_connections";
    writeln!(
        text,
        "# HELP {name} Open connections, by whether a valid credential was shown."
    )?;
    writeln!(text, "# TYPE {name} gauge")?;
    for (authenticated, number) in [
        (true, counts.authenticated),
        (false, counts.unauthenticated),
    ] {
        writeln!(text, "{name}{{authenticated=\"{authenticated}\"}} {number}")?;
    }
    let name = "coracle_apiserver_connections_closed_total";
    writeln!(
        text,
        "# HELP {name} Connections closed because there were too many."
    )?;
    writeln!(text, "# TYPE {name} counter")?;
    for (reason, number) in [("evicted", counts.evicted), ("refused", counts.refused)] {
        writeln!(text, "{name}{{reason=\"{reason}\"}} {number}")?;
    }
    Ok(())
}

fn labels(served: &Served) -> String {
    let (group, version, plural) = served.names();
    format!(
        "component=\"apiserver\",dry_run=\"\",group=\"{}\",resource=\"{}\",scope=\"{}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"",
        group, plural, served.scope, served.subresource, served.verb, version
    )
}

fn objects(context: &Context, text: &mut String) -> std::fmt::Result {
    let cache = &context.server.cache;
    let name = "apiserver_resource_objects";
    let help = "Number of stored objects at the time of last check split by kind.";
    head(text, name, "gauge", help)?;
    for kind in cache.kinds().iter() {
        let (group, plural) = (&*kind.resource.group, &*kind.resource.plural);
        let number = kind.len();
        writeln!(
            text,
            "{name}{{group=\"{group}\",resource=\"{plural}\"}} {number}"
        )?;
    }
    let name = "apiserver_storage_objects";
    let help = "[DEPRECATED, consider using apiserver_resource_objects instead] Number of stored objects at the time of last check split by kind. In case of a fetching error, the value will be -1.";
    head(text, name, "gauge", help)?;
    for kind in cache.kinds().iter() {
        let (plural, number) = (kind.resource.qualified(), kind.len());
        writeln!(text, "{name}{{resource=\"{plural}\"}} {number}")?;
    }
    let name = "apiserver_watch_events_total";
    let help = "Number of events sent in watch clients";
    head(text, name, "counter", help)?;
    for (resource, number) in context.server.metrics.watch_events() {
        let (group, plural) = (&*resource.group, &*resource.plural);
        let version = &*resource.version;
        writeln!(
            text,
            "{name}{{group=\"{group}\",resource=\"{plural}\",version=\"{version}\"}} {number}"
        )?;
    }
    let name = "apiserver_longrunning_requests";
    let help = "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.";
    head(text, name, "gauge", help)?;
    for kind in cache.kinds().iter() {
        let (group, plural) = (&*kind.resource.group, &*kind.resource.plural);
        let (version, number) = (&*kind.resource.version, kind.watchers());
        writeln!(
            text,
            "{name}{{component=\"apiserver\",group=\"{group}\",resource=\"{plural}\",scope=\"\",subresource=\"\",verb=\"WATCH\",version=\"{version}\"}} {number}"
        )?;
    }
    Ok(())
}

/// What was made anew rather than taken from where it is kept: it grows with changes, not with
/// readers.
fn made(context: &Context, text: &mut String) -> std::fmt::Result {
    let cache = &context.server.cache;
    let name = "coracle_forms_made_total";
    writeln!(
        text,
        "# HELP {name} [ALPHA] Forms of objects made, by form."
    )?;
    writeln!(text, "# TYPE {name} counter")?;
    let (messages, versions) = cache.forms.made();
    let (pieces, bytes) = cache.pieces.made();
    let events = cache.frames.load(Ordering::Relaxed);
    for (form, number) in [
        ("protobuf", messages),
        ("version", versions),
        ("watch_event", events),
        ("gzip_piece", pieces),
    ] {
        writeln!(text, "{name}{{form=\"{form}\"}} {number}")?;
    }
    let metrics = &context.server.metrics;
    let compressed = metrics.compressed_bytes.load(Ordering::Relaxed) + bytes;
    let visits: u64 = cache.kinds().iter().map(|kind| kind.visits()).sum();
    for (name, help, number) in [
        (
            "coracle_compressed_bytes_total",
            "Bytes of answers that went through compression.",
            compressed,
        ),
        (
            "coracle_watch_visits_total",
            "Watchers that changes were handed to.",
            visits,
        ),
    ] {
        writeln!(text, "# HELP {name} [ALPHA] {help}")?;
        writeln!(text, "# TYPE {name} counter")?;
        writeln!(text, "{name} {number}")?;
    }
    Ok(())
}

fn build(text: &mut String) -> std::fmt::Result {
    let name = "kubernetes_build_info";
    let help = "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.";
    head(text, name, "gauge", help)?;
    let version = super::version();
    let labels: Vec<String> = [
        ("build_date", "buildDate"),
        ("compiler", "compiler"),
        ("git_commit", "gitCommit"),
        ("git_tree_state", "gitTreeState"),
        ("git_version", "gitVersion"),
        ("go_version", "goVersion"),
        ("major", "major"),
        ("minor", "minor"),
        ("platform", "platform"),
    ]
    .into_iter()
    .map(|(label, field)| format!("{label}=\"{}\"", version.str_at(&[field])))
    .collect();
    writeln!(text, "{name}{{{}}} 1", labels.join(","))
}

fn process(process: &Process, text: &mut String) -> std::fmt::Result {
    for (name, kind, help, value) in [
        (
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            process.cpu_seconds,
        ),
        (
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            process.most_files,
        ),
        (
            "process_open_fds",
            "gauge",
            "Number of open file descriptors.",
            process.open_files,
        ),
        (
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory size in bytes.",
            process.resident_bytes,
        ),
        (
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
            process.start_seconds,
        ),
        (
            "process_virtual_memory_bytes",
            "gauge",
            "Virtual memory size in bytes.",
            process.virtual_bytes,
        ),
    ] {
        let Some(value) = value else { continue };
        writeln!(text, "# HELP {name} {help}")?;
        writeln!(text, "# TYPE {name} {kind}")?;
        writeln!(text, "{name} {value}")?;
    }
    Ok(())
}
