//! `coracle image`: the images of a cluster's node, brought in, looked at, taken out and removed.
//! Works on the store itself, whether a server runs or not.

mod pull;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use runtime::images::{ImageStore, NameRemoval};

use super::get::align;
use crate::first_start;
use crate::layout::Layout;

#[derive(Args)]
pub struct ImageArguments {
    #[command(subcommand)]
    command: ImageCommand,
    /// Data directory of the cluster
    #[arg(long, value_name = "DIR", default_value = super::DEFAULT_DATA_DIR, global = true)]
    data_dir: PathBuf,
}

#[derive(Subcommand)]
enum ImageCommand {
    /// Import images from OCI or docker-save archives, also compressed with gzip or zstd
    Import {
        /// Archives to import, or - for standard input
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Export images as an OCI archive
    Export {
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
        /// File to write the archive to
        #[arg(short, long, value_name = "FILE.tar")]
        output: PathBuf,
    },
    /// Pull images from their registries
    Pull(pull::PullArguments),
    /// List images
    Ls,
    /// Remove images by name or ID; an image is deleted with its last name, and an ID means all names of its image
    Rm {
        #[arg(value_name = "IMAGE", required = true)]
        images: Vec<String>,
    },
    /// Remove images that no container uses, and layers that no image uses
    Prune {
        /// Also remove imported images, which cannot be pulled again
        #[arg(long)]
        all: bool,
    },
    /// Verify every byte of the stored images, and remove damaged images
    Verify,
}

pub fn run(arguments: ImageArguments) -> Result<ExitCode> {
    let missing = first_start::missing_directories(&arguments.data_dir)?;
    // What brings images in may be the first to use the directory.
    let layout = match arguments.command {
        ImageCommand::Import { .. } | ImageCommand::Pull(_) => Layout::create(&arguments.data_dir)?,
        _ => Layout::existing(&arguments.data_dir)?,
    };
    let store = ImageStore::open(&layout.runtime())?;
    let result = run_on(&layout, store, arguments.command);
    if result.is_err() && !missing.is_empty() {
        leave_nothing(&layout, &missing)?;
    }
    result
}

/// Removes what was made for an image that did not come.
fn leave_nothing(layout: &Layout, made: &[PathBuf]) -> Result<()> {
    if ImageStore::open(&layout.runtime())?.list()?.is_empty() {
        std::fs::remove_dir_all(layout.runtime())?;
        for directory in made {
            // Fails where something lies in it that is not ours.
            let _ = std::fs::remove_dir(directory);
        }
    }
    Ok(())
}

fn run_on(layout: &Layout, store: ImageStore, command: ImageCommand) -> Result<ExitCode> {
    match command {
        ImageCommand::Import { files } => import(&store, files),
        ImageCommand::Export { images, output } => {
            store
                .export(&images, &output)
                .with_context(|| format!("exporting to {}", output.display()))?;
            print_line!("Exported {} to {}.", images.join(", "), output.display());
            Ok(ExitCode::SUCCESS)
        }
        ImageCommand::Pull(pull) => super::block_on(pull::run(store, layout, pull)),
        ImageCommand::Ls => list(&store),
        ImageCommand::Rm { images } => remove(&store, layout, &images),
        ImageCommand::Prune { all } => prune(&store, layout, all),
        ImageCommand::Verify => verify(&store),
    }
}

fn import(store: &ImageStore, files: Vec<PathBuf>) -> Result<ExitCode> {
    for file in files {
        let names = match file.as_os_str() == "-" {
            true => store
                .import_stream(std::io::stdin().lock(), None)
                .context("importing standard input")?,
            false => store
                .import(&file, None)
                .with_context(|| format!("importing {}", file.display()))?,
        };
        for name in names {
            print_line!("Imported {name}.");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(store: &ImageStore) -> Result<ExitCode> {
    let mut lines = vec![vec!["IMAGE".to_string(), "ID".into(), "SIZE".into()]];
    for image in store.list()? {
        let id: String = image
            .id
            .trim_start_matches("sha256:")
            .chars()
            .take(12)
            .collect();
        let size = megabytes(image.size);
        let names = match image.tags.is_empty() {
            true => &image.digests,
            false => &image.tags,
        };
        for name in names {
            lines.push(vec![name.clone(), id.clone(), size.clone()]);
        }
        if names.is_empty() {
            lines.push(vec!["<none>".into(), id, size]);
        }
    }
    print!("{}", align(&lines));
    Ok(ExitCode::SUCCESS)
}

fn remove(store: &ImageStore, layout: &Layout, images: &[String]) -> Result<ExitCode> {
    let used = runtime::in_use(&layout.runtime())?;
    for image in images {
        match store.remove_name(image, &used.images)? {
            NameRemoval::Unknown => bail!("there is no image {image}"),
            NameRemoval::InUse => bail!(
                "{image} is the last name of an image that containers use: delete their pods first"
            ),
            NameRemoval::Name | NameRemoval::Image => print_line!("Removed {image}."),
        }
    }
    collect(store, layout)
}

fn prune(store: &ImageStore, layout: &Layout, all: bool) -> Result<ExitCode> {
    let used = runtime::in_use(&layout.runtime())?;
    for image in store.list()? {
        let has_name = !image.tags.is_empty() || !image.digests.is_empty();
        if used.images.contains(&image.id) || (image.pinned && has_name && !all) {
            continue;
        }
        if store.remove(&image.id)? {
            let name = image.tags.first().or(image.digests.first());
            print_line!("Removed {}.", name.unwrap_or(&image.id));
        }
    }
    collect(store, layout)
}

/// Containers keep the layers they stand on, also when their image has no name any more.
fn collect(store: &ImageStore, layout: &Layout) -> Result<ExitCode> {
    let used = runtime::in_use(&layout.runtime())?;
    match store.collect_counting(&used.layers)? {
        Some(removed) => print_line!("Freed {}.", megabytes(removed.bytes)),
        None => print_line!(
            "No layers were removed, because an image is being added at the moment: try again later."
        ),
    }
    Ok(ExitCode::SUCCESS)
}

fn verify(store: &ImageStore) -> Result<ExitCode> {
    let mut damaged = 0;
    for image in store.list()? {
        match store.check(&image, true) {
            Ok(()) => {
                let name = image.tags.first().or(image.digests.first());
                print_line!("intact   {}", name.unwrap_or(&image.id));
            }
            Err(error) => {
                print_line!("DAMAGED  {}", environment::chain(&error));
                damaged += 1;
            }
        }
    }
    Ok(match damaged {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
