//! The transport of our own components: requests that never become bytes on a socket, yet take the
//! same way through authorization and admission.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response};
use http_body_util::BodyExt;
use tower::Service;

use crate::Identity;
use crate::body::{Body, BoxError};
use crate::filters::{self, Caller};
use crate::server::Server;

/// A tower service over the server, acting as one identity; give it to `kube::Client::new`.
#[derive(Clone)]
pub struct InProcess {
    server: Arc<Server>,
    identity: Arc<Identity>,
}

impl InProcess {
    pub(crate) fn new(server: Arc<Server>, identity: Identity) -> InProcess {
        let identity = Arc::new(identity);
        InProcess { server, identity }
    }
}

impl<B> Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (server, identity) = (self.server.clone(), self.identity.clone());
        let mut request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        if let Ok(agent) = HeaderValue::from_str(agent_of(identity.user())) {
            request.headers_mut().entry(USER_AGENT).or_insert(agent);
        }
        Box::pin(
            async move { Ok(filters::handle(server, request, Caller::InProcess(identity)).await) },
        )
    }
}

/// What a component of this process is called, also as the owner of fields.
fn agent_of(user: &str) -> &str {
    match user.strip_prefix("system:").unwrap_or(user) {
        name if name.starts_with("node:") => "kubelet",
        name if name.starts_with("serviceaccount:kube-system:") => "kube-controller-manager",
        name => name,
    }
}
