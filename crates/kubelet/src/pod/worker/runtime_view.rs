//! The pod as the worker last read it from the runtime, and when it must be read again.

use crate::runtime::Observed;

pub(super) struct RuntimeView {
    /// `None` until the runtime has been read once.
    observed: Option<Observed>,
    /// Counts the worker's own changes: a reading that began before one is stale after it.
    epoch: u64,
    reading: bool,
    read_again: bool,
}

impl RuntimeView {
    pub fn new() -> RuntimeView {
        RuntimeView {
            observed: None,
            epoch: 0,
            reading: false,
            read_again: true,
        }
    }

    pub fn observed(&self) -> Option<&Observed> {
        self.observed.as_ref()
    }

    /// The pod must be read again.
    pub fn read_again(&mut self) {
        self.read_again = true;
    }

    /// If the pod must be read and is not being read already, returns the epoch for the reading.
    pub fn begin_reading(&mut self) -> Option<u64> {
        if !self.read_again || self.reading {
            return None;
        }
        self.read_again = false;
        self.reading = true;
        Some(self.epoch)
    }

    /// Takes over what a reading found. Returns false if it failed or is stale; the pod is then read
    /// again.
    pub fn reading_ended(&mut self, epoch: u64, observed: Result<Observed, tonic::Status>) -> bool {
        self.reading = false;
        match observed {
            Ok(observed) if epoch == self.epoch => {
                self.observed = Some(observed);
                true
            }
            _ => {
                self.read_again = true;
                false
            }
        }
    }

    /// The worker has changed something in the runtime: readings that are under way are stale. Returns
    /// what is known, so that the change can be noted in it.
    pub fn own_change(&mut self) -> Option<&mut Observed> {
        self.epoch += 1;
        self.observed.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_began_before_an_own_change_is_stale() {
        let mut view = RuntimeView::new();
        let epoch = view.begin_reading().expect("the first reading is due");
        assert_eq!(view.begin_reading(), None, "one reading at a time");
        view.own_change();
        assert!(!view.reading_ended(epoch, Ok(Observed::default())));
        assert!(view.observed().is_none());
        let epoch = view.begin_reading().expect("it is read again");
        assert!(view.reading_ended(epoch, Ok(Observed::default())));
        assert!(view.observed().is_some());
        assert_eq!(view.begin_reading(), None, "nothing has changed");
    }

    #[test]
    fn a_failed_reading_is_tried_again() {
        let mut view = RuntimeView::new();
        let epoch = view.begin_reading().expect("due");
        let failed = Err(tonic::Status::unavailable("no runtime"));
        assert!(!view.reading_ended(epoch, failed));
        assert!(view.begin_reading().is_some());
    }
}
