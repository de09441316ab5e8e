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
    pub fn new(kind: Kind, success_threshold: i32, failure_threshold: i32) -> Tally {
        Tally {
            success_threshold: success_threshold.max(1),
            failure_threshold: failure_threshold.max(1),
            last: None,
            run: 0,
            // What holds before the first result.
            verdict: match kind {
                Kind::Startup => None,
                Kind::Readiness => Some(false),
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
        let mut tally = Tally::new(kind, success, failure);
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
    fn thresholds_decide() {
        check(Kind::Readiness, 1, 3, "-+--+---+", ".+.....-+");
        check(Kind::Readiness, 2, 1, "+++-+", ".+.-.");
        check(Kind::Liveness, 1, 3, "+--+---", "......-");
        check(Kind::Startup, 1, 2, "-+", ".+");
        check(Kind::Startup, 1, 2, "--", ".-");
    }
}
