//! A pull's progress on a pod's timeline: one span per layer that grows while bytes arrive, and one
//! for its unpacking.

use std::{collections::BTreeMap, time::Duration};

use environment::Environment;
use trace::{Hop, Recorder, Span};

use crate::images::{LayerProgress, Pull, Stage};

/// How often a growing span is written anew.
const PACE: Duration = Duration::from_millis(500);

/// Records until the pull ends, whichever caller asked for it.
pub fn follow(recorder: Recorder, environment: Environment, uid: String, pull: &Pull) {
    let (mut progress, done) = (pull.progress.clone(), pull.done.clone());
    tokio::spawn(async move {
        let mut written = Written::default();
        // The sender goes when the pull has ended.
        while progress.changed().await.is_ok() {
            let layers = progress.borrow_and_update().clone();
            written.record(&recorder, &environment, &uid, &layers);
            tokio::time::sleep(PACE).await;
        }
        let _ = done.await;
        let layers = progress.borrow().clone();
        written.record(&recorder, &environment, &uid, &layers);
    });
}

/// When the work on each layer was first seen, and its progress that was last recorded.
#[derive(Default)]
struct Written {
    began: BTreeMap<String, i64>,
    last: BTreeMap<String, LayerProgress>,
}

impl Written {
    fn record(
        &mut self,
        recorder: &Recorder,
        environment: &Environment,
        uid: &str,
        layers: &[LayerProgress],
    ) {
        let now = environment.now_micros();
        for (number, layer) in layers.iter().enumerate() {
            if matches!(layer.stage, Stage::Present | Stage::Waiting)
                || self.last.get(&layer.digest) == Some(layer)
            {
                continue;
            }
            self.last.insert(layer.digest.clone(), layer.clone());
            let start = *self.began.entry(layer.digest.clone()).or_insert(now);
            let short: String = layer.digest.chars().skip(7).take(12).collect();
            recorder.record(
                uid,
                Span {
                    hop: Hop::Node,
                    name: format!(
                        "layer {}/{} {short} of {:.1} MB",
                        number + 1,
                        layers.len(),
                        layer.total as f64 / 1e6
                    ),
                    component: "runtime".to_owned(),
                    start,
                    queue_us: 0,
                    work_us: u64::try_from(now - start).unwrap_or(0),
                    bytes: layer.received,
                    failure: None,
                },
            );
        }
    }
}
