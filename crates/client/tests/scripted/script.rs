//! A scripted API server: answers requests in order from a list, and remembers what was asked.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::client::Body;

const CHUNK_INTERVAL: Duration = Duration::from_millis(10);

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// One scripted answer.
pub enum Reply {
    /// A whole JSON body.
    Json(u16, String),
    /// Chunks of a watch, then its end as given.
    Watch(Vec<String>, End),
    /// The connection fails.
    Unreachable,
}

pub enum End {
    /// The stream stays open and silent.
    Open,
    Closed,
    /// The connection breaks.
    Broken,
}

#[derive(Clone, Default)]
pub struct Script {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    requests: Vec<(String, String)>,
}

impl Script {
    pub fn new(replies: Vec<Reply>) -> Script {
        let script = Script::default();
        script.lock().replies.extend(replies);
        script
    }

    pub fn client(&self) -> kube::Client {
        client::connect::from_service(self.clone())
    }

    /// Method and URI with its body after a space, in order.
    pub fn requests(&self) -> Vec<String> {
        let state = self.lock();
        let requests = state.requests.iter();
        requests
            .map(|(line, body)| format!("{line} {body}"))
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("script lock")
    }
}

impl tower::Service<Request<Body>> for Script {
    type Response = Answer;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Answer, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let script = self.clone();
        Box::pin(async move {
            let line = format!("{} {}", request.method(), request.uri());
            let body = request.into_body().collect().await;
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            let body = String::from_utf8_lossy(&body).into_owned();
            let reply = {
                let mut state = script.lock();
                state.requests.push((line, body));
                state.replies.pop_front()
            };
            match reply {
                Some(Reply::Json(code, text)) => Ok(answer(code, vec![text], End::Closed)),
                Some(Reply::Watch(chunks, end)) => Ok(answer(200, chunks, end)),
                Some(Reply::Unreachable) => Err(std::io::ErrorKind::ConnectionRefused.into()),
                // The end of the script: the server is silent from now on.
                None => std::future::pending().await,
            }
        })
    }
}

fn answer(code: u16, chunks: Vec<String>, end: End) -> Answer {
    // Spaced, so that a reader that does not dawdle sees each on its own.
    let chunks = stream::iter(chunks).then(|chunk| async {
        tokio::time::sleep(CHUNK_INTERVAL).await;
        Ok(Frame::data(Bytes::from(chunk)))
    });
    let body = match end {
        End::Closed => StreamBody::new(chunks).boxed_unsync(),
        End::Open => StreamBody::new(chunks.chain(stream::pending())).boxed_unsync(),
        End::Broken => {
            let broken = stream::iter([Err(std::io::ErrorKind::ConnectionReset.into())]);
            StreamBody::new(chunks.chain(broken)).boxed_unsync()
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("status");
    response
}
