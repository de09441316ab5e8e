//! `coracle image`: bring images into a cluster's store without a registry, and list them.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use super::get::align;
use crate::layout::Layout;

#[derive(Args)]
pub struct ImageArguments {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Subcommand)]
enum ImageCommand {
    /// Import an OCI or docker-save archive
    Import {
        #[arg(value_name = "FILE.tar", required = true)]
        files: Vec<PathBuf>,
        /// Data directory of the cluster
        #[arg(long, value_name = "DIR", default_value = super::DEFAULT_DATA_DIR)]
        data_dir: PathBuf,
    },
    /// List images
    Ls {
        /// Data directory of the cluster
        #[arg(long, value_name = "DIR", default_value = super::DEFAULT_DATA_DIR)]
        data_dir: PathBuf,
    },
}

pub fn run(arguments: ImageArguments) -> Result<ExitCode> {
    match arguments.command {
        ImageCommand::Import { files, data_dir } => {
            let layout = Layout::create(&data_dir)?;
            let store = runtime::images::ImageStore::open(&layout.runtime())?;
            for file in files {
                let names = store
                    .import(&file, None)
                    .with_context(|| format!("importing {}", file.display()))?;
                for name in names {
                    println!("imported {name}");
                }
            }
        }
        ImageCommand::Ls { data_dir } => {
            let layout = Layout::existing(&data_dir)?;
            let store = runtime::images::ImageStore::open(&layout.runtime())?;
            let mut lines = vec![vec!["IMAGE".to_string(), "ID".into(), "SIZE".into()]];
            for image in store.list()? {
                for name in &image.tags {
                    let id = image.id.trim_start_matches("sha256:");
                    lines.push(vec![
                        name.clone(),
                        id.chars().take(12).collect(),
                        format!("{:.1} MB", image.size as f64 / 1e6),
                    ]);
                }
            }
            print!("{}", align(&lines));
        }
    }
    Ok(ExitCode::SUCCESS)
}
