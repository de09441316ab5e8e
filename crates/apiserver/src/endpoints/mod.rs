//! Paths that are not resources: health, version, discovery, OpenAPI, keys, metrics, traces.

mod discovery;
mod health;
mod metrics;
mod openapi;
mod process;
mod snapshot;
mod trace;

use api::Status;
use api::catalogue::Snapshot;
use http::Response;

use crate::aggregation;
use crate::body::Body;
use crate::context::Context;
use crate::extension_servers::Table;
use crate::response;
use crate::server::Server;
use crate::usage;

pub(crate) use trace::attributes;
use trace::target as trace_target;

pub(crate) async fn handle(context: &Context, body: &[u8]) -> Result<Response<Body>, Status> {
    let info = &context.info;
    let path = match info.path.as_str() {
        // Only these exist with a slash at their end too; for all others the path that was
        // authorized is the path that is served.
        path if path == "/"
            || ["/api/", "/apis/", "/version/"]
                .iter()
                .any(|root| path.starts_with(root)) =>
        {
            path.trim_end_matches('/')
        }
        path => path,
    };
    if path == "/coracle/v1/spans" && info.verb == "post" {
        return trace::record(context, body);
    }
    if !matches!(info.verb, "get" | "head") {
        return Err(crate::subresources::not_allowed());
    }
    if trace_target(path).is_some() {
        return trace::show(context, path);
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        [endpoint @ ("livez" | "healthz" | "readyz"), rest @ ..] => {
            Ok(health::answer(context, endpoint, rest).await)
        }
        ["version"] => Ok(response::json(200, &version())),
        ["version", ..] => Err(crate::subresources::not_served()),
        ["coracle", "v1", "snapshot"] => snapshot::save(context).await,
        ["metrics"] => Ok(metrics::render(context).await),
        [".well-known", "openid-configuration"] => Ok(openid_configuration(context)),
        ["openid", "v1", "jwks"] => Ok(keys(context)),
        ["openapi", rest @ ..] => openapi::handle(context, rest),
        ["api" | "apis", ..] => discovery::handle(context, &segments),
        [""] | [] => Ok(response::json(
            200,
            &paths(
                &context.server.kinds.snapshot(),
                &context.server.extensions.table(),
            ),
        )),
        _ => Ok(not_found()),
    }
}

/// Whether HEAD is answered like GET. Upstream's router knows the method of each route, and most
/// are for GET alone; what does not pass the router takes any method.
pub(crate) fn answers_head(context: &Context) -> bool {
    let info = &context.info;
    if info.is_resource {
        // What is not there at all is not found by any method.
        return info.resource.is_none() && info.group != usage::GROUP;
    }
    let path = info.path.trim_end_matches('/');
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    match segments.as_slice() {
        ["version", ..] | [".well-known", ..] | ["openid", ..] => false,
        ["api"] | ["api", "v1"] => false,
        ["apis", group, version] => {
            let kinds = context.server.kinds.snapshot();
            let known = api::discovery::versions(&kinds, group).contains(version);
            !known && (*group, *version) != (usage::GROUP, usage::VERSION)
        }
        _ => true,
    }
}

pub(crate) fn not_found() -> Response<Body> {
    response::text(404, "404 page not found\n")
}

/// Whether anything is served in the group.
pub(crate) fn is_group(server: &Server, group: &str) -> bool {
    let kinds = server.kinds.snapshot();
    let first = kinds
        .group(group)
        .and_then(|group| group.resources().next());
    group.is_empty()
        || group == usage::GROUP
        || server.extensions.table().has_group(group)
        || first.is_some_and(|resource| !resource.is_custom())
}

/// Our own version is build metadata, which semantic versioning does not compare: what a hyphen sets
/// apart would be a version before v1.36.4.
const GIT_VERSION: &str = concat!("v1.36.4+coracle.", env!("CARGO_PKG_VERSION"));

fn version() -> api::Value {
    api::document!({
        "major": "1", "minor": "36",
        "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("linux/{}", match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }),
    })
}

fn paths(kinds: &Snapshot, extensions: &Table) -> api::Value {
    let mut paths = vec![
        "/.well-known/openid-configuration".to_string(),
        "/api".to_string(),
        "/api/v1".to_string(),
        "/apis".to_string(),
    ];
    for group in api::discovery::groups(kinds) {
        let name = group.name();
        paths.push(format!("/apis/{name}"));
        for version in group.versions() {
            paths.push(format!("/apis/{name}/{version}"));
        }
    }
    paths.push(format!("/apis/{}", usage::GROUP));
    paths.push(format!("/apis/{}/{}", usage::GROUP, usage::VERSION));
    for path in aggregation::paths(extensions) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths.extend(
        [
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/openid/v1/jwks",
            "/readyz",
            "/version",
        ]
        .map(str::to_string),
    );
    api::document!({"paths": paths})
}

fn openid_configuration(context: &Context) -> Response<Body> {
    let issuer = &context.server.authenticator.tokens.issuer;
    // The issuer's name need not resolve; our own address does.
    let base = format!("https://{}", context.server.advertise);
    response::json(
        200,
        &api::document!({
            "issuer": issuer, "jwks_uri": format!("{base}/openid/v1/jwks"),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }),
    )
}

fn keys(context: &Context) -> Response<Body> {
    let keys = context.server.authenticator.tokens.key.key_set();
    response::bytes(200, "application/jwk-set+json", keys.to_json())
}
