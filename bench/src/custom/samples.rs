//! The definitions that are created: small ones made here, and copies of real ones.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::caller::Caller;
use super::{DEFINITIONS, Sample, text};
use crate::load::Server;

/// A definition with a schema of 2 kB in a group of its own.
pub fn small(number: usize) -> Sample {
    let group = format!("g{number}.scale.example.com");
    let mut fields = serde_json::Map::new();
    let mut length = 100;
    while length < 2000 {
        let index = fields.len();
        let kind = ["string", "integer", "boolean"][index % 3];
        let description = format!("What field {index} of this kind is there for.");
        let field = json!({"type": kind, "description": description});
        length += field.to_string().len() + 12;
        fields.insert(format!("field{index}"), field);
    }
    Sample {
        definition: json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}},
                }],
            },
        }),
        collection: format!("/apis/{group}/v1/namespaces/bench/things"),
        document: format!("/openapi/v3/apis/{group}/v1"),
        object: json!({
            "apiVersion": format!("{group}/v1"), "kind": "Thing",
            "metadata": {"name": "one"}, "spec": {"field0": "text"},
        }),
    }
}

/// The definitions in a directory's YAML files, read by the server itself.
pub async fn read(server: &Server, directory: &Path) -> Result<Vec<Value>> {
    let mut caller = Caller::open(&server.target).await?;
    let mut files: Vec<_> = std::fs::read_dir(directory)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let path = format!("{DEFINITIONS}?dryRun=All");
        let answer = caller.post_as(&path, "application/yaml", &text).await;
        let answer = answer.with_context(|| file.display().to_string())?;
        let mut definition: Value = serde_json::from_slice(&answer)?;
        definition["metadata"] = json!({
            "name": text_of(&definition, "/metadata/name")?,
            "annotations": definition["metadata"]["annotations"],
        });
        definition
            .as_object_mut()
            .map(|fields| fields.remove("status"));
        found.push(definition);
    }
    Ok(found)
}

fn text_of(value: &Value, path: &str) -> Result<String> {
    Ok(text(value, path)?.to_string())
}

/// A copy in a group of its own, with an object that has what any of the kinds requires: the rest is
/// pruned.
pub fn renamed(known: &Value, number: usize) -> Sample {
    let mut definition = known.clone();
    let of = |path: &str| text_of(known, path).unwrap_or_default();
    let group = format!("g{number}.{}", of("/spec/group"));
    let plural = of("/spec/names/plural");
    definition["metadata"]["name"] = format!("{plural}.{group}").into();
    definition["spec"]["group"] = group.clone().into();
    let versions = known["spec"]["versions"].as_array();
    let stored = versions.and_then(|versions| versions.iter().find(|one| one["storage"] == true));
    let version = stored.map_or("v1", |one| one["name"].as_str().unwrap_or("v1"));
    let place = match of("/spec/scope").as_str() {
        "Namespaced" => "namespaces/bench/",
        _ => "",
    };
    Sample {
        collection: format!("/apis/{group}/{version}/{place}{plural}"),
        document: format!("/openapi/v3/apis/{group}/{version}"),
        object: json!({
            "apiVersion": format!("{group}/{version}"), "kind": of("/spec/names/kind"),
            "metadata": {"name": "one"},
            "spec": {
                "selector": {}, "podMetricsEndpoints": [], "endpoints": [],
                "issuerRef": {"name": "x"}, "secretName": "x", "request": "eA==", "selfSigned": {},
                "authorizationURL": "x", "dnsName": "x", "key": "x", "solver": {}, "token": "x",
                "type": "HTTP-01", "url": "x",
            },
        }),
        definition,
    }
}
