//! Calls to etcd with deadlines, another member when one fails, and a fresh token when one is old.
//! Writes are repeated only when they were surely not done.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::failure::Failure;
use super::keys::Keys;
use super::wire::auth_client::AuthClient;
use super::wire::kv_client::KvClient;
use super::wire::{self, ResponseHeader};
use super::{Credentials, Options, connection};
use crate::{Error, Revision};

/// etcd gives up a proposal after 7 s; its answer has more detail than our own timeout.
const WRITE: Duration = Duration::from_secs(10);
/// One try of a read, and all tries of it together.
const READ: Duration = Duration::from_secs(5);
const READS: Duration = Duration::from_secs(10);
/// How long a call that was surely not done is tried again: an election's length.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Calls under way at once; more wait.
const CALLS: usize = 1024;
/// The largest answer taken.
pub const MESSAGE_BYTES: usize = 256 << 20;

/// A member, spoken to with our metadata.
pub type Wire = InterceptedService<Channel, Headers>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Doing it twice is as doing it once.
    Freely,
    /// Only when it was surely not done.
    IfNotDone,
}

pub struct Client {
    pub keys: Keys,
    members: Vec<Channel>,
    /// The member that is asked first; moves on when it fails.
    preferred: AtomicUsize,
    calls: Semaphore,
    credentials: Option<Credentials>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    /// Set by the first answer; every endpoint must belong to the same cluster.
    cluster: OnceLock<u64>,
}

impl Client {
    pub fn new(options: &Options) -> Result<Client, Error> {
        if options.endpoints.is_empty() {
            return Err(Error::Refused("no etcd endpoint is given".to_owned()));
        }
        let members = options
            .endpoints
            .iter()
            .map(|endpoint| connection::channel(endpoint, options.tls.as_ref()))
            .collect::<Result<_, _>>()?;
        Ok(Client {
            keys: Keys::new(&options.root, &options.prefix),
            members,
            preferred: AtomicUsize::new(0),
            calls: Semaphore::new(CALLS),
            credentials: options.credentials.clone(),
            token: Mutex::new(None),
            cluster: OnceLock::new(),
        })
    }

    /// Calls one member after the other until one answers, as far as `repeat` and time allow.
    pub async fn call<Answer, Calling>(
        &self,
        repeat: Repeat,
        call: impl Fn(Wire) -> Calling,
    ) -> Result<Answer, Failure>
    where
        Answer: Headed,
        Calling: Future<Output = Result<Response<Answer>, Status>>,
    {
        let Ok(_permit) = self.calls.acquire().await else {
            return Err(Failure::Unavailable("the client is closed".to_owned()));
        };
        let start = Instant::now();
        let (once, patience) = match repeat {
            Repeat::Freely => (READ, READS),
            Repeat::IfNotDone => (WRITE, PATIENCE),
        };
        let mut pause = Pause::default();
        let mut fresh_token = false;
        for attempt in 1.. {
            let member = self.preferred.load(Ordering::Relaxed);
            let called = async { call(self.wire(member).await?).await };
            let failure = match tokio::time::timeout(once, called).await {
                Ok(Ok(answer)) => {
                    let answer = answer.into_inner();
                    self.check_cluster(answer.header())?;
                    return Ok(answer);
                }
                Ok(Err(status)) => Failure::of(&status),
                Err(_) => Failure::Lost(format!("no answer in {} s", once.as_secs())),
            };
            match &failure {
                Failure::Token(_) if self.credentials.is_some() && !fresh_token => {
                    fresh_token = true;
                    *self.token.lock().await = None;
                    continue;
                }
                Failure::Unavailable(_) => self.leave(member),
                Failure::Lost(_) => {
                    self.leave(member);
                    if repeat == Repeat::IfNotDone {
                        return Err(failure);
                    }
                }
                _ => return Err(failure),
            }
            if start.elapsed() >= patience {
                return Err(match failure {
                    // A read has no outcome that could be unknown.
                    Failure::Lost(reason) => Failure::Unavailable(reason),
                    failure => failure,
                });
            }
            if attempt % self.members.len() == 0 {
                pause.rest().await;
            }
        }
        unreachable!("the loop above has no end but return")
    }

    /// A linearizable read of the newest revision.
    pub async fn revision(&self) -> Result<Revision, Failure> {
        let range = self.keys.everything();
        let answer = self
            .call(Repeat::Freely, |wire| {
                let request = wire::RangeRequest {
                    key: range.key.clone(),
                    limit: 1,
                    count_only: true,
                    ..Default::default()
                };
                async move { KvClient::new(wire).range(request).await }
            })
            .await?;
        Ok(revision(answer.header()))
    }

    /// The member that is asked first at present, for a call that is not repeated.
    pub fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// Moves on from a member that failed, unless another call already did.
    pub fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        let order = Ordering::Relaxed;
        // Losing this race means that someone else moved on.
        let _ = self.preferred.compare_exchange(member, next, order, order);
    }

    pub async fn wire(&self, member: usize) -> Result<Wire, Status> {
        let channel = self.members[member].clone();
        let token = match &self.credentials {
            None => None,
            Some(credentials) => Some(self.token(channel.clone(), credentials).await?),
        };
        Ok(InterceptedService::new(channel, Headers { token }))
    }

    /// Forgets the token, so that the next call asks for a fresh one.
    pub async fn forget_token(&self) {
        *self.token.lock().await = None;
    }

    pub fn check_cluster(&self, header: Option<&ResponseHeader>) -> Result<(), Failure> {
        let Some(header) = header else {
            return Err(Failure::Refused("an answer without header".to_owned()));
        };
        let known = self.cluster.get_or_init(|| header.cluster_id);
        if *known != header.cluster_id {
            return Err(Failure::Refused(format!(
                "the endpoints belong to different clusters, {known:x} and {:x}",
                header.cluster_id
            )));
        }
        Ok(())
    }

    async fn token(
        &self,
        channel: Channel,
        credentials: &Credentials,
    ) -> Result<MetadataValue<Ascii>, Status> {
        let mut token = self.token.lock().await;
        if let Some(token) = &*token {
            return Ok(token.clone());
        }
        let request = wire::AuthenticateRequest {
            name: credentials.user.clone(),
            password: credentials.password.clone(),
        };
        let answer = AuthClient::new(channel).authenticate(request).await?;
        let fresh = MetadataValue::try_from(answer.into_inner().token)
            .map_err(|_| Status::internal("the token is not text"))?;
        *token = Some(fresh.clone());
        Ok(fresh)
    }
}

/// What every request carries: that the member must know a leader, and who asks.
#[derive(Clone)]
pub struct Headers {
    token: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            metadata.insert("token", token.clone());
        }
        Ok(request)
    }
}

/// The wait between tries, longer each time.
pub struct Pause(Duration);

impl Default for Pause {
    fn default() -> Pause {
        Pause(FIRST_PAUSE)
    }
}

impl Pause {
    pub async fn rest(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

/// An answer with the cluster and revision that it comes from.
pub trait Headed {
    fn header(&self) -> Option<&ResponseHeader>;
}

macro_rules! headed {
    ($($answer:ident),*) => {
        $(impl Headed for wire::$answer {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        })*
    };
}

headed!(
    RangeResponse,
    TxnResponse,
    CompactionResponse,
    LeaseGrantResponse,
    LeaseKeepAliveResponse,
    StatusResponse
);

pub fn revision(header: Option<&ResponseHeader>) -> Revision {
    header.map_or(0, |header| header.revision as u64)
}
