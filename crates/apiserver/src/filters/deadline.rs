//! How long a request may take: what its `timeout` parameter says, within the server's own limit.

use std::future::Future;
use std::time::Duration;

use api::{Reason, Status};
use environment::go_duration;

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
        "" => 0,
        text => go_duration::parse(text).map_err(|problem| {
            Status::bad_request(format!(
                "invalid timeout specified in the request URL - {problem}"
            ))
        })?,
    };
    // Upstream takes zero and negative durations as if the parameter was not given.
    Ok(Some(match u64::try_from(asked) {
        Ok(asked @ 1..) => Duration::from_nanos(asked).min(LONGEST),
        _ => LONGEST,
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(of("/version", "timeout=-5s"), Ok(Some(LONGEST)));
        assert!(of("/version", "timeout=x").is_err());
    }
}
