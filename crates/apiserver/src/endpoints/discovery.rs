//! `/api`, `/apis` and below: plain, or aggregated when the client accepts that.

use api::catalogue::Snapshot;
use api::discovery;
use api::openapi::Document;
use api::{Status, Value};
use http::Response;

use super::openapi::answer;
use super::{is_group, not_found};
use crate::aggregation;
use crate::body::Body;
use crate::context::Context;
use crate::negotiate::Encoding;
use crate::response;
use crate::subresources::not_served;
use crate::usage;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub(super) fn handle(context: &Context, segments: &[&str]) -> Result<Response<Body>, Status> {
    let snapshot = context.server.kinds.snapshot();
    let kinds = &*snapshot;
    let table = &*context.server.extensions.table();
    let document = match segments {
        [root @ ("api" | "apis")] if wants_aggregated(context) => {
            let make = || {
                let mut document = discovery::aggregated_v2(kinds, *root == "api");
                if *root == "apis" {
                    append(&mut document, "items", usage::aggregated());
                    if !table.is_empty() {
                        aggregation::merge_aggregated(&mut document, table);
                    }
                }
                Document::new(document.to_json())
            };
            // What extension servers say changes without the kinds.
            let document = match *root == "apis" && table.is_empty() {
                true => context.server.kinds.discovery.of(&snapshot, make),
                false => make(),
            };
            return Ok(answer(context, &document, AGGREGATED, false));
        }
        ["api"] => Some(discovery::api_versions(
            &context.server.advertise.to_string(),
        )),
        ["apis"] => {
            let mut document = discovery::api_group_list(kinds);
            append(&mut document, "groups", usage::group());
            if !table.is_empty() {
                aggregation::merge_groups(&mut document, table);
            }
            Some(document)
        }
        ["apis", usage::GROUP] => {
            let mut document = usage::group();
            document.set(&["kind"], "APIGroup");
            document.set(&["apiVersion"], "v1");
            aggregation::merge_group(Some(document), usage::GROUP, table)
        }
        ["apis", usage::GROUP, usage::VERSION] => Some(usage::resource_list()),
        ["api", version] => resources(context, kinds, "", version),
        ["apis", group] => {
            aggregation::merge_group(discovery::api_group(kinds, group), group, table)
        }
        ["apis", group, version] => resources(context, kinds, group, version),
        _ => None,
    };
    match document {
        Some(document) => {
            let encoding = Encoding::of_plain_object(&context.headers);
            response::encoded_for(context, 200, &document, encoding)
        }
        None => match segments {
            ["api", ..] => Err(not_served()),
            ["apis", group, ..] if is_group(&context.server, group) => Err(not_served()),
            _ => Ok(not_found()),
        },
    }
}

/// The resources of a group version.
fn resources(context: &Context, kinds: &Snapshot, group: &str, version: &str) -> Option<Value> {
    let mut list = discovery::api_resource_list(kinds, group, version)?;
    if !context.server.feature_gates.is_on("StorageVersionHash")
        && let Some(Value::Array(resources)) = list.get_mut("resources")
    {
        for resource in resources {
            resource.remove(&["storageVersionHash"]);
        }
    }
    Some(list)
}

fn append(document: &mut api::Value, list: &str, item: api::Value) {
    let items = document.at_mut(&[list]).and_then(api::Value::as_array_mut);
    if let Some(items) = items {
        items.push(item);
    }
}

/// Whether `Accept` names the aggregated form before plain JSON.
fn wants_aggregated(context: &Context) -> bool {
    let accepted = context
        .headers
        .get_all(http::header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    for clause in accepted {
        let mut parts = clause.split(';').map(str::trim);
        if parts.next() != Some("application/json") {
            continue;
        }
        let parameters: Vec<&str> = parts.filter(|part| !part.starts_with("q=")).collect();
        if parameters.is_empty() {
            return false;
        }
        let has = |parameter: &str| parameters.contains(&parameter);
        if has("g=apidiscovery.k8s.io") && has("v=v2") && has("as=APIGroupDiscoveryList") {
            return true;
        }
    }
    false
}
