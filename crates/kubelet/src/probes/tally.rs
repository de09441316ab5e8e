//! Counts probe results against the thresholds. Pure.

use super::Kind;

pub struct Tally {
    success_threshold: i32,
    failure_threshold: i32,
    last: Option<bool>,
    run: i32,
    verdict: Option<bool>,
}

impl Tally {
    /// `passed`: what the container's readiness is known to be.
    pub fn new(kind: Kind, passed: bool, success_threshold: i32, failure_threshold: i32) -> Tally {
        Tally {
            success_threshold: success_threshold.max(1),
            failure_threshold: failure_threshold.max(1),
            last: None,
            run: 0,
            // What holds before the first result.
            verdict: match kind {
                Kind::Startup => None,
                Kind::Readiness => Some(passed),
                Kind::Liveness => Some(true),
            },
        }
    }

    /// Counts one result; the new verdict if it changed.
    pub fn count(&mut self, good: bool) -> Option<bool> {
        if self.last == Some(good) {
            self.run = self.run.saturating_add(1);
        } else {
            self.last = Some(good);
            self.run = 1;
        }
        let threshold = if good {
            self.success_threshold
        } else {
            self.failure_threshold
        };
        if self.run < threshold || self.verdict == Some(good) {
            return None;
        }
        self.verdict = Some(good);
        Some(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, success: i32, failure: i32, results: &str, expected: &str) {
        check_from(false, kind, success, failure, results, expected);
    }

    fn check_from(
        passed: bool,
        kind: Kind,
        success: i32,
        failure: i32,
        results: &str,
        expected: &str,
    ) {
        let mut tally = Tally::new(kind, passed, success, failure);
        let verdicts: String = results
            .chars()
            .map(|result| match tally.count(result == '+') {
                None => '.',
                Some(true) => '+',
                Some(false) => '-',
            })
            .collect();
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn a_probe_result_changes_after_its_threshold() {
        check(Kind::Readiness, 1, 3, "-+--+---+", ".+.....-+");
        check(Kind::Readiness, 2, 1, "+++-+", ".+.-.");
        check(Kind::Liveness, 1, 3, "+--+---", "......-");
        check(Kind::Startup, 1, 2, "-+", ".+");
        check(Kind::Startup, 1, 2, "--", ".-");
    }

    #[test]
    fn a_failure_is_reported_for_a_container_that_was_ready_before_this_kubelet() {
        check_from(true, Kind::Readiness, 1, 2, "--+", ".-+");
        check_from(true, Kind::Readiness, 1, 2, "++--", "...-");
    }
}
