//! Reports every call over a channel to an observer, which counts and times them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Instant;
use tonic::{
    body::Body,
    codegen::http::{Request, Response},
    transport::{Channel, Error},
};
use tower::Service;

/// Hears of calls when they have been answered or given up.
pub trait Observer: Send + Sync {
    /// `method` is CRI's name of the call, such as `RunPodSandbox`.
    fn called(&self, method: &str, took: Duration, failed: bool);
}

/// A channel that reports its calls to an observer.
#[derive(Clone)]
pub struct Calls {
    channel: Channel,
    observer: Option<Arc<dyn Observer>>,
}

impl Calls {
    pub fn new(channel: Channel, observer: Option<Arc<dyn Observer>>) -> Calls {
        Calls { channel, observer }
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.channel.fmt(formatter)
    }
}

impl Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = self.observer.clone().map(|observer| Call {
            observer,
            path: request.uri().path().to_owned(),
            began: Instant::now(),
            failed: true,
        });
        let answer = self.channel.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let (Some(mut call), Ok(response)) = (call, &answer) {
                // An error comes with the head of the answer: there is no message before it.
                let status = response.headers().get("grpc-status");
                call.failed = status.is_some_and(|status| status != "0");
            }
            answer
        })
    }
}

/// A call under way. Dropped before its answer, it has failed.
struct Call {
    observer: Arc<dyn Observer>,
    path: String,
    began: Instant,
    failed: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        let method = self.path.rsplit('/').next().unwrap_or_default();
        self.observer
            .called(method, self.began.elapsed(), self.failed);
    }
}
