//! Reports a missed deadline of a caller (`grpc-timeout`) as DeadlineExceeded. The transport enforces
//! the deadline too, but reports a cancellation.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use tonic::{Status, body::Body};
use tower::{Layer, Service};

/// How much earlier than the transport this layer ends a call.
const AHEAD: Duration = Duration::from_millis(3);

#[derive(Clone, Copy, Debug)]
pub struct Deadlines;

impl<S> Layer<S> for Deadlines {
    type Service = WithDeadline<S>;

    fn layer(&self, inner: S) -> WithDeadline<S> {
        WithDeadline { inner }
    }
}

#[derive(Clone, Debug)]
pub struct WithDeadline<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for WithDeadline<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let given = request.headers().get("grpc-timeout");
        let allowed = given.and_then(|text| parse(text.to_str().ok()?));
        let answer = self.inner.call(request);
        let Some(allowed) = allowed else {
            return Box::pin(answer);
        };
        Box::pin(async move {
            match tokio::time::timeout(allowed.saturating_sub(AHEAD), answer).await {
                Ok(answer) => answer,
                Err(_) => Ok(Status::deadline_exceeded("context deadline exceeded").into_http()),
            }
        })
    }
}

/// At most eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(match unit {
        'H' => Duration::from_secs(number.checked_mul(3600)?),
        'M' => Duration::from_secs(number.checked_mul(60)?),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_missed_deadline_is_reported_as_deadline_exceeded() {
        let slow = tower::service_fn(|_: Request<Body>| async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok::<_, Infallible>(Response::new(Body::empty()))
        });
        let mut service = Deadlines.layer(slow);
        let request = |timeout: &str| {
            let builder = Request::builder().header("grpc-timeout", timeout);
            builder.body(Body::empty()).expect("a request")
        };
        let late = service.call(request("100m")).await.expect("an answer");
        assert_eq!(late.headers()["grpc-status"], "4");
        let early = service.call(request("2M")).await.expect("an answer");
        assert!(!early.headers().contains_key("grpc-status"));
    }

    #[test]
    fn every_unit_of_a_timeout_is_parsed() {
        assert_eq!(parse("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(parse("250u"), Some(Duration::from_micros(250)));
        assert_eq!(parse("x"), None);
    }
}
