//! Measures what the schemas of real definitions cost: compiles every version of the definitions in
//! the given YAML files, as many times over as the first argument says, and prints the bytes of their
//! JSON beside what the process grew by.
//!
//! `cargo run --release -p api --example custom_schemas -- 500 definitions/*.yaml`

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
        definitions.push(definition);
    }
    let bytes: usize = definitions.iter().map(|one| one.to_json().len()).sum();
    let before = resident();
    let mut schemas = Vec::new();
    for _ in 0..copies {
        for version in definitions
            .iter()
            .flat_map(|one| one.list_at(&["spec", "versions"]))
        {
            let document = version
                .at(&["schema", "openAPIV3Schema"])
                .unwrap_or(&Value::Null);
            match Schema::from_document(document) {
                Ok(schema) => schemas.push(schema),
                Err(errors) => println!("{errors:?}"),
            }
        }
    }
    let grown = resident().saturating_sub(before);
    let (nodes, names) = shared_entries();
    println!(
        "{} definitions, {} schemas of {} bytes of JSON, {} kB more resident; {nodes} nodes and {names} names",
        copies * definitions.len(),
        schemas.len(),
        copies * bytes,
        grown,
    );
    for definition in &definitions {
        for error in strategy.validate_create(definition) {
            println!("{}: {error}", definition.str_at(&["metadata", "name"]));
        }
    }
}

/// The resident memory of this process in kB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}
