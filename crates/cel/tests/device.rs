//! Device selectors, with the answers that upstream's tests expect.

use cel::device::{Attribute, Device, DeviceBounds, MAX_COST, environment, split_name};
use cel::libraries::semver::Semver;
use cel::{Environment, Limits, Program, Value};

fn device() -> Device {
    let mut device = Device {
        driver: "dra.example.com".to_owned(),
        ..Device::default()
    };
    let (domain, name) = split_name("name", "dra.example.com");
    let attributes = device.attributes.entry(domain.to_owned()).or_default();
    attributes.insert(name.to_owned(), Attribute::String("fish".to_owned()));
    attributes.insert("count".to_owned(), Attribute::Int(42));
    let version = Semver::parse("1.2.3").expect("a version");
    attributes.insert("version".to_owned(), Attribute::Version(version));
    let memory = quantity::ExactQuantity::parse("1Mi").expect("a quantity");
    let capacity = device
        .capacity
        .entry("dra.example.com".to_owned())
        .or_default();
    capacity.insert("memory".to_owned(), memory.into());
    device
}

fn select(expression: &str) -> Result<bool, String> {
    let environment = environment(&Environment::for_new_expressions());
    let checked = environment
        .compile(expression)
        .map_err(|error| error.to_string())?;
    assert!(
        environment.estimate(&checked, &DeviceBounds).max <= MAX_COST,
        "{expression}"
    );
    let program = Program::new(&checked).map_err(|error| error.to_string())?;
    let device = device();
    let limits = Limits {
        cost: Some(MAX_COST),
        interrupted: None,
    };
    match program.evaluate(&[device.variable()], limits).value {
        Ok(Value::Bool(matches)) => Ok(matches),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn selectors_read_attributes_and_capacity() {
    for (expression, expected) in [
        (r#"device.driver == "dra.example.com""#, Ok(true)),
        (
            r#"device.attributes["dra.example.com"].name == "fish""#,
            Ok(true),
        ),
        (
            r#"device.attributes["dra.example.com"]["count"] > 41"#,
            Ok(true),
        ),
        (
            r#"device.attributes["dra.example.com"].version.isGreaterThan(semver("0.0.1"))"#,
            Ok(true),
        ),
        (
            r#"device.capacity["dra.example.com"].memory.isGreaterThan(quantity("1Ki"))"#,
            Ok(true),
        ),
        (
            r#"cel.bind(a, device.attributes["dra.example.com"], a.name + a.name == "fishfish")"#,
            Ok(true),
        ),
        ("device.allowMultipleAllocations", Ok(false)),
        (r#""other" in device.attributes"#, Ok(false)),
        (
            r#"device.attributes["dra.example.com"].?missing.orValue(7) == 7"#,
            Ok(true),
        ),
    ] {
        assert_eq!(select(expression), expected, "{expression}");
    }
}

#[test]
fn an_unknown_domain_is_an_empty_map() {
    let answer = select(r#"device.attributes["other"].name == "fish""#);
    assert_eq!(answer, Err("no such key: name".to_owned()));
    assert!(
        select("device.noSuchAttribute == true")
            .is_err_and(|error| { error.contains("undefined field 'noSuchAttribute'") })
    );
}
