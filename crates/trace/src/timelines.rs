//! The server's timelines: recorded by every component, read by UID or by name, kept on disk.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use environment::Environment;
use parking_lot::Mutex;

use crate::journal::{Journal, Line};
use crate::table::Table;
use crate::{Error, Explain, Sink, Span, Timeline};

/// All pods' timelines. Cheap to clone; the last clone dropped finishes the file.
#[derive(Clone)]
pub struct Timelines {
    inner: Arc<Inner>,
}

/// So many explanations are kept.
const MOST_EXPLANATIONS: usize = 256;

struct Inner {
    table: Arc<Mutex<Table>>,
    /// By uid, the newest last.
    explanations: Mutex<VecDeque<(String, Arc<dyn Explain>)>>,
    journal: Option<Journal>,
    environment: Environment,
}

impl Timelines {
    /// Reads the timelines kept in `directory`; without one they live in memory only and no
    /// thread is started, as a simulation needs it.
    pub fn open(directory: Option<PathBuf>, environment: Environment) -> Result<Timelines, Error> {
        let table = Arc::default();
        let journal = match directory {
            Some(directory) => Some(Journal::open(&directory, &table)?),
            None => None,
        };
        Ok(Timelines {
            inner: Arc::new(Inner {
                table,
                explanations: Mutex::default(),
                journal,
                environment,
            }),
        })
    }

    /// Links a name to a UID, so that the newest pod of a name is found by it.
    pub fn begin(&self, uid: &str, namespace: &str, name: &str) {
        let mut table = self.inner.table.lock();
        table.begin(uid, namespace, name);
        self.append(|| Line::Begin {
            uid: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        });
    }

    pub fn get(&self, uid: &str) -> Option<Timeline> {
        let timeline = self.inner.table.lock().get(uid);
        timeline.map(|timeline| self.explained(timeline))
    }

    /// The timeline of the newest pod of that name.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Timeline> {
        let timeline = self.inner.table.lock().find(namespace, name);
        timeline.map(|timeline| self.explained(timeline))
    }

    fn explained(&self, timeline: Timeline) -> Timeline {
        let explanations = self.inner.explanations.lock();
        let mut newest = explanations.iter().rev();
        let found = newest.find(|(uid, _)| *uid == timeline.uid);
        let found = found.map(|(_, explanation)| explanation.clone());
        drop(explanations);
        Timeline {
            explanation: found.map_or(Vec::new(), |explanation| explanation.lines()),
            ..timeline
        }
    }

    /// The clock that spans are measured with.
    pub fn environment(&self) -> &Environment {
        &self.inner.environment
    }

    /// Called with the table locked, so that the file has the table's order.
    fn append(&self, line: impl FnOnce() -> Line) {
        if let Some(journal) = &self.inner.journal {
            journal.append(line());
        }
    }
}

impl Sink for Timelines {
    fn explain(&self, uid: &str, explanation: Arc<dyn Explain>) {
        let mut explanations = self.inner.explanations.lock();
        if explanations.len() == MOST_EXPLANATIONS {
            explanations.pop_front();
        }
        explanations.push_back((uid.to_owned(), explanation));
    }

    fn record(&self, uid: &str, span: Span) {
        let mut table = self.inner.table.lock();
        if table.record(uid, span.clone()) {
            self.append(|| Line::Span {
                uid: uid.to_owned(),
                span,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hop;

    fn span(start: i64) -> Span {
        Span {
            hop: Hop::Node,
            name: "RunPodSandbox".into(),
            component: "kubelet".into(),
            start,
            queue_us: 1,
            work_us: 2,
            bytes: 3,
            failure: None,
        }
    }

    #[test]
    fn timelines_survive_a_restart_and_a_torn_line() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let open =
            || Timelines::open(Some(directory.path().into()), Environment::system()).expect("open");
        let timelines = open();
        timelines.begin("uid", "ns", "pod");
        for start in 0..50 {
            let name = format!("step {start}");
            let span = span(start);
            timelines.record("uid", Span { name, ..span });
        }
        let before = timelines.find("ns", "pod").expect("known");
        drop(timelines);
        let path = directory.path().join("timelines.jsonl");
        let whole = std::fs::read(&path).expect("file");
        let mut torn = whole.clone();
        torn.extend_from_slice(b"{\"span\":{\"uid\":\"ui");
        std::fs::write(&path, torn).expect("write");
        assert_eq!(open().find("ns", "pod"), Some(before));
        assert_eq!(std::fs::read(&path).expect("file"), whole, "compacted");
    }

    #[test]
    fn without_a_directory_timelines_are_kept_in_memory() {
        let timelines = Timelines::open(None, Environment::system()).expect("open");
        timelines.record("uid", span(1));
        timelines.begin("uid", "ns", "pod");
        assert_eq!(timelines.get("uid").expect("known").spans.len(), 1);
        assert_eq!(timelines.find("ns", "pod").expect("known").uid, "uid");
    }

    #[test]
    fn the_newest_explanation_is_kept_for_a_while() {
        struct Because(usize);
        impl Explain for Because {
            fn lines(&self) -> Vec<String> {
                vec![self.0.to_string()]
            }
        }
        let timelines = Timelines::open(None, Environment::system()).expect("open");
        timelines.begin("uid", "ns", "pod");
        let explanation = |timelines: &Timelines| timelines.get("uid").expect("known").explanation;
        assert!(explanation(&timelines).is_empty());
        timelines.explain("uid", Arc::new(Because(1)));
        timelines.explain("uid", Arc::new(Because(2)));
        assert_eq!(explanation(&timelines), ["2"]);
        for _ in 0..MOST_EXPLANATIONS {
            timelines.explain("other", Arc::new(Because(3)));
        }
        assert!(explanation(&timelines).is_empty(), "forgotten");
    }
}
