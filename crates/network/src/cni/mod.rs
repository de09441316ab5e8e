//! Our CNI plugin, `coracle-cni`: a routed veth per pod, host-local addresses, host ports.
//!
//! It is a plain single-threaded process: reads its request, speaks netlink, answers and ends.

mod attach;
mod error;
mod install;
mod ipam;
mod ports;
mod request;
mod result;

#[cfg(test)]
mod kernel_tests;

use std::fs::File;
use std::io::Read as _;
use std::process::ExitCode;

use serde::Deserialize;

pub use error::{Error, Failure};
pub use install::write_configuration;
pub use request::{Attachment, Configuration, PortMapping, Variables};

use crate::names;
use crate::netlink::{Connection, route};
use ipam::Ipam;
use request::{Command, NEWEST, VERSIONS};

/// The name under which runtimes call us.
pub const PLUGIN: &str = "coracle-cni";
const LARGEST_CONFIGURATION: u64 = 1 << 20;

/// The plugin inside a runtime of this binary: what a process would get and write.
pub fn call(variables: &Variables, input: &[u8]) -> Result<String, Failure> {
    answer(variables, input).map_err(|error| error.failure(&version_of(input)))
}

/// The plugin as a process: the environment and standard input are the request, standard output is
/// the answer.
pub fn main() -> ExitCode {
    let mut input = Vec::new();
    let read = std::io::stdin()
        .take(LARGEST_CONFIGURATION)
        .read_to_end(&mut input);
    let outcome = match read {
        Ok(_) => call(&Variables::from_process(), &input),
        Err(error) => Err(Error::Read(error).failure(NEWEST)),
    };
    match outcome {
        Ok(answer) => {
            print!("{answer}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{}", json(&failure).unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

/// Carries out one request and returns what goes to standard output.
pub fn answer(variables: &Variables, input: &[u8]) -> Result<String, Error> {
    let command = variables.command()?;
    if command == Command::Version {
        let version = version_of(input);
        return json(&serde_json::json!({"cniVersion": version, "supportedVersions": VERSIONS}));
    }
    let configuration = Configuration::parse(input)?;
    let version = configuration.cni_version.as_str();
    match command {
        Command::Add => add(variables, &configuration),
        Command::Del => {
            remove(&configuration, &variables.attachment()?)?;
            Ok(String::new())
        }
        Command::Check if version == "0.3.1" => Err(Error::Version(version.to_owned())),
        Command::Check => check(variables, &configuration),
        Command::Gc | Command::Status if version != NEWEST => {
            Err(Error::Version(version.to_owned()))
        }
        Command::Gc => collect(&configuration),
        Command::Status => status(&configuration),
        Command::Version => Ok(String::new()),
    }
}

/// 1. Take an address and write down what will be made.
/// 2. Make the veth pair, addresses, routes and neighbours.
/// 3. Open the host ports.
///
/// When a step fails, all earlier steps are undone.
fn add(variables: &Variables, configuration: &Configuration) -> Result<String, Error> {
    let attachment = variables.attachment()?;
    let path = variables.namespace()?;
    let namespace = File::open(path).map_err(|source| Error::Namespace {
        path: path.to_owned(),
        source,
    })?;
    let ports = &configuration.runtime_config.port_mappings;
    let record = {
        let ipam = Ipam::lock(&configuration.state_dir)?;
        ipam.allocate(
            &attachment,
            configuration.pod_cidr,
            configuration.gateway,
            ports,
        )?
    };
    let outcome = attach::attach(configuration, &attachment, &namespace, record.address).and_then(
        |attached| {
            ports::open(configuration, &attachment, &record)?;
            Ok(attached)
        },
    );
    match outcome {
        Ok(attached) => json(&result::success(
            &configuration.cni_version,
            &attachment.interface,
            path,
            record.address,
            configuration.gateway,
            &attached,
        )),
        Err(error) => {
            // The failure itself is what the runtime must hear about; it will call DEL as well.
            let _ = remove(configuration, &attachment);
            Err(error)
        }
    }
}

/// Removes those parts of an attachment that exist. The address is given back last, so that it cannot
/// be used again while something of the old pod is still there.
fn remove(configuration: &Configuration, attachment: &Attachment) -> Result<(), Error> {
    attach::detach(&configuration.cluster_id, attachment)?;
    let ipam = Ipam::lock(&configuration.state_dir)?;
    if let Some(record) = ipam.record(attachment)? {
        ports::close(&configuration.cluster_id, &record)?;
    }
    ipam.release(attachment)
}

fn check(variables: &Variables, configuration: &Configuration) -> Result<String, Error> {
    let attachment = variables.attachment()?;
    let path = variables.namespace()?;
    let namespace = File::open(path).map_err(|source| Error::Namespace {
        path: path.to_owned(),
        source,
    })?;
    let record = Ipam::lock(&configuration.state_dir)?
        .record(&attachment)?
        .ok_or_else(|| Error::Check("no address is recorded for the container".to_owned()))?;
    attach::check(configuration, &attachment, &namespace, record.address)?;
    Ok(String::new())
}

/// Removes every attachment the runtime no longer knows.
fn collect(configuration: &Configuration) -> Result<String, Error> {
    let valid = configuration
        .valid_attachments
        .as_ref()
        .ok_or_else(|| Error::Configuration("cni.dev/valid-attachments is missing".to_owned()))?;
    let records = Ipam::lock(&configuration.state_dir)?.records()?;
    for record in records
        .iter()
        .filter(|record| !valid.contains(&record.attachment))
    {
        remove(configuration, &record.attachment)?;
    }
    Ipam::lock(&configuration.state_dir)?.release_orphans(valid)?;
    Ok(String::new())
}

fn status(configuration: &Configuration) -> Result<String, Error> {
    let name = names::gateway_link(&configuration.cluster_id);
    if route::find_link(&mut Connection::route()?, &name)?.is_none() {
        return Err(Error::NotReady(format!(
            "link {name} does not exist; is the node set up?"
        )));
    }
    Ipam::lock(&configuration.state_dir)
        .map_err(|error| Error::NotReady(environment::chain(&error).to_string()))?;
    Ok(String::new())
}

/// The version the runtime spoke, even when the rest could not be read.
fn version_of(input: &[u8]) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versioned {
        cni_version: String,
    }
    serde_json::from_slice::<Versioned>(input)
        .map_or_else(|_| NEWEST.to_owned(), |versioned| versioned.cni_version)
}

fn json(value: &impl serde::Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(Error::Decode)
}
