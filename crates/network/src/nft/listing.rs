//! Reading back what the kernel holds: enough to find our tables, foreign forward chains and our
//! marked rules in them, and the elements of our maps.

use super::batch::header;
use super::object::{Element, Family, HookPoint, Policy, comment_bytes};
use crate::netlink::message::{attributes, find, text};
use crate::netlink::{Connection, Error};

const SUBSYSTEM: u16 = 10 << 8;
const GETTABLE: u16 = 1;
const GETCHAIN: u16 = 4;
const GETRULE: u16 = 7;
const GETSETELEM: u16 = 13;
const GETGEN: u16 = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTable {
    pub family: Family,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChain {
    pub family: Family,
    pub table: String,
    pub name: String,
    /// For base chains: hook number and policy.
    pub hook: Option<(u32, Policy)>,
}

impl ListedChain {
    /// Whether this chain sees forwarded packets and drops what no rule accepts.
    pub fn drops_forwarded(&self) -> bool {
        self.hook == Some((HookPoint::Forward as u32, Policy::Drop))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRule {
    pub family: Family,
    pub table: String,
    pub chain: String,
    pub handle: u64,
    userdata: Vec<u8>,
}

impl ListedRule {
    pub fn has_comment(&self, comment: &str) -> bool {
        self.userdata == comment_bytes(comment)
    }
}

pub fn tables(connection: &mut Connection) -> Result<Vec<ListedTable>, Error> {
    list(connection, "list nf_tables tables", GETTABLE, |payload| {
        let name = text(find(payload.get(4..)?, 1)?);
        Some(ListedTable {
            family: Family::from_number(payload[0]),
            name,
        })
    })
}

pub fn chains(connection: &mut Connection) -> Result<Vec<ListedChain>, Error> {
    list(connection, "list nf_tables chains", GETCHAIN, |payload| {
        let rest = payload.get(4..)?;
        let hook = find(rest, 4)
            .and_then(|hook| network_number(find(hook, 1)?))
            .map(|number| (number, policy(find(rest, 5))));
        Some(ListedChain {
            family: Family::from_number(payload[0]),
            table: text(find(rest, 1)?),
            name: text(find(rest, 3)?),
            hook,
        })
    })
}

/// All rules of the machine; only their places and comments.
pub fn rules(connection: &mut Connection) -> Result<Vec<ListedRule>, Error> {
    list(connection, "list nf_tables rules", GETRULE, |payload| {
        let rest = payload.get(4..)?;
        Some(ListedRule {
            family: Family::from_number(payload[0]),
            table: text(find(rest, 1)?),
            chain: text(find(rest, 2)?),
            handle: u64::from_be_bytes(find(rest, 3)?.try_into().ok()?),
            userdata: find(rest, 7).unwrap_or_default().to_vec(),
        })
    })
}

/// What `read` finds in each entry of a listing.
fn list<T>(
    connection: &mut Connection,
    what: &str,
    kind: u16,
    read: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let entries = connection.dump(what, SUBSYSTEM | kind, |writer| {
        writer.raw(&header(0, 0));
    })?;
    Ok(entries.iter().filter_map(|payload| read(payload)).collect())
}

/// The elements of a set or value map; an empty list when there is no such set.
pub fn elements(
    connection: &mut Connection,
    family: Family,
    table: &str,
    set: &str,
) -> Result<Vec<Element>, Error> {
    let outcome = connection.dump(
        &format!("list elements of {set}"),
        SUBSYSTEM | GETSETELEM,
        |writer| {
            writer.raw(&header(family.number(), 0));
            writer.text(1, table);
            writer.text(2, set);
        },
    );
    let entries = match outcome {
        Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(Vec::new()),
        outcome => outcome?,
    };
    let mut found = Vec::new();
    for payload in &entries {
        let Some(list) = payload.get(4..).and_then(|rest| find(rest, 3)) else {
            continue;
        };
        for (_, element) in attributes(list) {
            let Some(key) = find(element, 1).and_then(|key| find(key, 1)) else {
                continue;
            };
            let value = find(element, 2)
                .and_then(|data| find(data, 1))
                .map(<[u8]>::to_vec);
            found.push(Element {
                key: key.to_vec(),
                value,
                verdict: None,
            });
        }
    }
    Ok(found)
}

/// The generation id: it grows with each committed batch of anyone.
pub fn generation(connection: &mut Connection) -> Result<u32, Error> {
    connection
        .get(
            "read the nf_tables generation",
            SUBSYSTEM | GETGEN,
            |writer| writer.raw(&header(0, 0)),
        )?
        .and_then(|payload| network_number(find(payload.get(4..)?, 1)?))
        .ok_or_else(|| Error::Malformed {
            what: "read the nf_tables generation".to_owned(),
        })
}

fn policy(attribute: Option<&[u8]>) -> Policy {
    match attribute.and_then(network_number) {
        Some(0) => Policy::Drop,
        _ => Policy::Accept,
    }
}

fn network_number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
