//! `coracle image pull`: with a line per layer that moves while bytes arrive.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use runtime::images::{Credentials, ImageStore, LayerProgress, Puller, Settings, Stage};

use super::megabytes;
use crate::layout::Layout;

/// How often the progress lines are redrawn.
const PACE: Duration = Duration::from_millis(100);
const BAR: u64 = 24;

#[derive(Args)]
pub struct PullArguments {
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<String>,
    /// User and password for the registry, or - to read USER:PASSWORD from standard input
    #[arg(long, value_name = "USER:PASSWORD")]
    creds: Option<String>,
}

pub async fn run(store: ImageStore, layout: &Layout, arguments: PullArguments) -> Result<ExitCode> {
    let settings = Settings {
        directories: layout.registries(),
        ..Settings::default()
    };
    let puller = Puller::new(Arc::new(store), settings);
    let credentials = credentials(arguments.creds)?;
    for image in &arguments.images {
        let mut pull = puller.begin(image, credentials.clone())?;
        let mut display = Display::new();
        let done = pull.done.clone();
        tokio::pin!(done);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut done => break result,
                () = tokio::time::sleep(PACE) => {
                    let layers = pull.progress.borrow_and_update().clone();
                    display.show(&layers)?;
                }
            }
        };
        let layers = pull.progress.borrow().clone();
        display.show(&layers)?;
        // With all its causes: the innermost says what is wrong.
        let record = result
            .map_err(anyhow::Error::new)
            .with_context(|| format!("failed to pull image {image}"))?;
        print_line!(
            "Pulled {image} ({}, {}).",
            record.id,
            megabytes(record.size)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn credentials(given: Option<String>) -> Result<Credentials> {
    let Some(given) = given else {
        return Ok(Credentials::Anonymous);
    };
    let text = match given.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())?,
        _ => given,
    };
    let (user, password) = text
        .trim_end_matches('\n')
        .split_once(':')
        .context("--creds must have the form USER:PASSWORD")?;
    Ok(Credentials::Basic(user.to_owned(), password.to_owned()))
}

/// Shows the progress of layers: on a terminal the lines are redrawn, elsewhere each layer gets one
/// line per stage.
struct Display {
    terminal: bool,
    drawn: usize,
    told: Vec<Option<Stage>>,
}

impl Display {
    fn new() -> Display {
        Display {
            terminal: std::io::stdout().is_terminal(),
            drawn: 0,
            told: Vec::new(),
        }
    }

    fn show(&mut self, layers: &[LayerProgress]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if self.terminal {
            if self.drawn > 0 {
                write!(out, "\x1b[{}A", self.drawn)?;
            }
            for layer in layers {
                writeln!(out, "\x1b[2K{}", line(layer))?;
            }
            self.drawn = layers.len();
        } else {
            self.told.resize(layers.len(), None);
            for (layer, told) in layers.iter().zip(&mut self.told) {
                if *told != Some(layer.stage) && layer.stage != Stage::Waiting {
                    writeln!(out, "{}", line(layer))?;
                    *told = Some(layer.stage);
                }
            }
        }
        Ok(out.flush()?)
    }
}

/// `4f2a1c9d0b12  downloading  [#####...]  3.1 MB of 9.9 MB (resumed after 2.0 MB)`.
fn line(layer: &LayerProgress) -> String {
    let short: String = layer.digest.chars().skip(7).take(12).collect();
    let stage = match layer.stage {
        Stage::Present => "present",
        Stage::Waiting => "waiting",
        Stage::Downloading => "downloading",
        Stage::Downloaded => "downloaded",
        Stage::Unpacking => "unpacking",
        Stage::Done => "done",
    };
    let filled = (layer.received * BAR)
        .checked_div(layer.total)
        .unwrap_or(BAR);
    let bar: String = (0..BAR)
        .map(|place| if place < filled { '#' } else { '.' })
        .collect();
    let resumed = match layer.resumed {
        0 => String::new(),
        bytes => format!(" (resumed after {})", megabytes(bytes)),
    };
    format!(
        "{short}  {stage:<11}  [{bar}]  {} of {}{resumed}",
        megabytes(layer.received),
        megabytes(layer.total)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_of_a_layer_is_one_line() {
        let layer = LayerProgress {
            digest: format!("sha256:{}", "0123456789abcdef".repeat(4)),
            total: 10_000_000,
            received: 5_000_000,
            resumed: 1_000_000,
            stage: Stage::Downloading,
        };
        assert_eq!(
            line(&layer),
            "0123456789ab  downloading  [############............]  5.0 MB of 10.0 MB (resumed after 1.0 MB)"
        );
    }
}
