//! `coracle down`: stop the server; with `--delete`, remove everything that carries the cluster's
//! id from the machine: processes, mounts, namespaces, links, rules, cgroups, files.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::keeper;
use crate::kubeconfig;
use crate::layout::{DEFAULT_DATA_DIR, Layout};
use crate::privileges;
use crate::removal;

#[derive(Args)]
pub struct DownArguments {
    /// Data directory of the cluster
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Also delete the cluster: its pods, its data, and everything else of it on this machine
    #[arg(long)]
    delete: bool,
}

/// Printed when a server was stopped and its cluster stays.
const STOPPED: &str = "Its pods keep running and Services keep their endpoints. The API and the \
                       cluster's DNS do not answer until the next `coracle up`.";

pub fn run(arguments: DownArguments) -> Result<ExitCode> {
    privileges::require_root("coracle down")?;
    if !arguments.data_dir.exists() {
        print_line!("There is no cluster in {}.", arguments.data_dir.display());
        return Ok(ExitCode::SUCCESS);
    }
    let layout = Layout::existing(&arguments.data_dir)?;
    let _lock = layout.lock()?;
    if let Some(running) = keeper::running(&layout)? {
        keeper::stop(&layout, running)?;
        print_line!("The cluster in {} is stopped.", layout.data_dir.display());
        if !arguments.delete {
            print_line!("{STOPPED}");
        }
    } else {
        print_line!("No server is running in {}.", layout.data_dir.display());
    }
    if arguments.delete {
        delete(&layout)?;
        print_line!(
            "The cluster in {} and its data are deleted.",
            layout.data_dir.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the cluster, users of a thing before the thing:
/// 1. the entries in the user's kubeconfigs;
/// 2. containers and shims, which use mounts, namespaces and cgroups;
/// 3. links, routes and rules;
/// 4. mounts below our directories;
/// 5. cgroups, which are empty by now;
/// 6. the run directory, and the claims, which restores sysctls;
/// 7. the data directory, last, so that an interrupted delete can be repeated.
fn delete(layout: &Layout) -> Result<()> {
    // A kubeconfig that cannot be changed does not prevent the deletion.
    let authority = fs::read_to_string(layout.pki().join("ca.crt")).unwrap_or_default();
    if let Err(error) = kubeconfig::remove_entries(layout, &authority) {
        print_error!(
            "warning: the cluster's entries could not be removed from a kubeconfig: {}",
            environment::chain(error.as_ref())
        );
    }
    // A data directory without settings holds only images that were imported before a first start.
    if let Some(settings) = layout.settings()? {
        removal::from_machine(layout, &settings)?;
    }
    removal::data(layout, &BTreeSet::new())
}
