//! `coracle delete`: deletes objects by name, selector or file, and waits until they are gone.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use api::Resource;
use api::Value;
use clap::Args;
use http::Method;

use super::connection::{Connection, encode, is_not_found, request};
use super::{ConnectionArguments, apply, resource, wait};

#[derive(Args)]
pub struct DeleteArguments {
    /// Resource type and names, such as `pod web` or `deployment/web`
    #[arg(value_name = "TYPE[/NAME]")]
    targets: Vec<String>,
    /// YAML or JSON file with the objects to delete, directory of such files, or - for standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Label selector of the objects to delete, such as app=web
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Grace period in seconds in which a pod can terminate
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<i64>,
    /// Treat an object that does not exist as a success
    #[arg(long)]
    ignore_not_found: bool,
    /// Time to wait until the objects are gone, such as 90s or 5m; 0 waits without a limit
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = crate::flags::duration)]
    timeout: std::time::Duration,
    /// Do not wait until the objects are gone
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub async fn run(arguments: DeleteArguments) -> Result<ExitCode> {
    let connection = Connection::open(&arguments.connection).await?;
    let mut targets: Vec<(&Resource, String, String)> = Vec::new();
    for file in &arguments.files {
        for object in apply::read_objects(file)? {
            let namespace = match object.str_at(&["metadata", "namespace"]) {
                "" => connection.namespace.clone(),
                namespace => namespace.to_string(),
            };
            let name = object.str_at(&["metadata", "name"]).to_string();
            targets.push((resource::of_object(&object)?, namespace, name));
        }
    }
    if !arguments.targets.is_empty() {
        for (resource, name) in resource::parse_targets(&arguments.targets)? {
            let namespace = connection.namespace.clone();
            match (name.as_str(), &arguments.selector) {
                ("", None) => bail!("resource(s) were provided, but no name was specified"),
                ("", Some(selector)) => {
                    let path = resource::collection_path(resource, &namespace);
                    let list = connection
                        .get(&format!("{path}?labelSelector={}", encode(selector)))
                        .await?;
                    for item in list
                        .get("items")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                    {
                        let name = item.str_at(&["metadata", "name"]).to_string();
                        targets.push((resource, namespace.clone(), name));
                    }
                }
                _ => targets.push((resource, namespace, name)),
            }
        }
    }
    let mut code = ExitCode::SUCCESS;
    let mut deleted = Vec::new();
    for (resource, namespace, name) in targets {
        let path = resource::object_path(resource, &namespace, &name);
        let mut options = api::document!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
        });
        if let Some(seconds) = arguments.grace_period {
            options.set(&["gracePeriodSeconds"], seconds);
        }
        let body = Some(("application/json", options.to_json()));
        match connection
            .call(request(Method::DELETE, &path, "application/json", body)?)
            .await
        {
            Ok(_) => {
                let qualified = match &*resource.group {
                    "" => resource.singular.to_string(),
                    group => format!("{}.{group}", resource.singular),
                };
                println!("{qualified} \"{name}\" deleted");
                deleted.push((resource, namespace, name));
            }
            Err(error) if is_not_found(&error) && arguments.ignore_not_found => {}
            Err(error) => {
                print_error!("{}", environment::chain(error.as_ref()));
                code = ExitCode::FAILURE;
            }
        }
    }
    if !arguments.no_wait {
        let all_gone = async {
            for (resource, namespace, name) in &deleted {
                wait::until_gone(&connection, resource, namespace, name).await?;
            }
            anyhow::Ok(())
        };
        match arguments.timeout.is_zero() {
            true => all_gone.await?,
            false => match tokio::time::timeout(arguments.timeout, all_gone).await {
                Ok(result) => result?,
                Err(_) => bail!("timed out waiting until the objects are gone"),
            },
        }
    }
    Ok(code)
}
