//! Classification of API errors, and repeating a read-modify-write that lost a race.

use std::{future::Future, time::Duration};

use environment::Environment;

use crate::backoff::jitter;

const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Repeats `operation` a few times while it fails with a conflict. The operation must read the
/// object again each time.
pub async fn on_conflict<T, Operation, Attempt>(
    environment: &Environment,
    mut operation: Operation,
) -> kube::Result<T>
where
    Operation: FnMut() -> Attempt,
    Attempt: Future<Output = kube::Result<T>>,
{
    for _ in 1..ATTEMPTS {
        match operation().await {
            Err(error) if is_conflict(&error) => {
                tokio::time::sleep(PAUSE + jitter(environment, PAUSE / 10)).await;
            }
            result => return result,
        }
    }
    operation().await
}

/// The object changed since it was read (409 Conflict).
pub fn is_conflict(error: &kube::Error) -> bool {
    has(error, 409, "Conflict")
}

/// An object of that name exists already (409 AlreadyExists).
pub fn is_already_exists(error: &kube::Error) -> bool {
    has(error, 409, "AlreadyExists")
}

/// The object would not be valid (422 Invalid).
pub fn is_invalid(error: &kube::Error) -> bool {
    has(error, 422, "Invalid")
}

pub fn is_not_found(error: &kube::Error) -> bool {
    has(error, 404, "NotFound")
}

/// The namespace of the object is being deleted: creating in it will not succeed.
pub fn is_namespace_terminating(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
    if status.details.as_ref().is_some_and(|details| {
        details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    }))
}

/// Whether a later request may succeed: the server was not reached, is overloaded or stopping.
pub fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}

/// Whether a write that failed with this error may have succeeded nevertheless, because there was no
/// response or an ambiguous one.
pub fn is_outcome_unknown(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500,
        _ => true,
    }
}

/// The server will always reject this request: it is invalid, or its user is unknown.
pub fn is_refused_for_good(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 401 | 422))
}

/// The error with its causes in one line. `kube::Error` itself prints a whole `Status`.
pub fn sentence(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return match (status.message.as_str(), status.reason.as_str()) {
            ("", reason) => format!("the server answered {} {reason}", status.code),
            (message, _) => message.to_string(),
        };
    }
    environment::chain(error).to_string()
}

fn has(error: &kube::Error, code: u16, reason: &str) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code && status.reason == reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, reason: &str) -> kube::Error {
        let mut status = kube::core::Status::failure("no", reason);
        status.code = code;
        kube::Error::Api(status.boxed())
    }

    async fn attempts(mut failures: Vec<kube::Error>) -> (usize, bool) {
        let environment = Environment::simulated(1, 0);
        let mut made = 0;
        let result = on_conflict(&environment, || {
            made += 1;
            let result = failures.pop().map_or(Ok(()), Err);
            async { result }
        })
        .await;
        (made, result.is_ok())
    }

    #[test]
    fn an_error_is_printed_in_one_line_with_its_causes() {
        let mut status = kube::core::Status::failure("nodes \"n\" is forbidden", "Forbidden");
        status.code = 403;
        let error = kube::Error::Api(status.boxed());
        assert_eq!(sentence(&error), "nodes \"n\" is forbidden");
        let source = std::io::Error::other("the cause");
        let error = kube::Error::Service(Box::new(source));
        let said = sentence(&error);
        assert!(
            said.ends_with("the cause") && !said.contains("Custom {"),
            "{said}"
        );
    }

    #[test]
    fn permanent_rejections_are_distinguished_from_transient_errors() {
        for (code, reason, expected) in [
            (401, "Unauthorized", true),
            (422, "Invalid", true),
            (400, "BadRequest", true),
            (403, "Forbidden", false),
            (409, "Conflict", false),
            (503, "ServiceUnavailable", false),
        ] {
            assert_eq!(
                is_refused_for_good(&error(code, reason)),
                expected,
                "{code}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_conflicts_are_retried_and_only_a_few_times() {
        let conflicts = |count| (0..count).map(|_| error(409, "Conflict")).collect();
        assert_eq!(attempts(conflicts(0)).await, (1, true));
        assert_eq!(attempts(conflicts(3)).await, (4, true));
        assert_eq!(attempts(conflicts(9)).await, (5, false));
        assert_eq!(
            attempts(vec![error(409, "AlreadyExists")]).await,
            (1, false)
        );
        assert_eq!(attempts(vec![error(404, "NotFound")]).await, (1, false));
    }
}
