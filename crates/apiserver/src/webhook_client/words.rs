//! What goes wrong on the way to a hook, in the words that Go's HTTP client has for it: users know
//! them, and tools look for them.

use std::error::Error;
use std::io;

use jiff::Timestamp;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;

/// A call that took too long.
pub(crate) const DEADLINE: &str = "context deadline exceeded";

/// Why a server was not reached or did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub String);

/// A connection that could not be made to this address.
pub(crate) fn of_dial(address: std::net::SocketAddr, problem: &io::Error) -> String {
    format!("dial tcp {address}: {}", of_connect(problem))
}

fn of_connect(problem: &io::Error) -> String {
    let words = match problem.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused",
        io::ErrorKind::HostUnreachable => "no route to host",
        io::ErrorKind::NetworkUnreachable => "network is unreachable",
        io::ErrorKind::TimedOut => return "i/o timeout".to_string(),
        _ => return problem.to_string(),
    };
    format!("connect: {words}")
}

/// A TLS handshake that failed.
pub(crate) fn of_handshake(problem: &io::Error) -> String {
    let inner = problem.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(error)) => {
            format!(
                "tls: failed to verify certificate: {}",
                of_certificate(error)
            )
        }
        Some(rustls::Error::AlertReceived(alert)) => format!("remote error: tls: {alert:?}"),
        Some(rustls::Error::InvalidMessage(_)) => {
            "tls: first record does not look like a TLS handshake".to_string()
        }
        Some(other) => format!("tls: {other}"),
        None if problem.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_string(),
        None => of_connect(problem),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    const VALIDITY: &str = "x509: certificate has expired or is not yet valid";
    match error {
        // An authority of the same name that did not sign it is another one.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "x509: certificate signed by unknown authority".to_string()
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "{VALIDITY}: current time {} is after {}",
            text(*time),
            text(*not_after)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "{VALIDITY}: current time {} is before {}",
            text(*time),
            text(*not_before)
        ),
        CertificateError::Expired | CertificateError::NotValidYet => VALIDITY.to_string(),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = expected.to_str();
            match presented.is_empty() {
                true => {
                    "x509: certificate is not valid for any names, but wanted to match ".to_string()
                        + &expected
                }
                false => {
                    let names: Vec<&str> = presented.iter().map(|name| plain(name)).collect();
                    format!(
                        "x509: certificate is valid for {}, not {expected}",
                        names.join(", ")
                    )
                }
            }
        }
        other => format!("x509: {other}"),
    }
}

/// `DnsName("a")` as `a`.
fn plain(presented: &str) -> &str {
    match presented.split_once("(\"") {
        Some((_, rest)) => rest.trim_end_matches("\")"),
        None => presented,
    }
}

fn text(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match Timestamp::from_second(seconds) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => seconds.to_string(),
    }
}

/// A request that got no answer.
pub(crate) fn of_exchange(problem: &hyper::Error) -> String {
    if problem.is_incomplete_message() || problem.is_canceled() || problem.is_closed() {
        return "EOF".to_string();
    }
    let mut source = problem.source();
    while let Some(inner) = source {
        if let Some(inner) = inner.downcast_ref::<io::Error>() {
            return match inner.kind() {
                io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_string(),
                io::ErrorKind::UnexpectedEof => "EOF".to_string(),
                _ => inner.to_string(),
            };
        }
        source = inner.source();
    }
    problem.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expired_certificate_is_reported_with_both_times() {
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let error = CertificateError::ExpiredContext {
            time: at(1_800_000_000),
            not_after: at(1_700_000_000),
        };
        assert_eq!(
            of_certificate(&error),
            "x509: certificate has expired or is not yet valid: current time 2027-01-15T08:00:00Z is after 2023-11-14T22:13:20Z"
        );
    }

    #[test]
    fn a_refused_connection_has_the_error_of_go() {
        let problem = io::Error::from(io::ErrorKind::ConnectionRefused);
        let address = "127.0.0.1:9".parse().unwrap();
        assert_eq!(
            of_dial(address, &problem),
            "dial tcp 127.0.0.1:9: connect: connection refused"
        );
    }
}
