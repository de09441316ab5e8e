//! Gives every call to the runtime a deadline, so that one that hangs is an error like any other
//! and no caller waits for ever. How long a call may take is decided by its method, as upstream
//! does; the seconds that a caller grants the runtime itself come on top.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tonic::{
    Request, Status,
    codegen::{Body, Service, StdError, http},
};

/// Upstream's `runtimeRequestTimeout`.
const DEFAULT: Duration = Duration::from_secs(120);

/// What a caller grants beyond the ordinary deadline.
#[derive(Clone, Copy)]
struct Granted(Duration);

/// A request whose answer may take this much longer than others', because the runtime is asked to
/// wait so long itself.
pub fn with_time<T>(message: T, granted: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Granted(granted));
    request
}

/// The ordinary deadline, shared by all clones of a client.
#[derive(Clone, Debug)]
pub(crate) struct Limit(Arc<AtomicU64>);

impl Default for Limit {
    fn default() -> Limit {
        Limit(Arc::new(AtomicU64::new(DEFAULT.as_millis() as u64)))
    }
}

impl Limit {
    pub(crate) fn set(&self, limit: Duration) {
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.0.store(millis, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// How long the call of this path may take; `None` for those that take as long as they take.
fn deadline(path: &str, limit: Duration, granted: Option<Duration>) -> Option<Duration> {
    let method = path.rsplit('/').next().unwrap_or_default();
    match method {
        // A large image takes its time, a stream lasts.
        "PullImage" | "GetContainerEvents" => None,
        _ if method.starts_with("Stream") => None,
        // A command without a limit of its own may run as long as it likes.
        "ExecSync" | "CheckpointContainer" => granted.map(|granted| limit + granted),
        "RunPodSandbox" => Some(limit * 2),
        _ => Some(limit + granted.unwrap_or_default()),
    }
}

/// A channel whose calls have deadlines.
#[derive(Clone, Debug)]
pub struct Deadlined<S> {
    inner: S,
    limit: Limit,
}

impl<S> Deadlined<S> {
    pub(crate) fn new(inner: S, limit: Limit) -> Deadlined<S> {
        Deadlined { inner, limit }
    }
}

impl<S, B, R> Service<http::Request<B>> for Deadlined<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>>,
    S::Future: Send + 'static,
    S::Error: Into<StdError>,
    R: Body,
{
    type Response = http::Response<R>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, StdError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let granted = request.extensions().get::<Granted>();
        let granted = granted.map(|granted| granted.0);
        let deadline = deadline(request.uri().path(), self.limit.get(), granted);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let Some(deadline) = deadline else {
                return answer.await.map_err(Into::into);
            };
            match tokio::time::timeout(deadline, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(Status::deadline_exceeded("context deadline exceeded").into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_its_own_timeout() {
        let seconds = Duration::from_secs;
        let check = |method: &str, granted: Option<u64>, expected: Option<u64>| {
            let path = format!("/runtime.v1.RuntimeService/{method}");
            let found = deadline(&path, seconds(120), granted.map(seconds));
            assert_eq!(found, expected.map(seconds), "{method}");
        };
        check("Status", None, Some(120));
        check("RunPodSandbox", None, Some(240));
        check("StopContainer", Some(30), Some(150));
        check("ExecSync", Some(1), Some(121));
        check("ExecSync", None, None);
        check("PullImage", None, None);
        check("GetContainerEvents", None, None);
        check("StreamContainers", None, None);
    }
}
