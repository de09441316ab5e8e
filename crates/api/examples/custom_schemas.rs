//! Measures what the schemas of real definitions cost: compiles every version of the definitions in
//! the given YAML files, as many times over as the first argument says, and prints the bytes of their
//! JSON beside what the process grew by.
//!
//! `cargo run --release -p api --example custom_schemas -- 500 definitions/*.yaml`

use std::time::Instant;

use api::custom::{Schema, shared_entries};
use api::document::{Value, yaml};
use api::resource::Strategy;
use api::strategy::custom_resource_definition::CustomResourceDefinition;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let copies: usize = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let strategy = CustomResourceDefinition { expressions: None };
    let mut definitions = Vec::new();
    for file in arguments {
        let text = std::fs::read(&file).expect("a file that can be read");
        let documents = yaml::parse_documents(&text).expect("YAML");
        let mut definition = documents.into_iter().next().unwrap_or_default();
        if definition.str_at(&["kind"]) != "CustomResourceDefinition" {
            continue;
        }
        strategy.default(&mut definition);
        for error in strategy.validate_create(&definition) {
            println!("{file}: {error}");
        }
        definitions.push(definition);
    }
    let bytes: usize = definitions.iter().map(|one| one.to_json().len()).sum();
    let before = resident();
    let started = Instant::now();
    let mut schemas = Vec::new();
    for _ in 0..copies {
        for version in definitions.iter().flat_map(|one| one.list_at(&["spec", "versions"])) {
            let document = version.at(&["schema", "openAPIV3Schema"]).unwrap_or(&Value::Null);
            match Schema::from_document(document) {
                Ok(schema) => schemas.push(schema),
                Err(errors) => println!("{errors:?}"),
            }
        }
    }
    let (nodes, names) = shared_entries();
    println!(
        "{} definitions, {} schemas of {} bytes of JSON, {} ms, {} kB more resident; {nodes} nodes and {names} names",
        copies * definitions.len(),
        schemas.len(),
        copies * bytes,
        started.elapsed().as_millis(),
        resident().saturating_sub(before),
    );
}

/// The resident memory of this process in kB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}
