//! Prints an error with its causes on one line: "context: cause: cause".
//!
//! Errors carry their causes in `source()` and do not repeat them in their own messages. Whoever
//! shows an error to a person (a log line, an event, the command line) prints it through
//! [`chain`]. Libraries that we do not own do repeat their causes; such a repetition is dropped.

use std::error::Error;
use std::fmt::{Display, Formatter, Result};

/// Prints `error`, then each of its causes, joined by ": ". A cause whose text already ends what
/// was printed is not printed again.
pub fn chain(error: &dyn Error) -> Chain<'_> {
    Chain(error)
}

/// An error that displays with its causes; made by [`chain`].
#[derive(Clone, Copy, Debug)]
pub struct Chain<'a>(&'a dyn Error);

impl Display for Chain<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let mut text = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let message = error.to_string();
            if !text.ends_with(&message) {
                text.push_str(": ");
                text.push_str(&message);
            }
            cause = error.source();
        }
        formatter.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error with a message and, optionally, a cause.
    #[derive(Debug)]
    struct Failure(&'static str, Option<Box<Failure>>);

    impl Display for Failure {
        fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
            formatter.write_str(self.0)
        }
    }

    impl Error for Failure {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn caused(message: &'static str, cause: Failure) -> Failure {
        Failure(message, Some(Box::new(cause)))
    }

    #[test]
    fn causes_follow_the_message() {
        let refused = Failure("connection refused", None);
        let error = caused("pull nginx", caused("dial 10.0.0.1", refused));
        assert_eq!(
            chain(&error).to_string(),
            "pull nginx: dial 10.0.0.1: connection refused"
        );
    }

    #[test]
    fn an_error_without_a_cause_is_its_message() {
        assert_eq!(chain(&Failure("no room", None)).to_string(), "no room");
    }

    #[test]
    fn a_cause_that_was_printed_already_is_not_repeated() {
        let refused = Failure("connection refused", None);
        let dial = caused("dial: connection refused", refused);
        let error = caused("pull nginx: dial: connection refused", dial);
        assert_eq!(
            chain(&error).to_string(),
            "pull nginx: dial: connection refused"
        );
    }

    #[test]
    fn a_cause_below_a_repeated_one_is_still_printed() {
        let refused = Failure("connection refused", None);
        let dial = caused("dial", refused);
        let error = caused("pull nginx: dial", dial);
        assert_eq!(
            chain(&error).to_string(),
            "pull nginx: dial: connection refused"
        );
    }
}
