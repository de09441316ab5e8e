//! Tracked connections: finding and forgetting those of a protocol. Only what UDP services need.

use std::net::SocketAddrV4;

use super::message::find;
use super::{Connection, Error, Request};

const SUBSYSTEM: u16 = 1 << 8;
const GET: u16 = 1;
const DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const HEADER: [u8; 4] = [libc::AF_INET as u8, 0, 0, 0];
const NLA_F_NESTED: u16 = 1 << 15;

/// One tracked exchange: where the client sent to, and who answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub protocol: u8,
    pub asked: SocketAddrV4,
    pub answering: SocketAddrV4,
}

/// Forgets the flows that `stale` picks: their next packet begins a new one. Returns how many.
pub fn forget(connection: &mut Connection, stale: impl Fn(&Flow) -> bool) -> Result<usize, Error> {
    let mut tuples = Vec::new();
    connection.visit(
        "list tracked connections",
        SUBSYSTEM | GET,
        |writer| writer.raw(&HEADER),
        |payload| {
            let Some(rest) = payload.get(4..) else { return };
            if let Some(original) = find(rest, CTA_TUPLE_ORIG)
                && parse(rest, original).is_some_and(|flow| stale(&flow))
            {
                tuples.push(original.to_vec());
            }
        },
    )?;
    let requests = tuples
        .iter()
        .map(|tuple| {
            Request::new(
                "forget a tracked connection",
                SUBSYSTEM | DELETE,
                0,
                |writer| {
                    writer.raw(&HEADER);
                    writer.attribute(CTA_TUPLE_ORIG | NLA_F_NESTED, tuple);
                },
            )
            // It may have ended by itself meanwhile.
            .tolerate(&[libc::ENOENT])
        })
        .collect::<Vec<_>>();
    connection.pipeline_in_parts(requests)?;
    Ok(tuples.len())
}

fn parse(attributes: &[u8], original: &[u8]) -> Option<Flow> {
    let reply = find(attributes, CTA_TUPLE_REPLY)?;
    let protocol = *find(find(original, 2)?, 1)?.first()?;
    let end = |tuple: &[u8], address: u16, port: u16| {
        let address: [u8; 4] = find(find(tuple, 1)?, address)?.try_into().ok()?;
        let port: [u8; 2] = find(find(tuple, 2)?, port)?.try_into().ok()?;
        Some(SocketAddrV4::new(address.into(), u16::from_be_bytes(port)))
    };
    Some(Flow {
        protocol,
        asked: end(original, 2, 3)?,
        answering: end(reply, 1, 2)?,
    })
}
