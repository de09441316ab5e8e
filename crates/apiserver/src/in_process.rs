//! The transport of our own components: requests that never become bytes on a socket, yet take the
//! same way through authorization and admission.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use tower::Service;

use crate::Identity;
use crate::body::{Body, BoxError};
use crate::handler::{self, Caller};
use crate::server::Server;

/// A tower service over the server, acting as one identity; give it to `kube::Client::new`.
#[derive(Clone)]
pub struct InProcess {
    server: Arc<Server>,
    identity: Identity,
}

impl InProcess {
    pub(crate) fn new(server: Arc<Server>, identity: Identity) -> InProcess {
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
        let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        Box::pin(
            async move { Ok(handler::handle(server, request, Caller::InProcess(identity)).await) },
        )
    }
}
