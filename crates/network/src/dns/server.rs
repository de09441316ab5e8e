//! The sockets: UDP and TCP on one address, a bounded number of questions in flight.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::DNSClass;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::forward::{Forwarder, Transport};
use super::names_index::NamesIndex;
use super::zone::{Answer, Zone, ZoneLookup};

/// What we accept and announce over UDP: fits an unfragmented packet nearly everywhere.
const UDP_PAYLOAD: u16 = 1232;
/// Regardless of the size that a client accepts: a small question must not fetch an answer of any size for
/// somebody whose address it bears.
const LARGEST_UDP_ANSWER: u16 = 4096;
const MOST_FORWARDED: usize = 1024;
const MOST_CONNECTIONS: usize = 256;
/// Of one client, so that no pod takes the places of all others.
const MOST_CONNECTIONS_OF_ONE: usize = 32;
const IDLE: Duration = Duration::from_secs(10);
/// After a failed accept or receive, so that a lasting error does not spin.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

pub struct Server {
    udp: Arc<UdpSocket>,
    tcp: TcpListener,
}

struct Resolver {
    zone: Zone,
    index: Arc<RwLock<NamesIndex>>,
    forwarder: Forwarder,
    forwards: Semaphore,
}

impl Server {
    pub async fn bind(address: SocketAddr) -> Result<Server, Error> {
        let failed = |source| Error::Listen { address, source };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        // With port 0 both get the port the kernel chose for the first.
        let address = tcp.local_addr().map_err(failed)?;
        let udp = UdpSocket::bind(address).await.map_err(failed)?;
        Ok(Server {
            udp: Arc::new(udp),
            tcp,
        })
    }

    #[cfg(test)]
    pub fn address(&self) -> SocketAddr {
        self.tcp
            .local_addr()
            .expect("a bound socket has an address")
    }

    pub async fn serve(
        self,
        zone: Zone,
        index: Arc<RwLock<NamesIndex>>,
        forwarder: Forwarder,
        shutdown: CancellationToken,
    ) -> Result<(), Error> {
        let forwards = Semaphore::new(MOST_FORWARDED);
        let resolver = Arc::new(Resolver {
            zone,
            index,
            forwarder,
            forwards,
        });
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            () = serve_udp(&self.udp, &resolver, &shutdown) => Ok(()),
            () = serve_tcp(&self.tcp, &resolver, &shutdown) => Ok(()),
        }
    }
}

/// Answers from the cache are sent at once; questions for others wait in tasks of their own.
async fn serve_udp(
    socket: &Arc<UdpSocket>,
    resolver: &Arc<Resolver>,
    shutdown: &CancellationToken,
) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(%error, "receiving a question failed");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                continue;
            }
        };
        match resolver.local(&buffer[..length], Transport::Udp) {
            Local::Nothing => {}
            Local::Reply(bytes) => {
                let _ = socket.send_to(&bytes, client).await;
            }
            Local::Ask(question) => {
                let (socket, resolver, shutdown) =
                    (socket.clone(), resolver.clone(), shutdown.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => {}
                        reply = resolver.ask(question, Transport::Udp) => {
                            let _ = socket.send_to(&reply, client).await;
                        }
                    }
                });
            }
        }
    }
}

async fn serve_tcp(listener: &TcpListener, resolver: &Arc<Resolver>, shutdown: &CancellationToken) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let clients = Arc::new(Clients::default());
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, client)) => {
                let Some(admitted) = clients.admit(client.ip()) else {
                    continue;
                };
                let (resolver, shutdown) = (resolver.clone(), shutdown.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => {}
                        _ = serve_connection(stream, &resolver) => {}
                    }
                    drop((admitted, place));
                });
            }
            Err(error) => {
                tracing::debug!(%error, "accepting a connection failed");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

/// How many connections each client has; who has none takes no room.
#[derive(Default)]
struct Clients(Mutex<HashMap<IpAddr, usize>>);

/// A connection that is counted while this lives.
struct Admitted {
    clients: Arc<Clients>,
    client: IpAddr,
}

impl Clients {
    /// `None` when the client has as many connections as it may have.
    fn admit(self: &Arc<Clients>, client: IpAddr) -> Option<Admitted> {
        let mut counts = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let count = counts.entry(client).or_default();
        (*count < MOST_CONNECTIONS_OF_ONE).then(|| {
            *count += 1;
            Admitted {
                clients: self.clone(),
                client,
            }
        })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let counts = &self.clients.0;
        let mut counts = counts
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

async fn serve_connection(mut stream: TcpStream, resolver: &Resolver) -> std::io::Result<()> {
    loop {
        let mut buffer = Vec::new();
        timeout(IDLE, async {
            let length = stream.read_u16().await?;
            buffer.resize(usize::from(length), 0);
            stream.read_exact(&mut buffer).await
        })
        .await??;
        let reply = match resolver.local(&buffer, Transport::Tcp) {
            Local::Nothing => return Ok(()),
            Local::Reply(bytes) => bytes,
            Local::Ask(question) => resolver.ask(question, Transport::Tcp).await,
        };
        let mut framed = (reply.len() as u16).to_be_bytes().to_vec();
        framed.extend_from_slice(&reply);
        timeout(IDLE, stream.write_all(&framed)).await??;
    }
}

/// The answer that needs no other server.
enum Local {
    /// Not a question; silence is the answer.
    Nothing,
    Reply(Vec<u8>),
    Ask(Box<Question>),
}

struct Question {
    message: Message,
    bytes: Vec<u8>,
    /// The part of the answer we know: an alias that points out of the cluster.
    partial: Option<Answer>,
}

impl Resolver {
    fn local(&self, bytes: &[u8], transport: Transport) -> Local {
        // Without a header no answer can be addressed, and answers get no answer.
        if bytes.len() < 12 || bytes[2] & 0x80 != 0 {
            return Local::Nothing;
        }
        let Ok(message) = Message::from_vec(bytes) else {
            let id = u16::from_be_bytes([bytes[0], bytes[1]]);
            let refusal = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
            return Local::Reply(refusal.to_vec().unwrap_or_default());
        };
        if message.metadata.op_code != OpCode::Query {
            return Local::Reply(failure(&message, ResponseCode::NotImp));
        }
        if message
            .edns
            .as_ref()
            .is_some_and(|edns| edns.version() != 0)
        {
            return Local::Reply(failure(&message, ResponseCode::BADVERS));
        }
        let [query] = message.queries.as_slice() else {
            return Local::Reply(failure(&message, ResponseCode::FormErr));
        };
        if query.query_class() != DNSClass::IN {
            return Local::Reply(failure(&message, ResponseCode::Refused));
        }
        let outcome = {
            let index = self
                .index
                .read()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            self.zone.answer(&index, query.name(), query.query_type())
        };
        let partial = match outcome {
            ZoneLookup::Answered(answer) if answer.continue_at.is_some() => Some(answer),
            ZoneLookup::Answered(answer) => {
                return Local::Reply(reply(&message, answer, transport));
            }
            ZoneLookup::Elsewhere => None,
        };
        Local::Ask(Box::new(Question {
            bytes: bytes.to_vec(),
            message,
            partial,
        }))
    }

    async fn ask(&self, question: Box<Question>, transport: Transport) -> Vec<u8> {
        let Question {
            message,
            bytes,
            partial,
        } = *question;
        let Ok(_permit) = self.forwards.try_acquire() else {
            return failure(&message, ResponseCode::ServFail);
        };
        let Some(mut answer) = partial else {
            let reply = self.forwarder.ask(&bytes, transport).await;
            return reply.unwrap_or_else(|| failure(&message, ResponseCode::ServFail));
        };
        // Resolve the alias too, so that simple resolvers get an address with one question.
        if let Some(name) = answer.continue_at.take()
            && let Some(kind) = message.queries.first().map(Query::query_type)
        {
            let mut onward = Message::query();
            onward.metadata.recursion_desired = true;
            onward.add_query(Query::query(name, kind));
            if let Ok(bytes) = onward.to_vec()
                && let Some(found) = self.forwarder.ask(&bytes, transport).await
                && let Ok(found) = Message::from_vec(&found)
            {
                answer.answers.extend(found.answers);
            }
        }
        reply(&message, answer, transport)
    }
}

fn reply(question: &Message, answer: Answer, transport: Transport) -> Vec<u8> {
    let mut message = skeleton(question, answer.code);
    message.metadata.authoritative = true;
    message.add_answers(answer.answers);
    message.add_authorities(answer.authorities);
    message.add_additionals(answer.additionals);
    let bytes = message.to_vec().unwrap_or_default();
    let limit = match transport {
        Transport::Udp => usize::from(question.max_payload().min(LARGEST_UDP_ANSWER)),
        Transport::Tcp => usize::from(u16::MAX),
    };
    if bytes.len() <= limit && !bytes.is_empty() {
        return bytes;
    }
    message.truncate().to_vec().unwrap_or_default()
}

fn failure(question: &Message, code: ResponseCode) -> Vec<u8> {
    skeleton(question, code).to_vec().unwrap_or_default()
}

fn skeleton(question: &Message, code: ResponseCode) -> Message {
    let mut message = Message::new(
        question.metadata.id,
        MessageType::Response,
        question.metadata.op_code,
    );
    message.metadata.recursion_desired = question.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    message.metadata.checking_disabled = question.metadata.checking_disabled;
    message.metadata.response_code = code;
    message.add_queries(question.queries.iter().cloned());
    if question.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_PAYLOAD);
        edns.set_version(0);
        message.set_edns(edns);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_takes_only_its_share_of_the_connections() {
        let clients = Arc::new(Clients::default());
        let (greedy, other) = (IpAddr::from([10, 244, 0, 2]), IpAddr::from([10, 244, 0, 3]));
        let mut held: Vec<Admitted> = (0..MOST_CONNECTIONS)
            .map_while(|_| clients.admit(greedy))
            .collect();
        assert_eq!(held.len(), MOST_CONNECTIONS_OF_ONE);
        assert!(clients.admit(other).is_some());
        held.pop();
        assert!(clients.admit(greedy).is_some());
        held.clear();
        assert!(clients.0.lock().unwrap().is_empty());
    }
}
