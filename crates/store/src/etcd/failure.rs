//! The meaning of etcd's answer, or of its absence, for the request: refused, surely not done, or
//! unknown.

use std::error::Error as _;

use tonic::{Code, Status};

use crate::Error;

/// Why a call failed, by what may be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    Compacted,
    Future,
    LeaseNotFound,
    /// The answer is bigger than we take; a smaller page may do.
    TooLarge,
    /// The request is bigger than etcd takes. Nothing was done.
    RequestTooLarge,
    /// The token is missing or too old. Nothing was done.
    Token(String),
    /// etcd refused the request. Nothing was done.
    Refused(String),
    /// This member cannot serve now, another might. Nothing was done.
    Unavailable(String),
    /// Sent, and no answer: done or not.
    Lost(String),
}

impl Failure {
    pub fn of(status: &Status) -> Failure {
        let text = status.message();
        let owned = || text.to_owned();
        if never_sent(status) {
            return Failure::Unavailable(format!("{text}{}", causes(status)));
        }
        match (status.code(), text.strip_prefix("etcdserver: ")) {
            (Code::OutOfRange, Some(text)) if text.contains("compacted") => Failure::Compacted,
            (Code::OutOfRange, Some(text)) if text.contains("future") => Failure::Future,
            (Code::OutOfRange, None) => Failure::TooLarge,
            (Code::InvalidArgument, Some("request is too large")) => Failure::RequestTooLarge,
            // Said by its listener, which takes a little more than etcd itself.
            (Code::ResourceExhausted, None) if text.contains("message larger than max") => {
                Failure::RequestTooLarge
            }
            (Code::NotFound, Some("requested lease not found")) => Failure::LeaseNotFound,
            (Code::Unauthenticated, _)
            | (_, Some("revision of auth store is old" | "user name is empty")) => {
                Failure::Token(owned())
            }
            // Said before the request is proposed to the cluster.
            (_, Some("no leader" | "too many requests" | "not capable"))
            | (_, Some("rpc not supported for learner")) => Failure::Unavailable(owned()),
            (Code::InvalidArgument | Code::NotFound | Code::FailedPrecondition, Some(_))
            | (Code::PermissionDenied | Code::ResourceExhausted | Code::OutOfRange, Some(_))
            | (Code::Unimplemented, _) => Failure::Refused(owned()),
            // Timeouts, lost connections and changes of leader: etcd itself does not know.
            _ => Failure::Lost(format!("{text}{}", causes(status))),
        }
    }

    /// For a request whose special failures have been dealt with.
    pub fn into_error(self) -> Error {
        match self {
            Failure::Unavailable(reason) => Error::Unavailable(reason),
            Failure::Lost(reason) => Error::OutcomeUnknown(reason),
            Failure::Refused(reason) | Failure::Token(reason) => Error::Refused(reason),
            Failure::TooLarge => Error::Refused("the answer is too large".to_owned()),
            Failure::RequestTooLarge => Error::TooLarge,
            Failure::Compacted => Error::Refused("compacted".to_owned()),
            Failure::Future => Error::Refused("future revision".to_owned()),
            Failure::LeaseNotFound => Error::Refused("lease not found".to_owned()),
        }
    }
}

/// Whether the connection never came about.
fn never_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn causes(status: &Status) -> String {
    let mut text = String::new();
    let mut cause = status.source();
    while let Some(error) = cause {
        text = format!(": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: Code, message: &str, expected: fn(String) -> Failure) {
        let status = Status::new(code, message);
        assert_eq!(Failure::of(&status), expected(message.to_owned()));
    }

    #[test]
    fn the_outcome_of_a_write_is_unknown_unless_etcd_surely_did_nothing() {
        check(
            Code::Unavailable,
            "etcdserver: no leader",
            Failure::Unavailable,
        );
        check(
            Code::Unavailable,
            "etcdserver: request timed out",
            Failure::Lost,
        );
        check(
            Code::Unavailable,
            "etcdserver: leader changed",
            Failure::Lost,
        );
        check(
            Code::Unavailable,
            "etcdserver: server stopped",
            Failure::Lost,
        );
        check(Code::Unavailable, "connection reset", Failure::Lost);
        check(Code::Cancelled, "h2 stream closed", Failure::Lost);
        check(Code::Unknown, "anything", Failure::Lost);
        check(
            Code::ResourceExhausted,
            "etcdserver: mvcc: database space exceeded",
            Failure::Refused,
        );
        check(
            Code::InvalidArgument,
            "etcdserver: revision of auth store is old",
            Failure::Token,
        );
        let too_large = |_| Failure::RequestTooLarge;
        check(
            Code::InvalidArgument,
            "etcdserver: request is too large",
            too_large,
        );
        check(
            Code::ResourceExhausted,
            "grpc: received message larger than max (2200000 vs. 2097152)",
            too_large,
        );
    }
}
