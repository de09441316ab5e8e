//! How long a request may take: what its `timeout` parameter says, within the server's own limit.

use std::future::Future;
use std::time::Duration;

use api::{Reason, Status};

use crate::query::Query;
use crate::request::RequestInfo;

/// The longest time that a request may take. Watches have no limit, streams only until their head.
const LONGEST: Duration = Duration::from_secs(60);

/// The time for a request; `None` for one that is meant to last.
pub(super) fn of(info: &RequestInfo, query: &Query) -> Result<Option<Duration>, Status> {
    if info.is_resource && info.verb == "watch" {
        return Ok(None);
    }
    let is_session = matches!(
        info.subresource.as_str(),
        "attach" | "exec" | "proxy" | "log" | "portforward"
    );
    if info.is_resource && is_session {
        // Their parameters are those of the kubelet or of the server behind the proxy. The head of
        // the answer must come in time.
        return Ok(Some(LONGEST));
    }
    let text = query.get("timeout");
    let asked = match text {
        "" => 0.0,
        text => parse(text).map_err(|problem| {
            Status::bad_request(format!(
                "invalid timeout specified in the request URL - {problem}"
            ))
        })?,
    };
    // Nothing, or less, is as good as not asked for.
    Ok(Some(match asked > 0.0 && asked < LONGEST.as_secs_f64() {
        true => Duration::from_secs_f64(asked),
        false => LONGEST,
    }))
}

/// The result of `work`, or a failure when it takes longer. Of an answer that lasts, the head comes
/// quickly; its body is a stream.
pub(super) async fn within<T>(
    limit: Option<Duration>,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    let Some(limit) = limit else {
        return work.await;
    };
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Status::new(
            Reason::Timeout,
            "request did not complete within the allotted timeout",
        ))
    })
}

/// The seconds of a duration as Go writes it, e.g. `1m30s`.
fn parse(text: &str) -> Result<f64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0.0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|letter| !is_number(letter)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let end = after.find(is_number).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let seconds = match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" => 1e-9,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            other => return Err(format!("time: unknown unit {other:?} in duration {text:?}")),
        };
        total += number * seconds;
        rest = after;
    }
    // What does not fit into 64 bits of nanoseconds.
    match total < i64::MAX as f64 / 1e9 {
        true => Ok(sign * total),
        false => Err(invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<f64, &str>) {
        assert_eq!(parse(text), expected.map_err(str::to_string), "{text}");
    }

    #[test]
    fn durations_are_read_as_go_reads_them() {
        check("30s", Ok(30.0));
        check("1m30s", Ok(90.0));
        check("1.5h", Ok(5400.0));
        check("-1s", Ok(-1.0));
        check("0", Ok(0.0));
        check("invalid", Err("time: invalid duration \"invalid\""));
        check("5", Err("time: missing unit in duration \"5\""));
        check("5x", Err("time: unknown unit \"x\" in duration \"5x\""));
        check("-", Err("time: invalid duration \"-\""));
        check(".s", Err("time: invalid duration \".s\""));
        check("1.2.3s", Err("time: invalid duration \"1.2.3s\""));
        check("9999999h", Err("time: invalid duration \"9999999h\""));
    }

    #[test]
    fn watches_have_no_deadline_and_other_requests_at_most_a_minute() {
        let of = |path: &str, query: &str| {
            let query = Query::parse(Some(query));
            let info =
                RequestInfo::parse(api::catalogue::built_in(), &http::Method::GET, path, &query)
                    .unwrap();
            of(&info, &query)
        };
        assert_eq!(of("/api/v1/pods", ""), Ok(Some(LONGEST)));
        assert_eq!(of("/api/v1/pods", "timeout=2h"), Ok(Some(LONGEST)));
        assert_eq!(of("/api/v1/pods", "timeout=0s"), Ok(Some(LONGEST)));
        let short = Duration::from_secs(5);
        assert_eq!(of("/version", "timeout=5s"), Ok(Some(short)));
        assert_eq!(of("/api/v1/pods", "watch=1&timeout=x"), Ok(None));
        let log = "/api/v1/namespaces/a/pods/b/log";
        assert_eq!(of(log, "timeout=x"), Ok(Some(LONGEST)));
        assert!(of("/version", "timeout=x").is_err());
    }
}
