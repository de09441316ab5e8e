//! The progress of a pull, layer by layer.

use std::sync::Arc;

use tokio::sync::watch;

use super::manifest::Descriptor;

/// The stage of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Unpacked here before the pull began.
    Present,
    /// Waits for its turn.
    Waiting,
    Downloading,
    /// All bytes are here and right.
    Downloaded,
    Unpacking,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerProgress {
    pub digest: String,
    /// Bytes of the compressed layer, and how many of them are here.
    pub total: u64,
    pub received: u64,
    /// How many of them were here from an earlier attempt.
    pub resumed: u64,
    pub stage: Stage,
}

/// The layers of an image in order, lowest first; empty until the manifest is known.
#[derive(Clone, Debug)]
pub struct Progress(Arc<watch::Sender<Vec<LayerProgress>>>);

impl Progress {
    pub fn new() -> (Progress, watch::Receiver<Vec<LayerProgress>>) {
        let (sender, receiver) = watch::channel(Vec::new());
        (Progress(Arc::new(sender)), receiver)
    }

    pub(super) fn begin(&self, layers: &[Descriptor]) {
        self.0.send_replace(
            layers
                .iter()
                .map(|layer| LayerProgress {
                    digest: layer.digest.clone(),
                    total: layer.size,
                    received: 0,
                    resumed: 0,
                    stage: Stage::Waiting,
                })
                .collect(),
        );
    }

    /// Changes every layer with this digest: an image may hold the same one twice.
    pub(super) fn change(&self, digest: &str, change: impl Fn(&mut LayerProgress)) {
        self.0.send_modify(|layers| {
            layers
                .iter_mut()
                .filter(|layer| layer.digest == digest)
                .for_each(&change);
        });
    }

    pub(super) fn stage(&self, digest: &str, stage: Stage) {
        self.change(digest, |layer| {
            layer.stage = stage;
            if !matches!(stage, Stage::Waiting | Stage::Downloading) {
                layer.received = layer.total;
            }
        });
    }
}
